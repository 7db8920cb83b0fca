"""Read models of the bisections' pages: the state of the search, its posterior, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.bisections.searches import Search, search
from gonogo_dashboards.kit import axis_events, commands, words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_view import ListView, list_of
from gonogo_service.bisections.api import BISECTIONS, LISTED, PROBE
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import axis_changes, entry_names
from gonogo_service.tests.axis_changes import AxisPlace

LATEST = 100
"""Runs that the page lists; the API has all."""


@dataclass(frozen=True)
class BisectionList(ListView):
    """A page of bisections, with the labels of their tests and the suites' names, by test key."""

    labels: Sequence[str]
    entries: Mapping[str, str]


@dataclass(frozen=True)
class BisectionView:
    """Everything on a bisection's page."""

    bisection: Mapping[str, Any]
    """As the API lists it"""
    searches: tuple[Search, ...]
    facts: tuple[tuple[str, str], ...]
    probes: Sequence[Mapping[str, Any]]
    """Its last runs, the latest first, as the API answers them"""
    at: str


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> BisectionList:
    """Return a page of bisections. Raises BadCursor."""
    page = list_of(BISECTIONS, urls.bisections)(session, query, cursor, limit, now)
    entries = entry_names.latest(session, {line["test_key"] for line in page.items})
    tests = [Listed(line["test"], entries.get(line["test_key"])) for line in page.items]
    return BisectionList(**vars(page), labels=labels(tests), entries=entries)


def one(session: Session, bisection_id: str, now: datetime) -> BisectionView | None:
    """Return a bisection's page; None where there is no such bisection."""
    row = BISECTIONS.get(session, bisection_id)
    if row is None:
        return None
    # Its test is one, so no tolerance changes between its builds.
    places = [
        AxisPlace((build,), tuple(probe.job for probe in row.probes if probe.place == place))
        for place, build in enumerate(row.builds)
    ]
    events = axis_events.of_builds(axis_changes.of_runs(session, {"": places})[""], row.builds)
    return BisectionView(
        bisection=rows.values(LISTED, row),
        searches=tuple(search(row, track, events) for track in row.tracks),
        facts=_facts(row),
        probes=[rows.values(PROBE, probe) for probe in reversed(row.probes[-LATEST:])],
        at=timestamp(now),
    )


def _facts(row: BisectionRow) -> tuple[tuple[str, str], ...]:
    return (
        ("builds", f"{len(row.builds)}, from {row.builds[0]} to {row.builds[-1]}"),
        ("compared by", f"{row.signal}: {row.signal.sentence}"),
        ("expected", row.expect.sentence),
        ("tolerance", commands.tolerance_words(row.test.get("tolerance", {}))),
        ("runs on", row.queue),
        ("maximum runs", f"{row.max_runs:,}"),
        ("requested", f"{words.moment(row.created_at)} by {row.owner}"),
    )
