"""Read models of the gauges' pages: what a test lets pass and stops, its windows, and the tolerance that it should have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from dashboards import commands, urls, words
from gonogo.gauge.advice import spelt
from gonogo.gauge.gates import GATES
from gonogo.gauge.report import Sharpness
from gonogo.verdicts import Verdict
from storage import gauges as stored
from storage.encoding import encode, timestamp
from storage.states import JobState

FILTERS = ("test", "state", "sharpness")
LOOKS: Mapping[str, str] = {
    Sharpness.sharp: Verdict.pass_,
    Sharpness.blunt: Verdict.pass_by_tolerance,
    Sharpness.unmeasured: Verdict.no_information,
}
"""The verdict whose shape and colour a sharpness takes."""
SENTENCES: Mapping[str, str] = {
    Sharpness.sharp: "Every known-wrong kernel that can show failed on every seed.",
    Sharpness.blunt: "Known-wrong kernels pass this test.",
    Sharpness.unmeasured: "No known-wrong kernel could show with these inputs.",
}


@dataclass(frozen=True)
class GaugeLine:
    """A gauge in a list."""

    id: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    line: str
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
class GaugesView:
    """A page of the list of gauges."""

    items: tuple[GaugeLine, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    at: str | None


@dataclass(frozen=True)
class RateLine:
    """A count with its 95% interval."""

    count: int
    of: int
    words: str


@dataclass(frozen=True)
class PartLine:
    """A kernel: a right one with its false alarms, a wrong one with its misses."""

    name: str
    sentence: str
    right: bool
    rate: RateLine
    hidden: int
    """Seeds on which a wrong one can't show with these inputs."""
    unexplained: RateLine | None
    """How often rounding doesn't explain it: what GoNoGo sees whatever the tolerance."""
    broken: int
    """Runs without numbers."""
    looks: str


@dataclass(frozen=True)
class EdgeLine:
    """One output in the window of a comparator."""

    output: str
    lower: float | None
    observed: float | None
    tail: float | None
    upper: float | None


@dataclass(frozen=True)
class WindowLine:
    """A comparator: its edges, whether one of its tolerances works, what passes at its lower edge, and that tolerance."""

    comparator: str
    works: bool
    edges: tuple[EdgeLine, ...]
    missed: tuple[str, ...]
    tolerance: str


@dataclass(frozen=True)
class ElsewhereLine:
    """Other inputs that were tried: the tolerance advised there, and what it rejects that none does here."""

    name: str
    sentence: str
    inputs: str
    works: bool
    tolerance: str
    words: str
    gains: tuple[str, ...]
    loses: tuple[str, ...]


@dataclass(frozen=True)
class GateLine:
    """The gate of a public suite on the same runs."""

    name: str
    sentence: str
    alarms: RateLine
    rejected: int
    of: int
    missed: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """The report of a gauge that is over."""

    alarms: RateLine
    predicted: float | None
    misses: RateLine
    parts: tuple[PartLine, ...]
    advice: str
    works: bool
    advised: str
    """The advised tolerance as JSON for a test's spec; "" for none."""
    elsewhere: tuple[ElsewhereLine, ...]
    beyond: str
    windows: tuple[WindowLine, ...]
    gates: tuple[GateLine, ...]
    command: str
    leaves_out: tuple[str, ...]


@dataclass(frozen=True)
class GaugeView:
    """Everything of a gauge's page."""

    gauge: GaugeLine
    sentence: str
    test: Mapping[str, Any]
    test_key: str
    facts: tuple[tuple[str, str], ...]
    found: Findings | None
    links: Mapping[str, str]
    at: str | None


def listed(session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime) -> GaugesView:
    """A page of the gauges that match the filters (FILTERS; empty values don't count). Raises storage.paging.BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = stored.list_(session, **given, limit=limit, cursor=cursor or None)
    following = urls.gauges(given, cursor=page.next) if page.next else None
    return GaugesView(tuple(_line(each, now) for each in page.items), given, page.next, following, timestamp(now))


def one(session: Session, gauge_id: str, now: datetime) -> GaugeView | None:
    """A gauge's page; None when there is no such gauge."""
    gauge = stored.get(session, gauge_id)
    if gauge is None:
        return None
    line = _line(gauge, now)
    return GaugeView(
        gauge=line,
        sentence=SENTENCES.get(gauge["sharpness"] or "", ""),
        test=gauge["test"],
        test_key=gauge["test_key"],
        facts=_facts(gauge),
        found=None if gauge["report"] is None else _findings(gauge["report"]),
        links={
            "self": line.url,
            "twin": urls.gauge(gauge_id, twin=True),
            "test": urls.gauges({"test": gauge["test_key"]}),
            "cancel": urls.cancel_gauge(gauge_id),
        },
        at=timestamp(now),
    )


def _line(gauge: Mapping[str, Any], now: datetime) -> GaugeLine:
    test, state = gauge["test"], JobState(gauge["state"])
    return GaugeLine(
        **{name: gauge[name] for name in ("id", "kernel", "state", "done", "total", "waiting_reason", "error", "sharpness", "created_at")},
        url=urls.gauge(gauge["id"]),
        shape=words.shape(test.get("shape", ())),
        tolerance=commands.tolerance_words(test.get("tolerance", {})),
        line=gauge["build_line"],
        arch=gauge["target"]["arch"],
        board=gauge["target"]["board"],
        state_words=words.STATES.get(state, state.value),
        final=state.final,
        looks=LOOKS.get(gauge["sharpness"] or ""),
        words=gauge["words"] or "",
        age=words.ago((now - datetime.fromisoformat(gauge["created_at"])).total_seconds()),
    )


def _facts(gauge: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    test, seeds = gauge["test"], gauge["seeds"]
    facts = [
        ("kernel", gauge["kernel"]),
        ("shape", words.shape(test.get("shape", ()))),
        ("tolerance", commands.tolerance_words(test.get("tolerance", {}))),
        ("inputs", commands.plain(test.get("inputs")) or "uniform −1 … 1"),
        ("numerics", commands.plain(test.get("numerics")) or "bf16, fp32 accumulation, HiFi4"),
        *((name, commands.plain(test[name])) for name in ("epsilon", "memory", "program") if name in test),
        ("graded as", f"{gauge['build_line']} on {gauge['target']['arch']} · {gauge['target']['board']}"),
        ("seeds", f"{seeds[0]} … {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]} (one)"),
        ("asked for", f"{gauge['created_at'][:19].replace('T', ' ')} UTC by {gauge['owner']}"),
    ]
    return tuple(facts)


def _findings(report: Mapping[str, Any]) -> Findings:
    advice = report["advice"]
    return Findings(
        alarms=_rate(report["false_alarms"]),
        predicted=report["false_alarms"]["predicted"],
        misses=_rate(report["misses"]),
        parts=tuple(_parts(report)),
        advice=advice["words"],
        works=advice["works"],
        advised=encode(advice["tolerance"]) if advice["tolerance"] else "",
        elsewhere=tuple(_elsewhere(each) for each in report["elsewhere"]),
        beyond=report["beyond"],
        windows=tuple(_window(each) for each in report["windows"]),
        gates=tuple(_gate(name, each) for name, each in report["gates"].items()),
        command=report["command"]["line"],
        leaves_out=tuple(report["command"]["leaves_out"]),
    )


def _rate(found: Mapping[str, Any]) -> RateLine:
    count, of = int(found["count"]), int(found["of"])
    return RateLine(count, of, f"{count:,} of {of:,} [{found['low']:.1%}, {found['high']:.1%}]" if of else "–")


def _parts(report: Mapping[str, Any]) -> list[PartLine]:
    """Right ones, then wrong ones: those that pass first, then those that can't show last."""
    sentences, broken = report["sentences"], report["broken"]
    lines = []
    for name, rate in report["false_alarms"]["parts"].items():
        looks = Verdict.fail_by_tolerance if rate["count"] else Verdict.pass_
        lines.append(PartLine(name, sentences.get(name, ""), True, _rate(rate), 0, None, broken.get(name, 0), looks))
    wrong = []
    for name, rate in report["misses"]["parts"].items():
        looks = Verdict.no_information if not rate["of"] else Verdict.pass_by_tolerance if rate["count"] else Verdict.fail
        seen = _rate(rate["unexplained"])
        wrong.append(PartLine(name, sentences.get(name, ""), False, _rate(rate), rate["cannot_show"], seen, broken.get(name, 0), looks))
    wrong.sort(key=lambda part: (not part.rate.of, -part.rate.count / max(part.rate.of, 1)))
    silent = [name for name in broken if name not in {line.name for line in (*lines, *wrong)}]
    gone = [PartLine(name, "", False, RateLine(0, 0, "–"), 0, None, broken[name], Verdict.error) for name in silent]
    return lines + wrong + gone


def _window(window: Mapping[str, Any]) -> WindowLine:
    rtol = window["rtol"]
    return WindowLine(
        comparator=window["comparator"] if rtol is None else f"{window['comparator']}, rtol {rtol:g}",
        works=window["works"],
        edges=tuple(
            EdgeLine(output, edge["lower"], edge["observed"], edge["tail"], edge["upper"]) for output, edge in window["outputs"].items()
        ),
        missed=tuple(window["missed"]),
        tolerance="" if window["tolerance"] is None else spelt(window["tolerance"]),
    )


def _elsewhere(tried: Mapping[str, Any]) -> ElsewhereLine:
    advice = tried["advice"]
    return ElsewhereLine(
        name=tried["name"],
        sentence=tried["sentence"],
        inputs=encode(tried["inputs"]),
        works=advice["works"],
        tolerance=spelt(advice["tolerance"]) or "–",
        words=advice["words"],
        gains=tuple(tried["gains"]),
        loses=tuple(tried["loses"]),
    )


def _gate(name: str, gate: Mapping[str, Any]) -> GateLine:
    known = GATES.get(name)
    rejected, missed = gate["rejected"], gate["missed"]
    return GateLine(
        name, known.sentence if known else name, _rate(gate["false_alarms"]), len(rejected), len(rejected) + len(missed), tuple(missed)
    )
