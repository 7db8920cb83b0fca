"""The choice of a gauge's curves: of which comparator and output, and what else has a window.

The runs are read again, so any comparator can be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo.gauge.comparators import Comparator
from gonogo.gauge.curves import curves
from gonogo.gauge.report import with_numbers
from gonogo.gauge.summary import GaugeReport, WindowSummary
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.gauges.curves import ALL, Choice, Picture, Today, picture
from gonogo_service.gauges import gauge_rows
from gonogo_service.gauges.model import GaugeRow

CHOICES = ("comparator", "of")
NAMES: Mapping[str, str] = {
    "allclose": "atol",
    "pcc": "1 − PCC",
    "frobenius": "relative Frobenius error",
    "ulp": "distance in ulps",
}


def read(session: Session, gauge: GaugeRow, query: Mapping[str, str]) -> Picture | None:
    """Return the chart of a gauge.

    None before its report, where no comparator bounds a right kernel's error, or nothing ran.
    """
    report = gauge.report
    windows = [] if report is None else [window for window in report.windows if window.outputs]
    if report is None or not windows:
        return None
    chosen = _chosen(windows, gauge.test, query.get("comparator", ""))
    comparator, names = chosen.comparison, list(chosen.outputs)
    of = query["of"] if query.get("of") in names and len(names) > 1 else ALL
    outputs = names if of == ALL else [of]
    rows = with_numbers(gauge_rows.on_test_inputs(session, gauge))
    go = [row for row in rows if row["kind"] == "go"]
    able = [row for row in rows if row["kind"] == "no_go" and row.get("able")]
    rates = curves(comparator, go, able, outputs)
    if not rates.steps:
        return None

    def choices(name: str, works: Mapping[str, bool], now: str) -> tuple[Choice, ...]:
        current = {"comparator": str(comparator), "of": None if of == ALL else of}
        return tuple(
            Choice(
                value,
                urls.gauge(gauge.id, {**current, name: None if value == ALL else value}),
                value == now,
                has_window,
            )
            for value, has_window in works.items()
        )

    working = {str(window): window.works for window in windows}
    rtol = "" if comparator.rtol is None else f" (rtol {comparator.rtol:g})"
    drawn = picture(
        rates,
        comparator=str(comparator),
        axis=f"{NAMES[comparator.name]}{rtol}",
        of=of,
        needed=chosen.single.lower if of == ALL else chosen.outputs[of].lower,
        today=today_of(gauge.test, comparator, outputs),
    )
    return replace(
        drawn,
        instead=() if drawn.window else tuple(_instead(report, chosen, working)),
        comparators=choices("comparator", working, str(comparator)),
        outputs=choices("of", dict.fromkeys([ALL, *names], False), of) if len(names) > 1 else (),
    )


def _chosen(
    windows: Sequence[WindowSummary], test: Mapping[str, Any], requested: str
) -> WindowSummary:
    """Return the requested window, else that of the test's own comparator, else one that works."""
    by_name = {str(window): window for window in windows}
    declared = [for_output(test.get("tolerance", {}), name) for name in windows[0].outputs]
    declared_names = [
        str(comparator) for one in declared if one for comparator in _comparators(one)
    ]
    working = [name for name, window in by_name.items() if window.works]
    return next(
        (by_name[name] for name in (requested, *declared_names, *working) if name in by_name),
        windows[0],
    )


def _comparators(tolerance: Tolerance) -> dict[Comparator, float]:
    """Return the comparators of a declared tolerance, each with its number on the axis."""
    limits = {}
    if tolerance.allclose is not None:
        rtol, atol = tolerance.allclose
        limits[Comparator("allclose", rtol)] = atol
    if tolerance.pcc is not None:
        limits[Comparator("pcc")] = 1.0 - tolerance.pcc
    if tolerance.frobenius is not None:
        limits[Comparator("frobenius")] = tolerance.frobenius
    if tolerance.ulp is not None:
        limits[Comparator("ulp")] = tolerance.ulp
    return limits


def today_of(
    test: Mapping[str, Any], comparator: Comparator, outputs: Sequence[str]
) -> tuple[Today, ...]:
    """Return the declared tolerances of this comparator; one where all outputs have the same."""
    limits = {}
    for name in outputs:
        declared = for_output(test.get("tolerance", {}), name)
        value = None if declared is None else _comparators(declared).get(comparator)
        if value is not None and value > 0:
            limits[name] = value
    if limits and len(limits) == len(outputs) and len(set(limits.values())) == 1:
        return (Today(ALL, next(iter(limits.values()))),)
    return tuple(Today(name, value) for name, value in limits.items())


def _instead(report: GaugeReport, chosen: WindowSummary, working: Mapping[str, bool]) -> list[str]:
    """Return alternatives that have a window where this one has none.

    They are a tolerance for each output, another comparator, or other inputs.
    """
    alternatives = []
    if chosen.works and chosen.tolerance:
        alternatives.append(f"a separate tolerance for each output: {spelled(chosen.tolerance)}")
    others = [name for name, works in working.items() if works and name != str(chosen)]
    if others:
        alternatives.append(f"another comparator: {', '.join(others)}")
    for inputs in report.elsewhere:
        if inputs.advice.works:
            alternatives.append(
                f"other inputs, {inputs.name} ({inputs.sentence}):"
                f" {spelled(inputs.advice.tolerance)}"
            )
    advice = report.advice
    if not alternatives and advice.works:
        alternatives.append(f"comparators together: {spelled(advice.tolerance)}")
    return alternatives
