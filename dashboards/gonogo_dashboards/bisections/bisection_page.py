"""Read models of the bisections' pages: the state of the search, its posterior, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.bisections.searches import Search, search
from gonogo_dashboards.kit import axis_events, commands, words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.bisections import store
from gonogo_service.bisections.api import BISECTIONS
from gonogo_service.bisections.model import LABEL, BisectionRow, FoundChange
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import axis_changes
from gonogo_service.tests.axis_changes import AxisPlace

FILTERS = ("test", "state")
LATEST = 100
"""Runs that the page lists; the API has all."""


@dataclass(frozen=True)
class BisectionLine:
    """A bisection in a list."""

    id: str
    url: str
    title: str
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    first: str
    last: str
    builds: int
    state: str
    state_words: str
    final: bool
    runs: int
    words: str
    created_at: str | None
    age: str


@dataclass(frozen=True)
class ProbeLine:
    """A run of a build."""

    number: int
    build: str
    seed: int
    url: str
    ended: bool
    verdict: str | None


@dataclass(frozen=True)
class BisectionView:
    """Everything on a bisection's page."""

    bisection: BisectionLine
    searches: tuple[Search, ...]
    findings: tuple[FoundChange, ...]
    facts: tuple[tuple[str, str], ...]
    probes: tuple[ProbeLine, ...]
    error: str | None
    version: int
    links: Mapping[str, str]
    at: str | None


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of bisections. Raises BadCursor."""
    filters = {name: query[name] for name in FILTERS if query.get(name)}
    page = BISECTIONS.page(session, **filters, limit=limit, cursor=cursor)
    entries = entry_names.latest(session, {row.test_key for row in page.items})
    tests = [Listed(row.test, entries.get(row.test_key), _title(row.test)) for row in page.items]
    titles = dict(zip((row.id for row in page.items), labels(tests), strict=True))

    def line(row: BisectionRow) -> BisectionLine:
        return _line(row, now, entries.get(row.test_key), titles[row.id])

    return list_view(page, line, urls.bisections, now, filters)


def one(session: Session, bisection_id: str, now: datetime) -> BisectionView | None:
    """Return a bisection's page; None where there is no such bisection."""
    row = store.get(session, bisection_id)
    if row is None:
        return None
    entries = entry_names.latest(session, [row.test_key])
    # Its test is one, so no tolerance changes between its builds.
    places = [
        AxisPlace((build,), tuple(probe.job for probe in row.probes if probe.place == place))
        for place, build in enumerate(row.builds)
    ]
    events = axis_events.of_builds(axis_changes.of_runs(session, {"": places})[""], row.builds)
    return BisectionView(
        bisection=_line(row, now, entries.get(row.test_key), _title(row.test)),
        searches=tuple(search(row, track, events) for track in row.tracks),
        findings=tuple(row.findings),
        facts=_facts(row),
        probes=tuple(
            ProbeLine(
                probe.number,
                row.builds[probe.place],
                probe.seed,
                urls.job(probe.job),
                probe.ended,
                probe.verdict,
            )
            for probe in reversed(row.probes[-LATEST:])
        ),
        error=row.error,
        version=row.version,
        links={
            "cancel": urls.cancel_bisection(row.id),
            "events": urls.bisection_events(row.id),
            "jobs": urls.jobs({"label": f"{LABEL}={row.id}"}),
            "test": urls.history(row.test_key),
        },
        at=timestamp(now),
    )


def _title(test: Mapping[str, Any]) -> str:
    """Return kernel and shape of a test, or the suite of a selection."""
    if "shape" in test:
        return f"{test['kernel']} {words.shape(test['shape'])}"
    return f"suite {(test.get('selection') or {}).get('suite', '')}"


def _line(row: BisectionRow, now: datetime, entry: str | None, title: str) -> BisectionLine:
    return BisectionLine(
        id=row.id,
        url=urls.bisection(row.id),
        title=title,
        tolerance=commands.tolerance_words(row.test.get("tolerance", {})),
        details=details_of(row.test, entry),
        first=row.builds[0],
        last=row.builds[-1],
        builds=len(row.builds),
        state=row.state.value,
        state_words=row.state.label,
        final=row.state.final,
        runs=row.runs,
        words=row.words or "",
        created_at=timestamp(row.created_at),
        age=words.ago((now - row.created_at).total_seconds()),
    )


def _facts(row: BisectionRow) -> tuple[tuple[str, str], ...]:
    return (
        ("builds", f"{len(row.builds)}, from {row.builds[0]} to {row.builds[-1]}"),
        ("compared by", f"{row.signal}: {row.signal.sentence}"),
        ("expected", row.expect.sentence),
        ("tolerance", commands.tolerance_words(row.test.get("tolerance", {}))),
        ("runs on", row.queue),
        ("maximum runs", f"{row.max_runs:,}"),
        ("requested", f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC by {row.owner}"),
    )
