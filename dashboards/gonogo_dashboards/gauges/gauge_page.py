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
from gonogo_dashboards.kit.list_rows import details_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_dashboards.kit.tolerance_advice import with_tolerance
from gonogo_service.builds import entry_names
from gonogo_service.gauges import store as stored
from gonogo_service.gauges.store import Gauge, GaugeSummary
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object

FILTERS = ("test", "state", "sharpness")
SENTENCES: Mapping[str, str] = {
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
    """Return a page of gauges that match the filters (FILTERS; empty values are ignored).

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = stored.list_(session, **given, limit=limit, cursor=cursor or None)
    entries = entry_names.latest(session, {gauge.test_key for gauge in page.items})
    return list_view(
        page,
        lambda gauge: _line(gauge, now, entries.get(gauge.test_key)),
        urls.gauges,
        now,
        given,
    )


def one(
    session: Session, gauge_id: str, query: Mapping[str, str], now: datetime
) -> GaugeView | None:
    """Return a gauge's page; None where there is no such gauge.

    The query chooses its curves (curves.CHOICES).
    """
    gauge = stored.get(session, gauge_id)
    if gauge is None:
        return None
    line = _line(gauge, now)
    return GaugeView(
        gauge=line,
        sentence=SENTENCES.get(gauge.sharpness or "", ""),
        test=gauge.test,
        test_key=gauge.test_key,
        facts=_facts(gauge),
        report=None if gauge.report is None else report_rows.read(gauge.report),
        picture=curves.read(session, gauge, query),
        links={
            "self": line.url,
            "json_url": urls.gauge(
                gauge_id, {name: query.get(name) for name in curves.CHOICES}, as_json=True
            ),
            "history": urls.history(gauge.test_key),
            "test": urls.gauges({"test": gauge.test_key}),
            "cancel": urls.cancel_gauge(gauge_id),
        },
        submit_url=with_tolerance(gauge.test_key, gauge.test, gauge.report.advice.tolerance)
        if gauge.report is not None and gauge.report.advice.tolerance
        else "",
        at=timestamp(now),
    )


def _line(gauge: GaugeSummary, now: datetime, entry: str | None = None) -> GaugeLine:
    test = gauge.test
    return from_object(
        GaugeLine,
        gauge,
        gauge.target,
        url=urls.gauge(gauge.id),
        shape=words.shape(test.get("shape", ())),
        tolerance=commands.tolerance_words(test.get("tolerance", {})),
        details=details_of(test, entry),
        state_words=words.STATES.get(gauge.state, gauge.state.value),
        final=gauge.state.final,
        looks=words.GRADES.get(gauge.sharpness or ""),
        words=gauge.words or "",
        created_at=timestamp(gauge.created_at),
        age=words.since(gauge.created_at, now),
    )


def _facts(gauge: Gauge) -> tuple[tuple[str, str], ...]:
    test, seeds = gauge.test, gauge.seeds
    facts = [
        ("kernel", gauge.kernel),
        ("shape", words.shape(test.get("shape", ()))),
        ("tolerance", commands.tolerance_words(test.get("tolerance", {}))),
        ("inputs", commands.plain(test.get("inputs")) or "uniform −1 … 1"),
        ("numerics", commands.plain(test.get("numerics")) or "bf16, fp32 accumulation, HiFi4"),
        *(
            (name, commands.plain(test[name]))
            for name in ("epsilon", "memory", "program")
            if name in test
        ),
        (
            "branch and board",
            f"{gauge.branch} on {gauge.target.arch} · {gauge.target.board}",
        ),
        ("seeds", f"{seeds[0]} … {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]} (one)"),
        ("requested", f"{gauge.created_at:%Y-%m-%d %H:%M:%S} UTC by {gauge.owner}"),
    ]
    return tuple(facts)
