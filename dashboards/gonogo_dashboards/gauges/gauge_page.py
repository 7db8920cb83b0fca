"""Read models of the gauges' pages: what passes a test, its windows, and the advised tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo_dashboards.gauges import chosen_curves, report_rows
from gonogo_dashboards.gauges.curves import Picture
from gonogo_dashboards.gauges.report_rows import ReportView
from gonogo_dashboards.kit import commands, words
from gonogo_dashboards.kit.list_rows import details_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_dashboards.kit.tolerance_advice import with_tolerance
from gonogo_service.builds import entry_names
from gonogo_service.gauges import store
from gonogo_service.gauges.api import GAUGES
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.kit.database.encoding import timestamp

FILTERS = ("test", "state", "sharpness")
SENTENCES: Mapping[Sharpness | None, str] = {
    Sharpness.sharp: "Every mutant whose fault can show failed on every seed.",
    Sharpness.blunt: "Some mutants (known-wrong kernels) pass this test.",
    Sharpness.unmeasured: "No mutant's fault could show with these inputs.",
}


@dataclass(frozen=True)
class GaugeLine:
    """A gauge in a list."""

    id: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    branch: str
    arch: str
    board: str
    state: str
    state_words: str
    final: bool
    done: int
    total: int
    waiting_reason: str | None
    error: str | None
    sharpness: str | None
    looks: str | None
    words: str
    created_at: str | None
    age: str


@dataclass(frozen=True)
class GaugeView:
    """Everything on a gauge's page."""

    gauge: GaugeLine
    sentence: str
    test: Mapping[str, Any]
    test_key: str
    facts: tuple[tuple[str, str], ...]
    report: ReportView | None
    picture: Picture | None
    """Rates over the tolerance; None before the end, and where no comparator bounds an error."""
    links: Mapping[str, str]
    submit_url: str
    """The form of a job with the advised tolerance; "" where none is advised."""
    at: str | None


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of gauges that match the filters. Raises BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = GAUGES.page(session, **given, limit=limit, cursor=cursor or None)
    entries = entry_names.latest(session, {row.test_key for row in page.items})
    return list_view(
        page, lambda row: _line(row, now, entries.get(row.test_key)), urls.gauges, now, given
    )


def one(
    session: Session, gauge_id: str, query: Mapping[str, str], now: datetime
) -> GaugeView | None:
    """Return a gauge's page; None where there is no such gauge.

    The query chooses its curves (chosen_curves.CHOICES).
    """
    row = store.get(session, gauge_id)
    if row is None:
        return None
    report, chosen = row.report, {name: query.get(name) for name in chosen_curves.CHOICES}
    advised = None if report is None else report.advice.tolerance
    return GaugeView(
        gauge=_line(row, now),
        sentence=SENTENCES.get(row.sharpness, ""),
        test=row.test,
        test_key=row.test_key,
        facts=_facts(row),
        report=None if report is None else report_rows.read(report),
        picture=chosen_curves.read(session, row, query),
        links={
            "self": urls.gauge(row.id),
            "json_url": urls.gauge(row.id, chosen, as_json=True),
            "history": urls.history(row.test_key),
            "test": urls.gauges({"test": row.test_key}),
            "cancel": urls.cancel_gauge(row.id),
        },
        submit_url=with_tolerance(row.test_key, row.test, advised) if advised else "",
        at=timestamp(now),
    )


def _line(row: GaugeRow, now: datetime, entry: str | None = None) -> GaugeLine:
    test = row.test
    return GaugeLine(
        id=row.id,
        url=urls.gauge(row.id),
        kernel=row.kernel,
        shape=words.shape(test.get("shape", ())),
        tolerance=commands.tolerance_words(test.get("tolerance", {})),
        details=details_of(test, entry),
        branch=row.branch,
        arch=row.arch,
        board=row.board,
        state=row.state.value,
        state_words=row.state.label,
        final=row.state.final,
        done=row.done,
        total=row.total,
        waiting_reason=row.waiting_reason,
        error=row.error,
        sharpness=row.sharpness,
        looks=None if row.sharpness is None else words.GRADES[row.sharpness].mark,
        words=row.words or "",
        created_at=timestamp(row.created_at),
        age=words.since(row.created_at, now),
    )


def _facts(row: GaugeRow) -> tuple[tuple[str, str], ...]:
    test, seeds = row.test, row.seeds
    others = [name for name in ("epsilon", "memory", "program") if name in test]
    return (
        ("kernel", row.kernel),
        ("shape", words.shape(test.get("shape", ()))),
        ("tolerance", commands.tolerance_words(test.get("tolerance", {}))),
        ("inputs", commands.plain(test.get("inputs")) or "uniform −1 … 1"),
        ("numerics", commands.plain(test.get("numerics")) or "bf16, fp32 accumulation, HiFi4"),
        *((name, commands.plain(test[name])) for name in others),
        ("branch and board", f"{row.branch} on {row.arch} · {row.board}"),
        ("seeds", f"{seeds[0]} … {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]} (one)"),
        ("requested", f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC by {row.owner}"),
    )
