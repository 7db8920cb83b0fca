"""The steps that a flag's third sentence advises, each with its button."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind, Step
from gonogo.gauge.advice import spelled
from gonogo_dashboards.kit.tolerance_advice import Advice, of_false_alarm, with_tolerance
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges import store as gauges


@dataclass(frozen=True)
class _Case:
    session: Session
    flag: FlagRow
    test: Mapping[str, Any]
    """The canonical form of its test"""

    @property
    def variant(self) -> dict[str, str]:
        """Return the branch, architecture and board."""
        return {"branch": self.flag.branch, "arch": self.flag.arch, "board": self.flag.board}


def steps(session: Session, flag: FlagRow, test: Mapping[str, Any]) -> tuple[Advice, ...]:
    """Return the steps for a flag, the most urgent first; `test` is its test's canonical form."""
    case = _Case(session, flag, test)
    return tuple(advice for step in flag.kind.steps for advice in _STEPS[step](case))


def _seeds(case: _Case) -> Iterator[Advice]:
    flag = case.flag
    yield Advice(flag.kind.advice, "Show the worst seeds", urls.job(flag.last_job))


def _log(case: _Case) -> Iterator[Advice]:
    yield Advice(case.flag.kind.advice, "Show its log", urls.job(case.flag.last_job))


def _test(case: _Case) -> Iterator[Advice]:
    page = urls.history(case.flag.test_key, case.variant)
    yield Advice(case.flag.kind.advice, "Open the test", page)


def _devices(_case: _Case) -> Iterator[Advice]:
    text = "A device may be the cause: test it, or drain it."
    yield Advice(text, "Open the devices", urls.devices())


def _bisect(case: _Case) -> Iterator[Advice]:
    form = {"test": case.flag.test_key, "branch": case.flag.branch}
    page = urls.form(urls.NEW_BISECTION, form)
    yield Advice(case.flag.kind.advice, "Bisect this test", page)


def _builds(case: _Case) -> Iterator[Advice]:
    flag = case.flag
    change = flag.evidence.get("figures", {}).get("change", {})
    before, after = change.get("before"), change.get("after")
    if before and after:
        yield Advice(flag.kind.advice, "Compare these builds", urls.compare(before, after))
        span = {"branch": flag.branch, "first": before, "last": after}
        form = urls.form(urls.NEW_BISECTION, {"test": flag.test_key, **span})
        text = "A bisection finds the build that did it."
        yield Advice(text, "Bisect between these builds", form)


def _tolerance(case: _Case) -> Iterator[Advice]:
    flag, test = case.flag, case.test
    if not test or "kernel" not in test:
        return
    last = gauges.last(case.session, flag.test_key, flag.branch, flag.arch, flag.board)
    advised = last.report.advice.tolerance if last is not None else {}
    if flag.kind is FlagKind.tolerance_too_tight:
        ratio = flag.evidence.get("statistics", {}).get("tolerance_ratio")
        yield of_false_alarm(flag.test_key, test, advised, ratio)
    elif advised:
        form = with_tolerance(flag.test_key, test, advised)
        yield Advice(f"The gauge advises {spelled(advised)}.", "Submit with this tolerance", form)
    if last is None:
        text = "No gauge has measured whether this test would notice a wrong kernel."
        form = urls.form(urls.NEW_GAUGE, {"test": flag.test_key, **case.variant})
        yield Advice(text, "Gauge this test", form)
    elif flag.kind.of_gauge:
        yield Advice("It lists the mutants that pass.", "Open the gauge", urls.gauge(last.gauge))


_STEPS: Mapping[Step, Callable[[_Case], Iterator[Advice]]] = {
    Step.seeds: _seeds,
    Step.log: _log,
    Step.test: _test,
    Step.devices: _devices,
    Step.bisect: _bisect,
    Step.builds: _builds,
    Step.tolerance: _tolerance,
}
