"""The steps that a flag's third sentence advises, each with its button."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind, FlagStep
from gonogo.gauge.advice import spelled
from gonogo_dashboards.kit.advice import (
    Advice,
    of_false_alarm,
    to_bisect,
    to_gauge,
    with_tolerance,
)
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges import store as gauges
from gonogo_service.tests.variants import Variant


def steps(session: Session, flag: FlagRow, test: Mapping[str, Any]) -> Iterator[Advice]:
    """Yield the steps for a flag, the most urgent first; `test` is its test's canonical form."""
    place = Variant.of(flag).place
    bisection = {"test": flag.test_key, "branch": flag.branch}
    builds = (flag.evidence.get("rerun") or {}).get("builds", ())[:2]
    buttons = {
        FlagStep.seeds: ("Show the worst seeds", urls.job(flag.last_job)),
        FlagStep.log: ("Show its log", urls.job(flag.last_job)),
        FlagStep.test: ("Open the test", urls.history(flag.test_key, place)),
        FlagStep.bisect: ("Bisect this test", urls.form(urls.NEW_BISECTION, bisection)),
    }
    if len(builds) == 2:
        buttons[FlagStep.compare] = "Compare these builds", urls.compare(*builds)
    for step in flag.kind.steps:
        if step in buttons:
            yield Advice(flag.kind.advice, *buttons[step])
        elif step is FlagStep.devices:
            text = "A device may be the cause: test it, or drain it."
            yield Advice(text, "Open the devices", urls.devices())
        elif step is FlagStep.between and len(builds) == 2:
            yield to_bisect(flag.test_key, flag.branch, *builds)
        elif step is FlagStep.tolerance and "kernel" in test:
            yield from _tolerance(session, flag, test, place)


def _tolerance(
    session: Session, flag: FlagRow, test: Mapping[str, Any], place: Mapping[str, str]
) -> Iterator[Advice]:
    last = gauges.last(session, flag.test_key, flag.branch, flag.arch, flag.board)
    advised = last.report.advice.tolerance if last is not None else {}
    if flag.kind is FlagKind.tolerance_too_tight:
        ratio = flag.evidence.get("statistics", {}).get("tolerance_ratio")
        yield of_false_alarm(flag.test_key, test, advised, ratio)
    elif advised:
        form = with_tolerance(flag.test_key, test, advised)
        yield Advice(f"The gauge advises {spelled(advised)}.", "Submit with this tolerance", form)
    if last is None:
        yield to_gauge(flag.test_key, place)
    elif flag.kind.of_gauge:
        yield Advice("It lists the mutants that pass.", "Open the gauge", urls.gauge(last.gauge))
