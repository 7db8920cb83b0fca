"""CTRF (https://ctrf.io), version 0.0.0 of its specification.

The summary comes after the tests, because they are counted while they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gonogo.settings.release import release
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode
from gonogo_service.results.exports.cases import Case, Status, cases
from gonogo_service.results.exports.parts import Export

VERSION = "0.0.0"


class _Camel(BaseModel):
    """An object of CTRF, whose names are in camel case; what is unknown is left out."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class CtrfTool(_Camel):
    """The tool that wrote the report."""

    name: Literal["gonogo"]
    version: str


class CtrfFacts(BaseModel):
    """The facts of a test that CTRF has no names for, with the API's names."""

    model_config = ConfigDict(extra="forbid")

    job: str
    build: str
    verdict: Verdict
    explanation: str | None = None
    outcome: str | None = Field(None, description="The framework's own outcome of a test")
    arithmetic: str | None = Field(None, description="The arithmetic of each output")
    detection_limits: str | None = Field(None, description="Those of each output, in words")
    seed: int | None = None
    iteration: int | None = None
    repeat: int | None = None
    device: str | None = None


class CtrfTest(_Camel):
    """A seed, or a test of an iteration."""

    name: str
    status: Status
    duration: int = Field(description="Milliseconds")
    suite: list[str]
    raw_status: str = Field(description="The verdict")
    message: str | None = None
    trace: str | None = None
    file_path: str | None = None
    line: int | None = None
    extra: CtrfFacts


class CtrfSummary(_Camel):
    """Numbers of tests by status, and the time in milliseconds since 1970."""

    tests: int
    passed: int
    failed: int
    skipped: int
    pending: int
    other: int
    suites: int
    start: int
    stop: int


class CtrfEnvironment(_Camel):
    """The build and the commit of the first job."""

    build_name: str | None = None
    repository_name: str | None = None
    commit: str | None = None


class CtrfExtra(_Camel):
    """The exported job or run, and its jobs."""

    job: str | None = None
    run: str | None = None
    jobs: list[str]


class CtrfResults(_Camel):
    """The tests, and what they have in common."""

    tool: CtrfTool
    tests: list[CtrfTest]
    summary: CtrfSummary
    environment: CtrfEnvironment
    extra: CtrfExtra


class CtrfReport(_Camel):
    """A report in the Common Test Report Format."""

    report_format: Literal["CTRF"]
    spec_version: str
    generated_by: Literal["gonogo"]
    results: CtrfResults


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
