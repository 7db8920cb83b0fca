"""The chart of a gauge: how often right kernels fail and mutants pass, over the tolerance.

It shows the window between the two. One tolerance is for all outputs, or for one of them. The runs
are read again, so any comparator can be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo.gauge.comparators import Comparator, limits
from gonogo.gauge.curves import Curves, CurveStep, Onset, curves
from gonogo.gauge.report import with_numbers
from gonogo.gauge.summary import GaugeReport, WindowSummary
from gonogo.spec.tolerances import for_output
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.gauges import gauge_rows
from gonogo_service.gauges.model import GaugeRow

NAMES: Mapping[str, str] = {
    "allclose": "atol",
    "pcc": "1 − PCC",
    "frobenius": "relative Frobenius error",
    "ulp": "distance in ulps",
}
ALL = "all outputs"
MAX_ROWS = 24
"""Maximum rows of the table; the chart has all steps."""


@dataclass(frozen=True)
class CurveChoice(Choice):
    """A comparator or an output to choose, and whether it has a window."""

    works: bool


@dataclass(frozen=True)
class Today:
    """A tolerance that the test declares for an output."""

    output: str
    tolerance: float

    @property
    def name(self) -> str:
        """Return what it is."""
        return "declared" if self.output == ALL else f"declared, {self.output}"


@dataclass(frozen=True)
class Picture:
    """Curves of one comparator.

    `window`: (from, to) of the tolerances that reject every mutant and pass every right kernel; to
    None: no end.
    """

    comparator: str
    axis: str
    of: str
    strictest: CurveStep
    """Below the first of the points."""
    points: tuple[CurveStep, ...]
    turns: tuple[Onset, ...]
    needed: float | None
    """The tolerance that rounding alone may need for a right kernel: where a window begins."""
    window: tuple[float, float | None] | None
    today: tuple[Today, ...]
    table: tuple[CurveStep, ...]
    summary: str
    instead: tuple[str, ...] = ()
    """Alternatives that have a window where there is none here, in words."""
    comparators: tuple[CurveChoice, ...] = ()
    outputs: tuple[CurveChoice, ...] = ()


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

    def choices(name: str, works: Mapping[str, bool], now: str) -> tuple[CurveChoice, ...]:
        current = {"comparator": str(comparator), "of": None if of == ALL else of}
        return tuple(
            CurveChoice(
                value,
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
        str(comparator) for one in declared if one for comparator in limits(one.to_json())
    ]
    working = [name for name, window in by_name.items() if window.works]
    return next(
        (by_name[name] for name in (requested, *declared_names, *working) if name in by_name),
        windows[0],
    )


def today_of(
    test: Mapping[str, Any], comparator: Comparator, outputs: Sequence[str]
) -> tuple[Today, ...]:
    """Return the declared tolerances of this comparator; one where all outputs have the same."""
    declared_here = {}
    for name in outputs:
        declared = for_output(test.get("tolerance", {}), name)
        value = None if declared is None else limits(declared.to_json()).get(comparator)
        if value is not None and value > 0:
            declared_here[name] = value
    if len(declared_here) == len(outputs) and len(set(declared_here.values())) == 1:
        return (Today(ALL, next(iter(declared_here.values()))),)
    return tuple(Today(name, value) for name, value in declared_here.items())


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


def picture(
    rates: Curves,
    *,
    comparator: str,
    axis: str,
    of: str,
    needed: float | None,
    today: tuple[Today, ...],
) -> Picture:
    """Return the picture of curves, without other choices.

    needed: the tolerance that rounding alone may need. today: the declared ones.
    """
    window, blind = None, rates.blind_from
    if needed is not None and any(not onset.right for onset in rates.onsets):
        window = (needed, blind) if blind is None or needed < blind else None
    marked: list[tuple[str, float | None]] = [("rounding may need", needed)]
    if window:
        marked = [("the window begins", window[0]), ("the window ends", window[1])]
    marked += [(declared.name, declared.tolerance) for declared in today]
    drawn = Picture(
        comparator=comparator,
        axis=axis,
        of=of,
        strictest=rates.at(0.0),
        points=rates.steps,
        turns=rates.onsets,
        needed=needed,
        window=window,
        today=today,
        table=_table(rates, [(note, value) for note, value in marked if value]),
        summary="",
    )
    return replace(drawn, summary=_summary(drawn, rates))


def _table(rates: Curves, marked: Sequence[tuple[str, float]]) -> tuple[CurveStep, ...]:
    """Return enough steps to read both curves, and the tolerances that have a name."""
    steps = rates.steps
    most = max(2, MAX_ROWS - len(marked))
    if len(steps) > most:
        steps = tuple(steps[place * (len(steps) - 1) // (most - 1)] for place in range(most))
    rows = {step.tolerance: step for step in steps}
    for note, value in marked:
        before = rows[value].note if value in rows else ""
        rows[value] = replace(rates.at(value), note=f"{before}, {note}" if before else note)
    return tuple(rows[value] for value in sorted(rows))


def _summary(picture: Picture, rates: Curves) -> str:
    """Return the chart in words, for readers who don't see it."""
    number, is_all = words.number, picture.of == ALL
    axis = f"One {picture.axis} for {ALL}" if is_all else f"The {picture.axis} of {picture.of}"
    sentences = [f"{axis}, from the strictest on."]
    if rates.quiet_from is not None:
        sentences.append(f"Every right kernel passes from {number(rates.quiet_from)} on.")
    wrong = [onset for onset in rates.onsets if not onset.right]
    seen = [onset for onset in wrong if onset.tolerance is not None]
    if seen:
        first = min(seen, key=lambda onset: onset.tolerance or 0.0)
        sentences.append(f"Mutants pass from {number(first.tolerance)} on: first {first.part}.")
    else:
        sentences.append("No mutant ever passes." if wrong else "No mutant's fault can show.")
    if picture.window:
        low, high = picture.window
        to = "and more" if high is None else f"to {number(high)}"
        sentences.append(f"The window is {number(low)} {to}.")
    elif wrong:
        needed = picture.needed
        need = "" if needed is None else f": rounding alone may need {number(needed)}"
        sentences.append(f"The window is empty{need}.")
    for declared in picture.today:
        step = rates.at(declared.tolerance)
        name = "" if declared.output == ALL else f" for {declared.output}"
        sentences.append(
            f"The declared tolerance{name}, {number(declared.tolerance)}, fails"
            f" {step.alarms.count} of {words.count(step.alarms.of, 'run')} of right kernels and"
            f" passes {step.misses.count} of {words.count(step.misses.of, 'run')} of mutants."
        )
    return " ".join(sentences)
