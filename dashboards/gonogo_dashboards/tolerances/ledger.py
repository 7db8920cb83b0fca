"""Read models of the ledger of tolerances: how loose each is, as a bar, and the patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.slack import scaled
from gonogo.gauge.summary import Slack
from gonogo.settings import Settings
from gonogo.spec.tolerances import for_output
from gonogo_dashboards.kit import commands, comparators_view, list_rows, sparks, words
from gonogo_dashboards.kit.list_view import ListView, filters_of, list_view
from gonogo_service.gauges import store as gauges
from gonogo_service.suites import patches
from gonogo_service.suites.patches import Patches
from gonogo_service.tests import entry_names, test_list, tolerances
from gonogo_service.tests.api.tolerances import NOUN
from gonogo_service.tests.standings import WINDOW
from gonogo_service.tests.tolerances import Memory, Week

_LEAST = 0.8
"""The smallest part of a bar, in percent, that one sees."""
Line = Mapping[str, Any]
"""The fields of a ToleranceLine."""


@dataclass(frozen=True)
class LedgerView(ListView):
    """A page of the ledger."""

    entries: Mapping[str, str]
    """The suites' names of the tests, by key"""
    limits: Mapping[str, list[str]]
    """The faults that the seeds of a test without a gauge could not have shown, by key"""
    weeks: tuple[Week, ...]
    bars: tuple[sparks.Bar, ...]
    patchable: tuple[str, ...]
    """The tests on the page that have an advised tolerance, and that a suite ran"""


@dataclass(frozen=True)
class Bar:
    """The parts of a bar in percent of its width; 0 is no error, `declared` the tolerance."""

    declared: float
    needed: float
    advised: float | None
    passing: float | None


@dataclass(frozen=True)
class PatchView:
    """The patches of the suites that have the selected tests."""

    patches: Patches
    names: Mapping[str, str]
    """The tests' titles, by key"""
    advised: Mapping[str, str]
    """The tolerances that their gauges advise, by key"""


def listed(
    memory: Memory,
    session: Session,
    query: Mapping[str, str],
    cursor: str | None,
    limit: int,
    now: datetime,
) -> LedgerView:
    """Return the list; `memory` is that of the weeks."""
    given = filters_of(query, NOUN.filters)
    gauged = gauges.slacks(session)
    about: Mapping[str, Any] = {"since": now - WINDOW, "limit": limit, "cursor": cursor, **given}
    page = tolerances.page(session, gauged, **about)
    weeks = tuple(tolerances.weeks(session, gauged, memory, now))
    view = list_view(page, dict, urls.tolerances, now, given)
    entries = entry_names.latest(session, {line.key for line in page.items})
    return LedgerView(
        **vars(view),
        entries=entries,
        limits=tolerances.detection_limits(session, page.items),
        weeks=weeks,
        bars=sparks.bars([(week.median or 0.0, _sentence(week), False) for week in weeks]),
        patchable=tuple(
            line["key"] for line in view.items if is_advised(line) and line["key"] in entries
        ),
    )


def patch(session: Session, settings: Settings, keys: Sequence[str]) -> PatchView:
    """Return the patches that give these tests their advised tolerances."""
    few = keys[: urls.MAX_LENGTH]
    specs = test_list.specs(session, few)
    names = {key: list_rows.title_of(test) for key, test in specs.items()}
    advised = {
        key: commands.tolerance_words(advice)
        for key, gauged in gauges.slacks(session, few).items()
        if (advice := {one.output: one.advice for one in gauged.slack if one.advice})
    }
    return PatchView(patches.of_tests(session, settings, few), names, advised)


def _sentence(week: Week) -> str:
    days = f"{week.first:%b} {week.first.day} to {week.last:%b} {week.last.day}"
    if week.median is None:
        return f"{days}: no gauged test ran"
    return f"{days}: {times(week.median)}, {words.count(week.tests, 'test')}"


def is_advised(line: Line) -> bool:
    """Return whether a gauge advises a tolerance for a test."""
    return any(one.advice for one in line["outputs"])


def strongest(line: Line) -> Slack | None:
    """Return the output on which the strongest fault passes; None for no fault beyond rounding."""
    passing = [one for one in line["outputs"] if one.passing is not None]
    return max(passing, key=lambda one: one.passing or 0.0, default=None)


def times(factor: float) -> str:
    """Return a slack for reading: "38×"."""
    return f"{words.number(factor, 2)}×"


def label(line: Line) -> str:
    """Return the slack of a line in words."""
    if not line["outputs"]:
        return "Not known"
    slack = line["slack"]
    if slack is None:
        return "Right kernels have no error"
    return f"{times(slack)} loose" if slack >= 1 else "Too tight"


def outputs(line: Line) -> str:
    """Return the output with the largest slack, and those of the others: "dx; dgamma 6.5×"."""
    factors = [(one.output, one.factor or 0.0) for one in line["outputs"]]
    names = [
        f"{name} {'too tight' if factor < 1 else times(factor)}" for name, factor in factors[1:]
    ]
    return "; ".join([*(name for name, _ in factors[:1]), *([", ".join(names)] if names else [])])


def bar(slack: Slack) -> Bar:
    """Return the bar of an output's slack; a need beyond the tolerance makes it longer."""
    whole = max(1.0, slack.needed or 0.0)

    def at(error: float | None) -> float | None:
        return None if error is None else round(100 * min(error / whole, 1.0), 2)

    needed = max(at(slack.needed) or 0.0, _LEAST)
    return Bar(round(100 / whole, 2), needed, at(slack.advised), at(slack.passing))


def in_words(test: Mapping[str, Any], slack: Slack, error: float | None) -> str:
    """Return a share of the declared error as the tolerance that allows it: "atol 0.013"."""
    declared = for_output(test.get("tolerance", {}), slack.output)
    if declared is None or error is None:
        return ""
    limits = scaled(slack.comparator, declared, error)
    return ", ".join(
        f"PCC {comparators_view.pcc(1 - value)}"
        if name == "pcc"
        else f"{name} {words.number(value)}"
        for name, value in limits.items()
        if value or len(limits) == 1
    )
