"""Staged suites: what each stage of a run came to, which one blocks the rest, and what has gone
backwards since an earlier run.

A stage is a part of the work (the API exists, validation, ..., kernels) with tests and required
files of its own. Its status:

    passed   some test passed, none failed, hung, crashed or broke, and every required file is there
    (skipped tests don't matter) partial  some test passed, but another didn't, or a required file
    is missing failed   no test passed: all failed, broke or were skipped, or there was none at all
    (zero tests run is never green) blocked  not run, because an earlier stage failed or hung hung
    something didn't come to its end in time, whatever else passed

Failed and hung stages block what follows; partial ones don't. Of several iterations a stage has its
worst status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gonogo.spec import fields

MAX_REASON = 300


class StageStatus(StrEnum):
    """What a stage came to. Declared worst first."""

    hung = "hung"
    failed = "failed"
    blocked = "blocked"
    partial = "partial"
    passed = "passed"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _SENTENCES[self]

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(StageStatus).index(self)

    @property
    def blocks(self) -> bool:
        """Whether the stages after it are not run."""
        return self in (StageStatus.hung, StageStatus.failed)


_SENTENCES = {
    StageStatus.hung: "Something in it didn't come to its end in time.",
    StageStatus.failed: "No test of it passed.",
    StageStatus.blocked: "It was not run, because an earlier stage failed or hung.",
    StageStatus.partial: "Some of its tests passed, but not all, or a required file is missing.",
    StageStatus.passed: "Its tests passed, and every required file is there.",
}


@dataclass(frozen=True)
class StageResult:
    """One line of the table."""

    name: str
    status: StageStatus
    reason: str = ""
    """Why it isn't passed, in a few words; "" when it is."""
    passed: int = 0
    failed: int = 0
    """Tests that failed, broke, crashed or hung."""
    skipped: int = 0
    missing: tuple[str, ...] = ()
    """Required files that weren't there."""
    iterations: int = 1
    iterations_passed: int = 0
    duration_ms: float | None = None

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "name": self.name,
            "status": self.status.value,
            "reason": self.reason,
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            "missing": list(self.missing),
            "iterations": self.iterations,
            "iterations_passed": self.iterations_passed,
            "duration_ms": self.duration_ms,
        }


@dataclass(frozen=True)
class StageTable:
    """The stages of a run, in order, up to the last one that was asked for."""

    stages: tuple[StageResult, ...]

    @property
    def blocker(self) -> StageResult | None:
        """What is in the way: the first stage that blocks others, else the first that isn't passed;
        None when all are.
        """
        unfinished = [stage for stage in self.stages if stage.status is not StageStatus.passed]
        return next(
            (stage for stage in unfinished if stage.status.blocks),
            unfinished[0] if unfinished else None,
        )

    @property
    def words(self) -> str:
        """The table in one sentence, the blocker in it."""
        if not self.stages:
            return "No stage was run."
        if self.blocker is None:
            return (
                f"All {len(self.stages)} stages passed."
                if len(self.stages) > 1
                else f"The stage '{self.stages[0].name}' passed."
            )
        parts = []
        for status in reversed(StageStatus):
            names = [
                f"{number} ({stage.name})"
                for number, stage in enumerate(self.stages, 1)
                if stage.status is status
            ]
            if names:
                parts.append(
                    f"{len(names)} passed"
                    if status is StageStatus.passed
                    else f"{_listed(names)} {status.value}"
                )
        sentence = f"Of {len(self.stages)} stages {', '.join(parts)}"
        return f"{sentence}; the blocker is '{self.blocker.name}': {self.blocker.reason}."

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types; `parse` gives the same table back."""
        return {
            "stages": [stage.to_json() for stage in self.stages],
            "blocker": None if self.blocker is None else self.blocker.name,
            "words": self.words,
        }

    @classmethod
    def parse(cls, data: object, path: str = "stages") -> StageTable:
        """From to_json's object, as a worker sends it. Raises FieldError."""
        given = fields.mapping(data, path)
        return cls(
            tuple(
                _parsed(each, f"{path}.stages.{number}")
                for number, each in enumerate(given.get("stages") or ())
            )
        )


@dataclass(frozen=True)
class Regression:
    """A stage that passed in an earlier run and no longer does."""

    stage: str
    status: StageStatus
    reason: str
    since: str
    """What is known of the last run in which it passed: its build."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "stage": self.stage,
            "status": self.status.value,
            "reason": self.reason,
            "since": self.since,
        }


def table(
    reports: Iterable[Mapping[str, Any]], suite: Mapping[str, Any] | None = None
) -> StageTable:
    """The table of one iteration.

    reports: as the pytest executor gives them, with "stage", "name", "outcome" and "message";
    "requires" names a required file that is missing, "blocked_by" what kept a stage from being run.
    Reports without a stage are left out. suite: the builds file's table, whose "stages" give the
    order; otherwise it is that of the reports.
    """
    by_stage: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        if report.get("stage"):
            by_stage.setdefault(str(report["stage"]), []).append(report)
    order = [str(stage["name"]) for stage in (suite or {}).get("stages", ())]
    names = [name for name in order if name in by_stage] + [
        name for name in by_stage if name not in order
    ]
    return StageTable(tuple(_result(name, by_stage[name]) for name in names))


def combined(tables: Sequence[StageTable]) -> StageTable:
    """The table of several iterations: every stage with its worst status, its reason, and how often
    it passed, where that varies.
    """
    names = dict.fromkeys(stage.name for each in tables for stage in each.stages)
    found = []
    for name in names:
        of_stage = [stage for each in tables for stage in each.stages if stage.name == name]
        worst = min(of_stage, key=lambda stage: stage.status.rank)
        passed, iterations = (
            sum(stage.iterations_passed for stage in of_stage),
            sum(stage.iterations for stage in of_stage),
        )
        reason = (
            f"in {iterations - passed} of {iterations} iterations: {worst.reason}"
            if 0 < passed < iterations
            else worst.reason
        )
        found.append(
            replace(
                worst, reason=reason[:MAX_REASON], iterations=iterations, iterations_passed=passed
            )
        )
    return StageTable(tuple(found))


def regressions(
    earlier: Iterable[tuple[str, StageTable]], now: StageTable
) -> tuple[Regression, ...]:
    """The stages that passed in one of the earlier runs (the newest last, each with the name of its
    build) and are not passed now.

    A stage that isn't in the table of now was not asked for: nothing is said of it.
    """
    passed: dict[str, str] = {}
    for build, each in earlier:
        passed.update(
            {stage.name: build for stage in each.stages if stage.status is StageStatus.passed}
        )
    return tuple(
        Regression(stage.name, stage.status, stage.reason, passed[stage.name])
        for stage in now.stages
        if stage.status is not StageStatus.passed and stage.name in passed
    )


def regression_words(found: Sequence[Regression]) -> str:
    """The regressions in one sentence; "" without any."""
    if not found:
        return ""
    since = {regression.since for regression in found}
    when = f" on {since.pop()}" if len(since) == 1 else ""
    names = _listed([f"'{regression.stage}'" for regression in found])
    return f"{names} passed{when} and no longer {'does' if len(found) == 1 else 'do'}."


def _result(name: str, reports: Sequence[Mapping[str, Any]]) -> StageResult:
    missing = tuple(
        dict.fromkeys(str(each["requires"]) for each in reports if each.get("requires"))
    )
    blocked_by = next((str(each["blocked_by"]) for each in reports if each.get("blocked_by")), None)
    tests = [each for each in reports if not each.get("requires") and not each.get("blocked_by")]
    outcomes = [str(each.get("outcome")) for each in tests]
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    failed = sum(outcome in ("failed", "error", "crash", "hang") for outcome in outcomes)
    times = [each["duration_ms"] for each in tests if each.get("duration_ms") is not None]
    if blocked_by is not None:
        return StageResult(name, StageStatus.blocked, f"blocked by '{blocked_by}'")
    hung = next((each for each in tests if each.get("outcome") == "hang"), None)
    reasons = [f"missing: {', '.join(missing)}"] if missing else []
    if hung is not None:
        status, first = StageStatus.hung, f"{hung.get('name')} hung: {_first_line(hung)}"
        reasons.insert(0, first)
    elif not passed:
        status = StageStatus.failed
        reasons.insert(0, _nothing_passed(tests, failed, skipped))
    elif failed:
        status = StageStatus.partial
        reasons.insert(0, f"{failed} of {passed + failed} tests failed, first {_first_bad(tests)}")
    else:
        status = StageStatus.partial if missing else StageStatus.passed
    return StageResult(
        name,
        status,
        "; ".join(reasons)[:MAX_REASON],
        passed,
        failed,
        skipped,
        missing,
        iterations_passed=int(status is StageStatus.passed),
        duration_ms=sum(times) if times else None,
    )


def _nothing_passed(tests: Sequence[Mapping[str, Any]], failed: int, skipped: int) -> str:
    if failed:
        return f"no test passed, first {_first_bad(tests)}"
    return (
        f"all {skipped} tests were skipped: {_first_line(tests[0])}"
        if skipped
        else "no test was found"
    )


def _first_bad(tests: Sequence[Mapping[str, Any]]) -> str:
    bad = next(each for each in tests if each.get("outcome") in ("failed", "error", "crash"))
    return f"{bad.get('name')}: {_first_line(bad)}"


def _first_line(report: Mapping[str, Any]) -> str:
    return str(report.get("message") or "").strip().partition("\n")[0] or str(report.get("outcome"))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _parsed(data: object, path: str) -> StageResult:
    given = fields.mapping(data, path)
    counts = {
        name: fields.integer(given.get(name, 0), f"{path}.{name}", least=0)
        for name in ("passed", "failed", "skipped", "iterations", "iterations_passed")
    }
    return StageResult(
        name=str(given.get("name", "")),
        status=StageStatus(
            fields.choice(given.get("status"), tuple(StageStatus), f"{path}.status")
        ),
        reason=str(given.get("reason") or "")[:MAX_REASON],
        missing=tuple(str(each) for each in given.get("missing") or ()),
        duration_ms=None
        if given.get("duration_ms") is None
        else fields.number(given["duration_ms"], f"{path}.duration_ms"),
        **counts,
    )
