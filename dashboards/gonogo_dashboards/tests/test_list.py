"""Read models of the list of tests: each with its last builds, its failure rates and its grades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import commands, ranges
from gonogo_dashboards.tests.list_lines import TestLine, lines
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import standings, test_list
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.test_list import TestFilter

FILTERS = ("kernel", "search", "standing", "sort", ranges.PARAMETER)
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
    if given.get("standing") not in tuple(Kind):
        given.pop("standing", None)
    sort, kind = given.get("sort"), given.get("standing")
    chosen_kind = Kind(kind) if kind else None
    sort = sort if sort in test_list.SORTS else test_list.ATTENTION

    def address(name: str, value: str | None) -> str:
        return urls.catalogue({**given, name: value})

    period = ranges.of(given, now, lambda value: address(ranges.PARAMETER, value))
    start, in_days = period.since or now - standings.WINDOW, period.since is not None
    chosen = TestFilter(
        given.get("kernel"),
        given.get("search"),
        chosen_kind,
        period.since,
        standings.read(session, since=start, every_build=in_days),
    )
    page = test_list.list_(session, chosen, sort=sort, limit=limit, cursor=cursor or None)
    counts = test_list.counts(session, chosen)
    return TestsView(
        lines(session, page.items, chosen, now),
        given,
        tuple(
            Chip(
                each,
                each.label,
                each.mark,
                address("standing", None if each is chosen_kind else each),
                each is chosen_kind,
                (in_days and each.in_days) or each.sentence,
                counts[each],
            )
            for each in Kind
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
