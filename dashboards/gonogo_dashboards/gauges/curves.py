"""The chart of a gauge: how often right kernels fail and mutants pass, over the tolerance.

It shows the window between the two. One tolerance is for all outputs, or for one of them; the
comparator can be chosen. The runs are read again, so any comparator can be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo.gauge.comparators import Comparator
from gonogo.gauge.curves import Curves, Onset, Step, curves
from gonogo.gauge.report import with_numbers
from gonogo.gauge.summary import GaugeReport, MeasuredRate, WindowSummary
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.kit import words
from gonogo_service.gauges import gauge_rows
from gonogo_service.gauges.store import Gauge

CHOICES = ("comparator", "of")
ALL = "all outputs"
NAMES: Mapping[str, str] = {
    "allclose": "atol",
    "pcc": "1 − PCC",
    "frobenius": "relative Frobenius error",
    "ulp": "distance in ulps",
}
MAX_ROWS = 24
"""Maximum rows of the table; the chart has all steps."""


@dataclass(frozen=True)
class Choice:
    """Another comparator or output to choose."""

    name: str
    url: str
    chosen: bool
    works: bool


@dataclass(frozen=True)
class Point:
    """Both rates from a tolerance on, with their 95% intervals."""

    tolerance: float
    alarms: int
    alarms_of: int
    alarms_low: float
    alarms_high: float
    misses: int
    misses_of: int
    misses_low: float
    misses_high: float
    note: str = ""


@dataclass(frozen=True)
class Turn:
    """A kernel and the tolerance from which it passes."""

    name: str
    right: bool
    runs: int
    tolerance: float | None


@dataclass(frozen=True)
class Today:
    """A tolerance that the test declares for an output."""

    output: str
    tolerance: float


@dataclass(frozen=True)
class Picture:
    """Curves of one comparator.

    `window`: (from, to) of the tolerances that reject every mutant and pass every right kernel; to
    None: no end.
    """

    comparator: str
    axis: str
    of: str
    strictest: Point
    """Below the first of the points."""
    points: tuple[Point, ...]
    turns: tuple[Turn, ...]
    needed: float | None
    """The tolerance that rounding alone may need for a right kernel: where a window begins."""
    window: tuple[float, float | None] | None
    today: tuple[Today, ...]
    table: tuple[Point, ...]
    instead: tuple[str, ...]
    """Alternatives that have a window where there is none here, in words."""
    summary: str
    comparators: tuple[Choice, ...]
    outputs: tuple[Choice, ...]


def read(session: Session, gauge: Gauge, query: Mapping[str, str]) -> Picture | None:
    """Return the chart of a gauge.

    None before its report, where no comparator bounds a right kernel's error, or nothing ran.
    """
    report = gauge.report
    if report is None:
        return None
    windows = [window for window in report.windows if window.outputs]
    if not windows:
        return None
    chosen = _chosen(windows, gauge.test, report, query.get("comparator", ""))
    names = list(chosen.outputs)
    of = query["of"] if query.get("of") in names and len(names) > 1 else ALL
    rows = with_numbers(gauge_rows.on_test_inputs(session, gauge.id))
    go, able = (
        [row for row in rows if row["kind"] == "go"],
        [row for row in rows if row["kind"] == "no_go" and row.get("able")],
    )
    comparator = chosen.comparison
    rates = curves(comparator, go, able, names if of == ALL else [of])
    if not rates.steps:
        return None
    needed = chosen.single.lower if of == ALL else chosen.outputs[of].lower
    window = _window(needed, rates)
    today = _today(gauge.test, comparator, names if of == ALL else [of])
    marked = (
        [("the window begins", window[0]), ("the window ends", window[1])]
        if window
        else [("rounding may need", needed)]
    )
    marked += [
        (
            "declared" if declared.output == ALL else f"declared, {declared.output}",
            declared.tolerance,
        )
        for declared in today
    ]

    def choices(
        name: str, values: Sequence[str], now: str, works: Mapping[str, bool]
    ) -> tuple[Choice, ...]:
        current = {"comparator": str(comparator), "of": None if of == ALL else of}
        links = [
            urls.gauge(gauge.id, {**current, name: None if value == ALL else value})
            for value in values
        ]
        return tuple(
            Choice(value, url, value == now, works.get(value, False))
            for value, url in zip(values, links, strict=True)
        )

    working = {str(window): window.works for window in windows}
    picture = Picture(
        comparator=str(comparator),
        axis=NAMES[comparator.name]
        + ("" if comparator.rtol is None else f" (rtol {comparator.rtol:g})"),
        of=of,
        strictest=_rates(0.0, *rates.at(0.0)),
        points=tuple(_point(step) for step in rates.steps),
        turns=tuple(_turn(onset) for onset in rates.onsets),
        needed=needed,
        window=window,
        today=today,
        table=_table(rates, [(note, value) for note, value in marked if value]),
        instead=() if window else tuple(_instead(report, chosen, working)),
        summary="",
        comparators=choices("comparator", list(working), str(comparator), working),
        outputs=choices("of", [ALL, *names], of, {}) if len(names) > 1 else (),
    )
    return Picture(**{**vars(picture), "summary": _summary(picture, rates)})


def _chosen(
    windows: Sequence[WindowSummary],
    test: Mapping[str, Any],
    report: GaugeReport,
    requested: str,
) -> WindowSummary:
    """Return the requested window, else that of the test's own comparator.

    Without either, the first window that works.
    """
    by_name = {str(window): window for window in windows}
    declared = [
        tolerance
        for name in report.windows[0].outputs
        if (tolerance := for_output(test.get("tolerance", {}), name)) is not None
    ]
    own_comparators = [
        str(comparator) for tolerance in declared for comparator in _comparators(tolerance)
    ]
    working = [name for name, window in by_name.items() if window.works]
    return next(
        (by_name[name] for name in (requested, *own_comparators, *working) if name in by_name),
        windows[0],
    )


def _comparators(tolerance: Tolerance) -> dict[Comparator, float]:
    """Return the comparators of a declared tolerance, each with its number on the axis."""
    limits = (
        {}
        if tolerance.allclose is None
        else {Comparator("allclose", tolerance.allclose[0]): tolerance.allclose[1]}
    )
    if tolerance.pcc is not None:
        limits[Comparator("pcc")] = 1.0 - tolerance.pcc
    if tolerance.frobenius is not None:
        limits[Comparator("frobenius")] = tolerance.frobenius
    if tolerance.ulp is not None:
        limits[Comparator("ulp")] = tolerance.ulp
    return limits


def _window(needed: float | None, rates: Curves) -> tuple[float, float | None] | None:
    """Return the tolerances that reject every mutant that can show and pass every right kernel.

    None: there is no such tolerance.
    """
    blind = rates.blind_from
    if needed is None or not any(not onset.right for onset in rates.onsets):
        return None
    return (needed, blind) if blind is None or needed < blind else None


def _today(
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


def _table(rates: Curves, marked: Sequence[tuple[str, float]]) -> tuple[Point, ...]:
    """Return enough steps to read both curves, and the tolerances that have a name."""
    steps = rates.steps
    most = max(2, MAX_ROWS - len(marked))
    selected = (
        steps
        if len(steps) <= most
        else [steps[place * (len(steps) - 1) // (most - 1)] for place in range(most)]
    )
    rows = {step.tolerance: _point(step) for step in selected}
    for note, value in marked:
        rows[value] = _rates(
            value,
            *rates.at(value),
            f"{rows[value].note}, {note}" if value in rows and rows[value].note else note,
        )
    return tuple(rows[value] for value in sorted(rows))


def _point(step: Step) -> Point:
    return _rates(step.tolerance, step.alarms, step.misses)


def _rates(tolerance: float, alarms: MeasuredRate, misses: MeasuredRate, note: str = "") -> Point:
    return Point(
        tolerance,
        alarms.count,
        alarms.of,
        alarms.low,
        alarms.high,
        misses.count,
        misses.of,
        misses.low,
        misses.high,
        note,
    )


def _turn(onset: Onset) -> Turn:
    return Turn(onset.part, onset.right, onset.runs, onset.tolerance)


def _summary(picture: Picture, rates: Curves) -> str:
    """Return the chart in words, for readers who don't see it."""
    what = (
        f"One {picture.axis} for {ALL}"
        if picture.of == ALL
        else f"The {picture.axis} of {picture.of}"
    )
    sentences = [f"{what}, from the strictest on."]
    quiet, blind = rates.quiet_from, rates.blind_from
    if quiet is not None:
        sentences.append(f"Every right kernel passes from {words.number(quiet)} on.")
    wrong = [onset for onset in rates.onsets if not onset.right]
    if not wrong:
        sentences.append("No mutant's fault can show.")
    elif blind is None:
        sentences.append("No mutant ever passes.")
    else:
        first = min(
            (onset for onset in wrong if onset.tolerance is not None),
            key=lambda onset: onset.tolerance or 0.0,
        )
        sentences.append(f"Mutants pass from {words.number(blind)} on: first {first.part}.")
    if picture.window:
        low, high = picture.window
        sentences.append(
            f"The window is {words.number(low)}"
            f" {'and more' if high is None else f'to {words.number(high)}'}."
        )
    elif wrong:
        need = (
            ""
            if picture.needed is None
            else f": rounding alone may need {words.number(picture.needed)}"
        )
        sentences.append(f"The window is empty{need}.")
    for declared in picture.today:
        alarms, misses = rates.at(declared.tolerance)
        name = "" if declared.output == ALL else f" for {declared.output}"
        sentences.append(
            f"The declared tolerance{name}, {words.number(declared.tolerance)}, fails"
            f" {alarms.count} of {words.count(alarms.of, 'run')} of right kernels and passes"
            f" {misses.count} of {words.count(misses.of, 'run')} of mutants."
        )
    return " ".join(sentences)
