"""CTRF (https://ctrf.io), version 0.0.0 of its specification.

The summary comes after the tests, because they are counted while they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from gonogo_service.exports.parts import Export
from gonogo_service.exports.test_case import Case, cases
from gonogo_settings.release import release
from gonogo_storage.db.encoding import encode
from gonogo_storage.jobs.job import Job

VERSION = "0.0.0"
_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def write(export: Export) -> Iterator[str]:
    """Yield the file, test by test."""
    yield f'{{"reportFormat":"CTRF","specVersion":"{VERSION}","generatedBy":"gonogo",'
    yield '"results":{"tool":'
    yield encode({"name": "gonogo", "version": release()}) + ',"tests":['
    counts: Counter[str] = Counter()
    starts: list[datetime] = []
    stops: list[datetime] = []
    environment: dict[str, Any] = {}
    jobs: list[str] = []
    comma = ""
    for part in export.parts:
        starts.append(part.job.started_at or part.job.created_at)
        stops.append(part.job.finished_at or starts[-1])
        environment = environment or _environment(part.job)
        jobs.append(part.job.id)
        for case in cases(part):
            counts[case.status.value] += 1
            yield comma + encode(_test(case))
            comma = ","
    start, stop = (_milliseconds(min(starts)), _milliseconds(max(stops))) if starts else (0, 0)
    summary = {
        "tests": counts.total(),
        **{name: counts[name] for name in _STATUSES},
        "suites": len(jobs),
        "start": start,
        "stop": stop,
    }
    extra = {export.noun: export.id, "jobs": jobs}
    yield f'],"summary":{encode(summary)},"environment":{encode(environment)},'
    yield f'"extra":{encode(extra)}}}}}\n'


def _test(case: Case) -> dict[str, Any]:
    optional = {
        "message": case.message,
        "trace": case.text,
        "filePath": case.file,
        "line": case.line,
    }
    return {
        "name": case.name,
        "status": case.status.value,
        "duration": round(case.duration_ms or 0.0),
        "suite": [case.group],
        "rawStatus": case.verdict,
        **{name: value for name, value in optional.items() if value not in (None, "")},
        "extra": dict(case.facts),
    }


def _environment(job: Job) -> dict[str, Any]:
    """Return the environment of the first job; each test names its own build."""
    fields = {
        "buildName": job.build,
        "repositoryName": job.commit.repository if job.commit else None,
        "commit": job.commit.sha if job.commit else None,
    }
    return {name: value for name, value in fields.items() if value}


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
