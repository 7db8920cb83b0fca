"""The tests of a selection's job: a line for each test, with its outcomes and its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.selections import KERNEL
from gonogo_dashboards.kit.list_rows import OutcomeCount, outcomes
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import selection_tests

PAGE = 100
"""Tests of a page; the others are a click away. A run may have 20,000."""
MAX_NUMBERS = 6
MAX_CHARS = 600
MAX_SEARCH, MAX_DIGITS = 200, 7


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
    """A part of a job's tests, worst first."""

    __test__ = False  # pytest: not a test case

    lines: tuple[TestLine, ...]
    first: int
    """The place of the first one, from 1."""
    total: int
    """All that the search finds; without one, all tests."""
    search: str
    before_url: str | None
    next_url: str | None
    outcomes: tuple[OutcomeCount, ...]
    """The outcomes of all tests and iterations."""
    staged: bool


@dataclass(frozen=True)
class Part:
    """The requested part of the tests: those whose names hold a text, without the first ones."""

    search: str = ""
    skip: int = 0

    @classmethod
    def requested(cls, query: Mapping[str, str]) -> Part:
        """Return the part that a page's query names."""
        skip = query.get("after", "")
        is_number = skip.isascii() and skip.isdigit() and len(skip) < MAX_DIGITS
        return cls(query.get("search", "").strip()[:MAX_SEARCH], int(skip) if is_number else 0)


def read(session: Session, job: JobRow, part: Part, output: str | None = None) -> TestsView | None:
    """Return a part of the tests of a job; None for a kernel's job.

    output: the output that the page shows, which the addresses of other parts keep.
    """
    if job.kernel != KERNEL:
        return None
    records, total = selection_tests.tests(
        session, job.id, PAGE, skip=part.skip, search=part.search
    )

    def url(skip: int) -> str:
        return urls.job(job.id, output=output, tests={"search": part.search, "after": skip})

    lines = tuple(map(_line, records))
    return TestsView(
        lines,
        part.skip + 1,
        total,
        part.search,
        url(max(0, part.skip - PAGE)) if part.skip else None,
        url(part.skip + PAGE) if part.skip + PAGE < total else None,
        outcomes(job.outcomes or {}),
        any(line.stage for line in lines),
    )


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
