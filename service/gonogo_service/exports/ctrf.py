"""CTRF (https://ctrf.io), version 0.0.0 of its specification: the summary follows the tests, for it
is counted as they are written.
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
    """The file, test by test."""
    yield f'{{"reportFormat":"CTRF","specVersion":"{VERSION}","generatedBy":"gonogo","results":{{"tool":'
    yield encode({"name": "gonogo", "version": release()}) + ',"tests":['
    counted: Counter[str] = Counter()
    starts: list[datetime] = []
    stops: list[datetime] = []
    place: dict[str, Any] = {}
    jobs: list[str] = []
    comma = ""
    for part in export.parts:
        starts.append(part.job.started_at or part.job.created_at)
        stops.append(part.job.finished_at or starts[-1])
        place, jobs = place or _environment(part.job), [*jobs, part.job.id]
        for case in cases(part):
            counted[case.status.value] += 1
            yield comma + encode(_test(case))
            comma = ","
    start, stop = (_milliseconds(min(starts)), _milliseconds(max(stops))) if starts else (0, 0)
    summary = {
        "tests": counted.total(),
        **{name: counted[name] for name in _STATUSES},
        "suites": len(jobs),
        "start": start,
        "stop": stop,
    }
    yield f'],"summary":{encode(summary)},"environment":{encode(place)},"extra":{encode({export.noun: export.id, "jobs": jobs})}}}}}\n'


def _test(case: Case) -> dict[str, Any]:
    told = {"message": case.message, "trace": case.text, "filePath": case.file, "line": case.line}
    return {
        "name": case.name,
        "status": case.status.value,
        "duration": round(case.duration_ms or 0.0),
        "suite": [case.group],
        "rawStatus": case.verdict,
        **{name: value for name, value in told.items() if value not in (None, "")},
        "extra": dict(case.facts),
    }


def _environment(job: Job) -> dict[str, Any]:
    """Where the first job ran: a run may have several builds, and every test says its own."""
    commit = job.commit or {}
    told = {
        "buildName": job.build,
        "repositoryName": commit.get("repository"),
        "commit": commit.get("sha"),
    }
    return {name: value for name, value in told.items() if value}


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
