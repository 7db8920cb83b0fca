"""Staged suites: the status of each stage of a run, the blocker, and the regressions.

A stage is a part of the work (the API exists, validation, ..., kernels) with its own tests and
required files. Its status:

    passed   some test passed, none failed, hung, crashed or broke, and every required file is there
             (skipped tests don't matter)
    partial  some test passed, but another didn't, or a required file is missing
    failed   no test passed: all failed, broke or were skipped, or there were none
             (zero tests run is never green)
    blocked  not run, because an earlier stage failed or hung
    hung     some test didn't finish in time, whatever else passed

Failed and hung stages block the stages after them; partial ones don't. A stage with several
iterations has its worst status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from gonogo import fields
from gonogo.spec.described import Described
from gonogo.spec.validation import WHOLE, field_errors

MAX_REASON = 300
Count = Annotated[int, Field(ge=0), WHOLE]


class StageStatus(Described):
    """The status of a stage. Members are declared worst first."""

    hung = "hung", "Some test of it didn't finish in time."
    failed = "failed", "No test of it passed."
    blocked = "blocked", "It was not run, because an earlier stage failed or hung."
    partial = "partial", "Some of its tests passed, but not all, or a required file is missing."
    passed = "passed", "Its tests passed, and every required file is there."

    @property
    def blocks(self) -> bool:
        """Return whether the stages after it are not run."""
        return self in (StageStatus.hung, StageStatus.failed)


@dataclass(frozen=True)
class StageResult:
    """The result of one stage: a line of the table."""

    name: str
    status: StageStatus
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """Why it isn't passed, in a few words; "" when it is."""
    passed: Count = 0
    failed: Count = 0
    """Tests that failed, broke, crashed or hung."""
    skipped: Count = 0
    missing: tuple[str, ...] = ()
    """Required files that weren't there."""
    iterations: Count = 1
    iterations_passed: Count = 0
    duration_ms: Annotated[float, Field(allow_inf_nan=False)] | None = None


@dataclass(frozen=True)
class StageTable:
    """The stages of a run, in order, up to the last requested one."""

    stages: tuple[StageResult, ...]

    @property
    def blocker(self) -> StageResult | None:
        """The first stage that blocks others, else the first not passed; None if all passed."""
        unfinished = [stage for stage in self.stages if stage.status is not StageStatus.passed]
        blocking = [stage for stage in unfinished if stage.status.blocks]
        return next(iter([*blocking, *unfinished]), None)

    @property
    def words(self) -> str:
        """The table in one sentence, with the blocker."""
        if not self.stages:
            return "No stage was run."
        count, first = len(self.stages), self.stages[0].name
        if self.blocker is None:
            all_ = f"All {count} stages passed."
            return all_ if count > 1 else f"The stage '{first}' passed."
        parts = []
        for status in reversed(StageStatus):
            places = enumerate(self.stages, 1)
            names = [f"{place} ({stage.name})" for place, stage in places if stage.status is status]
            if names and status is StageStatus.passed:
                parts.append(f"{len(names)} passed")
            elif names:
                parts.append(f"{_listed(names)} {status.value}")
        sentence = f"Of {count} stages {', '.join(parts)}"
        return f"{sentence}; the blocker is '{self.blocker.name}': {self.blocker.reason}."

    def to_json(self) -> dict[str, Any]:
        """Return it with its blocker and words, which are computed; `parse` reads it back."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "blocker": None if self.blocker is None else self.blocker.name,
            "words": self.words,
        }

    @classmethod
    def parse(cls, data: object, path: str = "stages") -> StageTable:
        """Parse the object that to_json makes, as a worker sends it. Raises FieldError."""
        given = fields.mapping(data, path)
        try:
            return cls(_STAGES.validate_python(given.get("stages") or ()))
        except ValidationError as problem:
            details = problem.errors(include_url=False)
            raise field_errors(details, path=f"{path}.stages")[0] from None


_STAGES = TypeAdapter(tuple[StageResult, ...])


@dataclass(frozen=True)
class Regression:
    """A stage that passed in an earlier run and no longer does."""

    stage: str
    status: StageStatus
    reason: str
    since: str
    """The build of the last run in which it passed."""


@dataclass(frozen=True)
class JobStages:
    """The stages of a job, each with its worst status of all iterations."""

    stages: list[StageResult]
    blocker: str | None
    """The first stage that blocks others, else the first not passed"""
    words: str
    regressions: list[Regression]
    """The stages that passed in an earlier run and no longer do"""


def table(
    reports: Iterable[Mapping[str, Any]], suite: Mapping[str, Any] | None = None
) -> StageTable:
    """Return the table of one iteration.

    reports: as the pytest executor sends them, with "stage", "name", "outcome" and "message";
    "requires" names a missing required file, "blocked_by" the reason why a stage was not run.
    Reports without a stage are left out. suite: the builds file's table, whose "stages" give the
    order; without one, stages keep the order of the reports.
    """
    by_stage: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        if report.get("stage"):
            by_stage.setdefault(str(report["stage"]), []).append(report)
    order = [str(stage["name"]) for stage in (suite or {}).get("stages", ())]
    names = dict.fromkeys([*(name for name in order if name in by_stage), *by_stage])
    return StageTable(tuple(_result(name, by_stage[name]) for name in names))


def combined(tables: Sequence[StageTable]) -> StageTable:
    """Combine the tables of several iterations into one.

    Each stage has its worst status with that status's reason. Where iterations differ, the reason
    says in how many of them the stage did not pass.
    """
    names = dict.fromkeys(stage.name for table in tables for stage in table.stages)
    stages = []
    for name in names:
        of_stage = [stage for table in tables for stage in table.stages if stage.name == name]
        worst = min(of_stage, key=lambda stage: stage.status.rank)
        passed = sum(stage.iterations_passed for stage in of_stage)
        iterations = sum(stage.iterations for stage in of_stage)
        reason = worst.reason
        if 0 < passed < iterations:
            reason = f"in {iterations - passed} of {iterations} iterations: {reason}"
        stages.append(
            replace(
                worst, reason=reason[:MAX_REASON], iterations=iterations, iterations_passed=passed
            )
        )
    return StageTable(tuple(stages))


def regressions(
    earlier: Iterable[tuple[str, StageTable]], now: StageTable
) -> tuple[Regression, ...]:
    """Return the stages that passed in an earlier run and don't pass now.

    earlier: (name of the build, table) of each earlier run, the newest last. Stages that are
    missing from the table of now were not requested, so they are no regressions.
    """
    ok = StageStatus.passed
    passed = {
        stage.name: build for build, was in earlier for stage in was.stages if stage.status is ok
    }
    return tuple(
        Regression(stage.name, stage.status, stage.reason, passed[stage.name])
        for stage in now.stages
        if stage.status is not ok and stage.name in passed
    )


def regression_words(lost: Sequence[Regression]) -> str:
    """Return the regressions in one sentence; "" if there are none."""
    if not lost:
        return ""
    since = {regression.since for regression in lost}
    when = f" on {since.pop()}" if len(since) == 1 else ""
    names = _listed([f"'{regression.stage}'" for regression in lost])
    return f"{names} passed{when} and no longer {'does' if len(lost) == 1 else 'do'}."


_BAD = ("failed", "error", "crash", "hang")


def _result(name: str, reports: Sequence[Mapping[str, Any]]) -> StageResult:
    if blocked_by := next(filter(None, (report.get("blocked_by") for report in reports)), None):
        return StageResult(name, StageStatus.blocked, f"blocked by '{blocked_by}'"[:MAX_REASON])
    required = [str(report["requires"]) for report in reports if report.get("requires")]
    missing = tuple(dict.fromkeys(required))
    tests = [report for report in reports if not report.get("requires")]
    outcomes = [str(report.get("outcome")) for report in tests]
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    failed = sum(outcome in _BAD for outcome in outcomes)
    times = [report["duration_ms"] for report in tests if report.get("duration_ms") is not None]
    hung = next((report for report in tests if report.get("outcome") == "hang"), None)
    status, first = StageStatus.passed, ""
    if hung is not None:
        status, first = StageStatus.hung, f"{hung.get('name')} hung: {_first_line(hung)}"
    elif not passed:
        status, first = StageStatus.failed, "no test was found"
        if failed:
            first = f"no test passed, first {_first_bad(tests)}"
        elif skipped:
            first = f"all {skipped} tests were skipped: {_first_line(tests[0])}"
    elif failed:
        status = StageStatus.partial
        first = f"{failed} of {passed + failed} tests failed, first {_first_bad(tests)}"
    elif missing:
        status = StageStatus.partial
    reasons = [first, f"missing: {', '.join(missing)}" if missing else ""]
    return StageResult(
        name,
        status,
        "; ".join(filter(None, reasons))[:MAX_REASON],
        passed,
        failed,
        skipped,
        missing,
        iterations_passed=int(status is StageStatus.passed),
        duration_ms=sum(times) if times else None,
    )


def _first_bad(tests: Sequence[Mapping[str, Any]]) -> str:
    bad = next(test for test in tests if test.get("outcome") in _BAD)
    return f"{bad.get('name')}: {_first_line(bad)}"


def _first_line(report: Mapping[str, Any]) -> str:
    return str(report.get("message") or "").strip().partition("\n")[0] or str(report.get("outcome"))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
