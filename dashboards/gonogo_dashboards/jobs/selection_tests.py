"""The tests of a selection's job: a line for each test, with its outcomes and its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import selection_tests
from gonogo_service.results.selection_tests import TestRecord

PAGE = 100
"""Tests of a page; the others are a click away. A run may have 20,000."""
MAX_CHARS = 600
MAX_SEARCH, MAX_DIGITS = 200, 7


@dataclass(frozen=True)
class TestsView:
    """A part of a job's tests, worst first."""

    __test__ = False  # pytest: not a test case

    lines: tuple[TestRecord, ...]
    first: int
    """The place of the first one, from 1."""
    total: int
    """All that the search finds; without one, all tests."""
    search: str
    before_url: str | None
    next_url: str | None
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
    if not job.is_selection:
        return None
    records, total = selection_tests.tests(
        session, job.id, PAGE, skip=part.skip, search=part.search
    )

    def url(skip: int) -> str:
        return urls.job(job.id, output=output, tests={"search": part.search, "after": skip})

    return TestsView(
        tuple(records),
        part.skip + 1,
        total,
        part.search,
        url(max(0, part.skip - PAGE)) if part.skip else None,
        url(part.skip + PAGE) if part.skip + PAGE < total else None,
        any(record.sample.get("stage") for record in records),
    )


def message(record: TestRecord) -> tuple[str, str]:
    """Return the first line of a test's message, and the rest."""
    first, _, more = str(record.sample.get("message") or "").strip().partition("\n")
    return first[:MAX_CHARS], more
