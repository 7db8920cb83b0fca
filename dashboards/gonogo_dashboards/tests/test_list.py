"""Read models of the list of tests: each with its last builds, its failure rates and its grades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import commands, ranges, words
from gonogo_dashboards.tests.list_lines import TestLine, lines
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import standings, test_list
from gonogo_service.tests.standings import FLAKY, HOLLOW, RED
from gonogo_service.tests.test_list import TestFilter

FILTERS = ("kernel", "search", "standing", "sort", ranges.PARAMETER)
STANDINGS = {
    HOLLOW: ("Hollow", "pass_by_tolerance"),
    RED: ("Red", "fail"),
    "broken": ("Broken", "fail"),
    FLAKY: ("Flaky", "suspect"),
    "marginal": ("Marginal", "suspect"),
    "blunt": ("Blunt", "suspect"),
    test_list.FLAGGED: ("Open flags", "none"),
}
"""The label of each filter by state, and the verdict whose looks it takes."""
STANDING_SENTENCES = {
    **{name: grade.sentence for name, grade in words.GRADES.items()},
    **words.STANDING_SENTENCES,
    test_list.FLAGGED: "It has a flag that nobody has acknowledged.",
}
"""The tests that each filter finds."""
IN_DAYS_SENTENCES = STANDING_SENTENCES | {
    HOLLOW: "In this time some build had a seed that passes only by tolerance.",
    RED: "In this time some build had a failing seed, whether rightly or not.",
    FLAKY: "In this time some build had passing and failing seeds.",
}
"""The tests that each filter finds in a range of days."""
SORTS = {test_list.ATTENTION: "Worst first", test_list.NEWEST: "Newest first"}


@dataclass(frozen=True)
class Chip:
    """A filter or an order to choose; choosing it again takes it back."""

    value: str
    label: str
    verdict: str
    url: str
    chosen: bool
    sentence: str = ""
    count: int | None = None
    """The tests that a filter leaves; None for an order."""


@dataclass(frozen=True)
class TestsView:
    """A page of the list of tests; `next_url` leads to the next one, or is None."""

    __test__ = False  # pytest: not a test case

    items: tuple[TestLine, ...]
    filters: Mapping[str, str]
    standings: tuple[Chip, ...]
    sorts: tuple[Chip, ...]
    range: ranges.Range
    next: str | None
    next_url: str | None
    start: str
    at: str | None


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> TestsView:
    """Return a page of tests, the worst first. Raises BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    if given.get("standing") not in test_list.STANDINGS:
        given.pop("standing", None)
    standing, sort = given.get("standing"), given.get("sort")
    sort = sort if sort in test_list.SORTS else test_list.ATTENTION

    def address(name: str, value: str | None) -> str:
        return urls.catalogue({**given, name: value})

    period = ranges.of(given, now, lambda value: address(ranges.PARAMETER, value))
    start, in_days = period.since or now - standings.WINDOW, period.since is not None
    chosen = TestFilter(
        given.get("kernel"),
        given.get("search"),
        standing,
        period.since,
        standings.read(session, since=start, every_build=in_days),
    )
    page = test_list.list_(session, chosen, sort=sort, limit=limit, cursor=cursor or None)
    counts = test_list.counts(session, chosen)
    sentences = IN_DAYS_SENTENCES if in_days else STANDING_SENTENCES
    return TestsView(
        lines(session, page.items, standing, period, now),
        given,
        tuple(
            Chip(
                value,
                *STANDINGS[value],
                address("standing", None if standing == value else value),
                standing == value,
                sentences[value],
                counts[value],
            )
            for value in test_list.STANDINGS
        ),
        tuple(
            Chip(
                value,
                label,
                "",
                address("sort", None if value == test_list.ATTENTION else value),
                value == sort,
            )
            for value, label in SORTS.items()
        ),
        period,
        page.next,
        urls.catalogue(given, cursor=page.next) if page.next else None,
        commands.START,
        timestamp(now),
    )
