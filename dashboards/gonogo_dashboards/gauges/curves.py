"""The picture of a gauge: how often right kernels fail and wrong ones pass, over the tolerance,
with the window between the two.

One tolerance for all outputs, or for one of them; the comparator can be chosen. The runs are read
anew: any comparator can be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelt
from gonogo.gauge.comparators import Comparator
from gonogo.gauge.curves import Curves, Onset, Step, curves
from gonogo.gauge.rates import Rate
from gonogo.gauge.report import with_numbers
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.kit import words
from gonogo_storage.gauges import gauge_rows

CHOICES = ("comparator", "of")
ALL = "all outputs"
NAMES: Mapping[str, str] = {
    "allclose": "atol",
    "pcc": "1 − PCC",
    "frobenius": "relative Frobenius error",
    "ulp": "distance in ulps",
}
MAX_ROWS = 24
"""Of the table; the steps are all in the picture."""


@dataclass(frozen=True)
class Choice:
    """Another comparator or output to look at."""

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
    """A kernel and the tolerance where it turns: a right one passes from there on, a wrong one is
    missed from there on.
    """

    name: str
    right: bool
    runs: int
    tolerance: float | None


@dataclass(frozen=True)
class Today:
    """A tolerance that the test declares, and what it lets pass."""

    output: str
    tolerance: float


@dataclass(frozen=True)
class Picture:
    """Curves of one comparator. `window`: (from, to) of the tolerances that stop every wrong kernel
    and pass every right one; to None: no end.
    """

    comparator: str
    axis: str
    of: str
    strictest: Point
    """Below the first of the points."""
    points: tuple[Point, ...]
    turns: tuple[Turn, ...]
    needed: float | None
    """What rounding alone may need of a right kernel: where a window begins."""
    window: tuple[float, float | None] | None
    today: tuple[Today, ...]
    table: tuple[Point, ...]
    instead: tuple[str, ...]
    """Where there is no window: what has one, in words."""
    summary: str
    comparators: tuple[Choice, ...]
    outputs: tuple[Choice, ...]


def read(session: Session, gauge: Mapping[str, Any], query: Mapping[str, str]) -> Picture | None:
    """The picture of a gauge with a report; None where no comparator bounds a right kernel's error,
    or nothing ran.
    """
    report = gauge["report"]
    windows = [each for each in report["windows"] if each["outputs"]]
    if not windows:
        return None
    chosen = _chosen(windows, gauge["test"], report, query.get("comparator", ""))
    names = list(chosen["outputs"])
    of = query["of"] if query.get("of") in names and len(names) > 1 else ALL
    rows = with_numbers(gauge_rows.own(session, gauge["id"]))
    go, able = (
        [row for row in rows if row["kind"] == "go"],
        [row for row in rows if row["kind"] == "no_go" and row.get("able")],
    )
    comparator = Comparator(chosen["comparator"], chosen["rtol"])
    found = curves(comparator, go, able, names if of == ALL else [of])
    if not found.steps:
        return None
    needed = chosen["single"]["lower"] if of == ALL else chosen["outputs"][of]["lower"]
    window = _window(needed, found)
    today = _today(gauge["test"], comparator, names if of == ALL else [of])
    marked = (
        [("where the window begins", window[0]), ("where it ends", window[1])]
        if window
        else [("rounding may need", needed)]
    )
    marked += [
        ("today" if each.output == ALL else f"today, {each.output}", each.tolerance)
        for each in today
    ]

    def choices(
        name: str, values: Sequence[str], now: str, works: Mapping[str, bool]
    ) -> tuple[Choice, ...]:
        kept = {"comparator": str(comparator), "of": None if of == ALL else of}
        links = [
            urls.gauge(gauge["id"], {**kept, name: None if each == ALL else each})
            for each in values
        ]
        return tuple(
            Choice(each, url, each == now, works.get(each, False))
            for each, url in zip(values, links, strict=True)
        )

    working = {
        str(Comparator(each["comparator"], each["rtol"])): bool(each["works"]) for each in windows
    }
    picture = Picture(
        comparator=str(comparator),
        axis=NAMES[comparator.name]
        + ("" if comparator.rtol is None else f" (rtol {comparator.rtol:g})"),
        of=of,
        strictest=_rates(0.0, *found.at(0.0)),
        points=tuple(_point(step) for step in found.steps),
        turns=tuple(_turn(each) for each in found.onsets),
        needed=needed,
        window=window,
        today=today,
        table=_table(found, [(note, value) for note, value in marked if value]),
        instead=() if window else tuple(_instead(report, chosen, working)),
        summary="",
        comparators=choices("comparator", list(working), str(comparator), working),
        outputs=choices("of", [ALL, *names], of, {}) if len(names) > 1 else (),
    )
    return Picture(**{**vars(picture), "summary": _summary(picture, found)})


def _chosen(
    windows: Sequence[Mapping[str, Any]],
    test: Mapping[str, Any],
    report: Mapping[str, Any],
    wanted: str,
) -> Mapping[str, Any]:
    """The window that was asked for, else that of the test's own comparator, else the first that
    works.
    """
    by_name = {str(Comparator(each["comparator"], each["rtol"])): each for each in windows}
    declared = [
        each
        for name in report["windows"][0]["outputs"]
        if (each := for_output(test.get("tolerance", {}), name)) is not None
    ]
    own = [str(comparator) for each in declared for comparator in _comparators(each)]
    working = [name for name, each in by_name.items() if each["works"]]
    return next((by_name[name] for name in (wanted, *own, *working) if name in by_name), windows[0])


def _comparators(tolerance: Tolerance) -> dict[Comparator, float]:
    """The comparators of a declared tolerance, each with the number that it has on its axis."""
    found = (
        {}
        if tolerance.allclose is None
        else {Comparator("allclose", tolerance.allclose[0]): tolerance.allclose[1]}
    )
    if tolerance.pcc is not None:
        found[Comparator("pcc")] = 1.0 - tolerance.pcc
    if tolerance.frobenius is not None:
        found[Comparator("frobenius")] = tolerance.frobenius
    if tolerance.ulp is not None:
        found[Comparator("ulp")] = tolerance.ulp
    return found


def _window(needed: float | None, found: Curves) -> tuple[float, float | None] | None:
    """Where it stops every wrong kernel that can show and passes every right one; None where there
    is no such tolerance.
    """
    blind = found.blind_from
    if needed is None or not any(not each.right for each in found.onsets):
        return None
    return (needed, blind) if blind is None or needed < blind else None


def _today(
    test: Mapping[str, Any], comparator: Comparator, outputs: Sequence[str]
) -> tuple[Today, ...]:
    """What the test declares in this comparator: one line where it is the same for all outputs."""
    found = {}
    for name in outputs:
        declared = for_output(test.get("tolerance", {}), name)
        value = None if declared is None else _comparators(declared).get(comparator)
        if value is not None and value > 0:
            found[name] = value
    if found and len(found) == len(outputs) and len(set(found.values())) == 1:
        return (Today(ALL, next(iter(found.values()))),)
    return tuple(Today(name, value) for name, value in found.items())


def _instead(
    report: Mapping[str, Any], chosen: Mapping[str, Any], working: Mapping[str, bool]
) -> list[str]:
    """What has a window where this has none: a tolerance for each output, another comparator, other
    inputs.
    """
    said = []
    if chosen["works"] and chosen["tolerance"]:
        said.append(f"a tolerance of its own for each output: {spelt(chosen['tolerance'])}")
    others = [
        name
        for name, works in working.items()
        if works and name != str(Comparator(chosen["comparator"], chosen["rtol"]))
    ]
    if others:
        said.append(f"another comparator: {', '.join(others)}")
    for each in report["elsewhere"]:
        if each["advice"]["works"]:
            said.append(
                f"other inputs, {each['name']} ({each['sentence']}): {spelt(each['advice']['tolerance'])}"
            )
    advice = report["advice"]
    if not said and advice["works"]:
        said.append(f"comparators together: {spelt(advice['tolerance'])}")
    return said


def _table(found: Curves, marked: Sequence[tuple[str, float]]) -> tuple[Point, ...]:
    """So many steps that both curves can be read off, and the tolerances that have a name."""
    steps = found.steps
    most = max(2, MAX_ROWS - len(marked))
    kept = (
        steps
        if len(steps) <= most
        else [steps[place * (len(steps) - 1) // (most - 1)] for place in range(most)]
    )
    rows = {step.tolerance: _point(step) for step in kept}
    for note, value in marked:
        rows[value] = _rates(
            value,
            *found.at(value),
            f"{rows[value].note}, {note}" if value in rows and rows[value].note else note,
        )
    return tuple(rows[value] for value in sorted(rows))


def _point(step: Step) -> Point:
    return _rates(step.tolerance, step.alarms, step.misses)


def _rates(tolerance: float, alarms: Rate, misses: Rate, note: str = "") -> Point:
    return Point(
        tolerance,
        alarms.count,
        alarms.of,
        *alarms.interval,
        misses.count,
        misses.of,
        *misses.interval,
        note,
    )


def _turn(onset: Onset) -> Turn:
    return Turn(onset.part, onset.right, onset.runs, onset.tolerance)


def _summary(picture: Picture, found: Curves) -> str:
    """The picture in words, for readers who don't see it."""
    what = (
        f"One {picture.axis} for {ALL}"
        if picture.of == ALL
        else f"The {picture.axis} of {picture.of}"
    )
    said = [f"{what}, from the strictest on."]
    quiet, blind = found.quiet_from, found.blind_from
    if quiet is not None:
        said.append(f"Every right kernel passes from {words.number(quiet)} on.")
    wrong = [each for each in found.onsets if not each.right]
    if not wrong:
        said.append("No wrong kernel can show.")
    elif blind is None:
        said.append("No wrong kernel ever passes.")
    else:
        first = min(
            (each for each in wrong if each.tolerance is not None),
            key=lambda each: each.tolerance or 0.0,
        )
        said.append(f"Wrong ones begin to pass at {words.number(blind)}: {first.part}.")
    if picture.window:
        low, high = picture.window
        said.append(
            f"The window is {words.number(low)} {'and more' if high is None else f'to {words.number(high)}'}."
        )
    elif wrong:
        need = (
            ""
            if picture.needed is None
            else f": rounding alone may need {words.number(picture.needed)}"
        )
        said.append(f"The window is empty{need}.")
    for each in picture.today:
        alarms, misses = found.at(each.tolerance)
        name = "" if each.output == ALL else f" for {each.output}"
        said.append(
            f"Today's{name}, {words.number(each.tolerance)}, fails {alarms.count} of {words.count(alarms.of, 'right run')}"
            f" and passes {misses.count} of {words.count(misses.of, 'wrong one')}."
        )
    return " ".join(said)
