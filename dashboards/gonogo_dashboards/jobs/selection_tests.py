"""The tests of a selection's job: a line for each test, with its outcomes and its message."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.spec.selections import KERNEL, Selection
from gonogo_dashboards.kit.outcomes import OutcomeCount, outcomes
from gonogo_storage.jobs import selection_tests
from gonogo_storage.jobs.job import Job

MAX_TESTS = 500
MAX_NUMBERS = 6
MAX_CHARS = 600


@dataclass(frozen=True)
class TestLine:
    """One test over the job's iterations.

    Message, failures and numbers are those of its worst iteration.
    """

    __test__ = False  # pytest: not a test case

    name: str
    verdict: str
    outcomes: tuple[OutcomeCount, ...]
    iteration: int
    duration_ms: float | None
    message: str
    more: str
    """The rest of a message that is longer than a line."""
    failures: tuple[tuple[str, int], ...]
    """(expression, number of failures)"""
    measurements: tuple[tuple[str, float | None], ...]
    stage: str | None


@dataclass(frozen=True)
class TestsView:
    """The tests of a job, worst first; `total` includes those that are left out."""

    __test__ = False  # pytest: not a test case

    lines: tuple[TestLine, ...]
    total: int
    outcomes: tuple[OutcomeCount, ...]
    """The outcomes of all tests and iterations."""
    staged: bool


def is_selection(job: Job) -> bool:
    """Return whether the job runs tests that exist already."""
    return job.kernel == KERNEL


def read(session: Session, job: Job) -> TestsView | None:
    """Return the tests of a job; None for a kernel's job."""
    if not is_selection(job):
        return None
    records, total = selection_tests.tests(session, job.id, MAX_TESTS)
    lines = tuple(map(_line, records))
    return TestsView(lines, total, outcomes(job.outcomes or {}), any(line.stage for line in lines))


def facts(job: Job) -> tuple[tuple[str, str], ...]:
    """Return the request of a selection in words."""
    selection = Selection.parse(job.test)
    named = (
        ("suite", selection.suite),
        ("filter", selection.filter),
        ("stages", ", ".join(selection.stages or ()) or None),
    )
    rows = [(name, value) for name, value in named if value is not None]
    if selection.shuffle is not None:
        rows.append(
            (
                "order",
                "shuffled by each seed"
                if selection.shuffle is True
                else f"shuffled by {selection.shuffle}",
            )
        )
    return tuple(rows or [("tests", "all tests of the build")])


def _line(record: selection_tests.TestRecord) -> TestLine:
    sample = record.sample
    first, _, more = str(sample.get("message") or "").strip().partition("\n")
    measured = sample.get("measurements") or {}
    return TestLine(
        name=record.name,
        verdict=record.verdict,
        outcomes=outcomes(record.outcomes),
        iteration=record.iteration,
        duration_ms=sample.get("duration_ms"),
        message=first[:MAX_CHARS],
        more=more,
        failures=tuple(
            (str(failure.get("expression")), int(failure.get("count", 1)))
            for failure in sample.get("failures") or ()
        ),
        measurements=tuple(
            (str(name), value) for name, value in list(measured.items())[:MAX_NUMBERS]
        ),
        stage=sample.get("stage"),
    )
