"""The steps that a flag's third sentence advises, each with its button."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.tolerance_advice import Advice, of_false_alarm, with_tolerance
from gonogo_service.flags.store import Flag
from gonogo_service.gauges import store as gauges
from gonogo_service.kit.database.states import FlagKind

_GAUGED = frozenset(
    {
        FlagKind.passes_by_tolerance,
        FlagKind.blunt_test,
        FlagKind.tolerance_too_tight,
        FlagKind.latent_flake,
    }
)
"""Kinds that a gauge's advised tolerance settles, or whose test a gauge should measure."""
_OF_TEST = frozenset({FlagKind.flaky, FlagKind.nondeterministic, FlagKind.latent_flake})
_LOST = frozenset({FlagKind.hangs, FlagKind.crashes})
_OF_DEVICE = _LOST | {FlagKind.device_dependent}


def steps(session: Session, flag: Flag, test: Mapping[str, Any]) -> tuple[Advice, ...]:
    """Return the steps for a flag, the most urgent first; `test` is its test's canonical form."""
    key, kind = flag.test_key, flag.kind
    variant = {"branch": flag.branch, "arch": flag.arch, "board": flag.board}
    advice: list[Advice] = []
    if kind == FlagKind.passes_by_tolerance or kind in _LOST:
        what = "Show the worst seeds" if kind == FlagKind.passes_by_tolerance else "Show its log"
        advice.append(Advice(words.FLAG_ADVICE[kind], what, urls.job(flag.last_job)))
    if kind == FlagKind.fix_masked:
        advice += _between(key, flag, variant)
    if kind in _OF_TEST:
        advice.append(Advice(words.FLAG_ADVICE[kind], "Open the test", urls.history(key, variant)))
    if kind in _OF_DEVICE:
        text = "A device may be the cause: test it, or drain it."
        advice.append(Advice(text, "Open the devices", urls.devices()))
    if kind == FlagKind.context_dependent:
        form = urls.form(urls.NEW_BISECTION, {"test": key, "branch": flag.branch})
        advice.append(Advice(words.FLAG_ADVICE[kind], "Bisect this test", form))
    if kind in _GAUGED and test and "kernel" in test:
        advice += _tolerance(session, flag, test, variant)
    return tuple(advice)


def _between(key: str, flag: Flag, variant: Mapping[str, str]) -> list[Advice]:
    change = flag.evidence.get("figures", {}).get("change", {})
    before, after = change.get("before"), change.get("after")
    if not before or not after:
        return []
    span = {"branch": variant["branch"], "first": before, "last": after}
    return [
        Advice(
            words.FLAG_ADVICE[FlagKind.fix_masked],
            "Compare these builds",
            urls.compare(before, after),
        ),
        Advice(
            "A bisection finds the build that did it.",
            "Bisect between these builds",
            urls.form(urls.NEW_BISECTION, {"test": key, **span}),
        ),
    ]


def _tolerance(
    session: Session, flag: Flag, test: Mapping[str, Any], variant: Mapping[str, str]
) -> list[Advice]:
    last = gauges.last(session, flag.test_key, flag.branch, flag.arch, flag.board)
    advised = last.report.advice.tolerance if last is not None else {}
    advice = []
    if flag.kind == FlagKind.tolerance_too_tight:
        ratio = flag.evidence.get("statistics", {}).get("tolerance_ratio")
        advice.append(of_false_alarm(flag.test_key, test, advised, ratio))
    elif advised:
        advice.append(
            Advice(
                f"The gauge advises {spelled(advised)}.",
                "Submit with this tolerance",
                with_tolerance(flag.test_key, test, advised),
            )
        )
    if last is None:
        advice.append(
            Advice(
                "No gauge has measured whether this test would notice a wrong kernel.",
                "Gauge this test",
                urls.form(urls.NEW_GAUGE, {"test": flag.test_key, **variant}),
            )
        )
    elif flag.kind == FlagKind.blunt_test:
        advice.append(
            Advice("It lists the mutants that pass.", "Open the gauge", urls.gauge(last.gauge))
        )
    return advice
