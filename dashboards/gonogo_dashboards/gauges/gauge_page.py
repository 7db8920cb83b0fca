"""Read models of the gauges' pages: what passes a test, its windows, and the advised tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo_dashboards.gauges import curves, report_rows
from gonogo_dashboards.gauges.curves import Picture
from gonogo_dashboards.gauges.report_rows import ReportView
from gonogo_dashboards.kit import commands, words
from gonogo_dashboards.kit.advice import with_tolerance
from gonogo_dashboards.kit.list_view import ListView, list_of
from gonogo_service.gauges import store
from gonogo_service.gauges.api import GAUGES, LISTED
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.gauges.store import GaugedSlack
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import entry_names

SENTENCES: Mapping[Sharpness | None, str] = {
    Sharpness.sharp: "Every mutant whose fault can show failed on every seed.",
    Sharpness.blunt: "Some mutants (known-wrong kernels) pass this test.",
    Sharpness.unmeasured: "No mutant's fault could show with these inputs.",
}


@dataclass(frozen=True)
class GaugeList(ListView):
    """A page of gauges; `entries` are the suites' names of their tests, by key."""

    entries: Mapping[str, str]
    slacks: Mapping[str, GaugedSlack | None]
    """By gauge"""


@dataclass(frozen=True)
class GaugeView:
    """Everything on a gauge's page."""

    gauge: Mapping[str, Any]
    """As the API lists it"""
    sentence: str
    facts: tuple[tuple[str, str], ...]
    report: ReportView | None
    slack: GaugedSlack | None
    picture: Picture | None
    """Rates over the tolerance; None before the end, and where no comparator bounds an error."""
    submit_url: str
    """The form of a job with the advised tolerance; "" where none is advised."""
    at: str


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> GaugeList:
    """Return a page of gauges that match the filters. Raises BadCursor."""
    page = list_of(GAUGES, urls.gauges)(session, query, cursor, limit, now)
    entries = entry_names.latest(session, {line["test_key"] for line in page.items})
    slacks = store.of_gauges(session, [line["id"] for line in page.items])
    return GaugeList(**vars(page), entries=entries, slacks=slacks)


def one(
    session: Session, gauge_id: str, query: Mapping[str, str], now: datetime
) -> GaugeView | None:
    """Return a gauge's page; None where there is no such gauge.

    The query chooses its curves: `comparator`, and the output `of` which they are.
    """
    row = GAUGES.get(session, gauge_id)
    if row is None:
        return None
    report = row.report
    advised = None if report is None else report.advice.tolerance
    return GaugeView(
        gauge=rows.values(LISTED, row),
        sentence=SENTENCES.get(row.sharpness, ""),
        facts=_facts(row),
        report=None if report is None else report_rows.read(report),
        slack=GaugedSlack.of(row),
        picture=curves.read(session, row, query),
        submit_url=with_tolerance(row.test_key, row.test, advised) if advised else "",
        at=timestamp(now),
    )


def _facts(row: GaugeRow) -> tuple[tuple[str, str], ...]:
    seeds = row.seeds
    return (
        *commands.facts_of(row.test),
        ("branch and board", f"{row.branch} on {row.arch} · {row.board}"),
        ("seeds", f"{seeds[0]} … {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]} (one)"),
        ("requested", f"{words.moment(row.created_at)} by {row.owner}"),
    )
