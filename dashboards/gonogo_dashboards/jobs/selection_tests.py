"""A selection's job on its page: a line for each test, with how often it was green or red and what
it said.
"""

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
    """One test over the job's iterations; message, failures and numbers are those of its worst
    one.
    """

    __test__ = False  # pytest: not a test case

    name: str
    verdict: str
    outcomes: tuple[OutcomeCount, ...]
    iteration: int
    duration_ms: float | None
    message: str
    more: str
    """What the message goes on to say, where it is longer than a line."""
    failures: tuple[tuple[str, int], ...]
    """(expression, how often)"""
    measurements: tuple[tuple[str, float | None], ...]
    stage: str | None


@dataclass(frozen=True)
class TestsView:
    """The tests of a job, worst first; `total` counts those left out, too."""

    __test__ = False  # pytest: not a test case

    lines: tuple[TestLine, ...]
    total: int
    outcomes: tuple[OutcomeCount, ...]
    """Over all tests and iterations."""
    staged: bool


def is_selection(job: Job) -> bool:
    """Whether the job runs tests that exist already."""
    return job.kernel == KERNEL


def read(session: Session, job: Job) -> TestsView | None:
    """The tests of a job; None for a kernel's."""
    if not is_selection(job):
        return None
    lines = tuple(_line(record) for record in selection_tests.tests(session, job.id, MAX_TESTS))
    total = len(lines) if len(lines) < MAX_TESTS else selection_tests.count(session, job.id)
    return TestsView(lines, total, outcomes(job.outcomes or {}), any(line.stage for line in lines))


def facts(job: Job) -> tuple[tuple[str, str], ...]:
    """What was asked for, in words, where no kernel was."""
    wanted = Selection.parse(job.canonical)
    named = (
        ("suite", wanted.suite),
        ("filter", wanted.filter),
        ("stages", ", ".join(wanted.stages or ()) or None),
    )
    found = [(name, value) for name, value in named if value is not None]
    if wanted.shuffle is not None:
        found.append(
            (
                "order",
                "shuffled by each seed"
                if wanted.shuffle is True
                else f"shuffled by {wanted.shuffle}",
            )
        )
    return tuple(found or [("tests", "all of the build")])


def _line(record: selection_tests.TestRecord) -> TestLine:
    said = record.sample
    first, _, more = str(said.get("message") or "").strip().partition("\n")
    measured = said.get("measurements") or {}
    return TestLine(
        name=record.name,
        verdict=record.verdict,
        outcomes=outcomes(record.outcomes),
        iteration=record.iteration,
        duration_ms=said.get("duration_ms"),
        message=first[:MAX_CHARS],
        more=more,
        failures=tuple(
            (str(each.get("expression")), int(each.get("count", 1)))
            for each in said.get("failures") or ()
        ),
        measurements=tuple(
            (str(name), value) for name, value in list(measured.items())[:MAX_NUMBERS]
        ),
        stage=said.get("stage"),
    )
