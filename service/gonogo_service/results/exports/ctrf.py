"""CTRF (https://ctrf.io), version 0.0.0 of its specification.

The summary comes after the tests, because they are counted while they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gonogo.settings.release import release
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode
from gonogo_service.results.exports.cases import Case, Status, cases
from gonogo_service.results.exports.parts import Export

VERSION = "0.0.0"


SCHEMA = {
    "type": "object",
    "required": ["reportFormat", "specVersion", "results"],
    "description": f"A report in the Common Test Report Format {VERSION}, https://ctrf.io",
}


def write(export: Export) -> Iterator[str]:
    """Yield the file, test by test."""
    head = {"reportFormat": "CTRF", "specVersion": VERSION, "generatedBy": "gonogo"}
    tool = {"name": "gonogo", "version": release()}
    yield f'{encode(head)[:-1]},"results":{{"tool":{encode(tool)},"tests":['
    counts: Counter[str] = Counter()
    seen: list[JobRow] = []
    comma = ""
    for part in export.parts:
        seen.append(part.job)
        for case in cases(part):
            counts[case.status.value] += 1
            yield comma + encode(_test(case))
            comma = ","
    starts = [job.started_at or job.created_at for job in seen]
    stops = [job.finished_at or start for job, start in zip(seen, starts, strict=True)]
    summary = {
        "tests": counts.total(),
        **{status.value: counts[status.value] for status in Status},
        "pending": 0,
        "suites": len(seen),
        "start": round(1000 * min(starts).timestamp()) if starts else 0,
        "stop": round(1000 * max(stops).timestamp()) if stops else 0,
    }
    first = seen[0] if seen else None
    commit = first.commit if first else None
    environment = {
        "buildName": first.build if first else None,
        "repositoryName": commit.repository if commit else None,
        "commit": commit.sha if commit else None,
    }
    tail = {
        "summary": summary,
        "environment": {name: value for name, value in environment.items() if value},
        "extra": {export.noun: export.id, "jobs": [job.id for job in seen]},
    }
    yield f"],{encode(tail)[1:]}}}\n"


def _test(case: Case) -> dict[str, Any]:
    test = {
        "name": case.name,
        "status": case.status.value,
        "duration": round(case.duration_ms or 0.0),
        "suite": [case.group],
        "rawStatus": case.verdict,
        "message": case.message or None,
        "trace": case.text or None,
        "filePath": case.file or None,
        "line": case.line,
        "extra": dict(case.facts),
    }
    return {name: value for name, value in test.items() if value is not None}
