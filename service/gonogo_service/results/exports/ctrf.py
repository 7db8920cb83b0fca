"""CTRF (https://ctrf.io), version 0.0.0 of its specification.

The summary comes after the tests, because they are counted while they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gonogo.settings.release import release
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode
from gonogo_service.results.exports.parts import Export
from gonogo_service.results.exports.test_case import Case, Status, cases

VERSION = "0.0.0"
_STATUSES = ("passed", "failed", "skipped", "pending", "other")


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


def _environment(job: JobRow) -> dict[str, Any]:
    """Return the environment of the first job; each test names its own build."""
    fields = {
        "buildName": job.build,
        "repositoryName": job.commit.repository if job.commit else None,
        "commit": job.commit.sha if job.commit else None,
    }
    return {name: value for name, value in fields.items() if value}


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
