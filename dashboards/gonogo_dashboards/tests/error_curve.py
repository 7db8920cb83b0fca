"""The chart of a test from build to build: spread, mean and changes of each point. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gonogo.spec.statistics import STATISTICS
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts import log_axis
from gonogo_dashboards.charts.charts import (
    AXIS,
    Options,
    backdrop,
    line_at,
    log_axis_of,
    marked,
    rail,
    room_above,
    short,
)
from gonogo_dashboards.charts.log_axis import LogAxis
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.build_cells import verdict_of
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_dashboards.tests.test_lines import named
from gonogo_service.tests.build_series import MAX_BUILDS
from gonogo_service.tests.trends import METRICS, OF_COMPARATORS, Trend, TrendPoint

_FLOOR = 1e-300
_LABELS = {"rel_frobenius": "relative Frobenius error", "ulp_max": "largest distance, ulp"}
"""The labels of statistics that have no column on a seed's page, or another one there."""


@dataclass(frozen=True)
class CurvePoint:
    """A build or a day: the spread of a statistic over its seeds, and its failed runs.

    None: no number is finite.
    """

    name: str
    seeds: int
    low: float | None
    mean: float | None
    high: float | None
    failures: int
    runs: int
    verdict: str
    """The worst verdict of its seeds, lost seeds aside; `not_run`: only with other tolerances."""
    counts: tuple[Count, ...]
    nonfinite: int
    """Seeds with NaN or Inf."""
    hollow: bool = False
    """Whether some seed is a hollow pass, also where others are worse."""


@dataclass(frozen=True)
class CurveChange:
    """A change: the index of the first point after it, and the range of that index."""

    place: int
    low: int
    high: int
    words: str


@dataclass(frozen=True)
class Curve:
    """One output's statistic over builds or days; `summary` is for readers who don't see it."""

    output: str
    metric: str
    over: str
    points: tuple[CurvePoint, ...]
    changes: tuple[CurveChange, ...]
    limit: float | None
    """The largest value that the declared tolerance allows, where it is about this statistic."""
    summary: str
    events: tuple[AxisEvent, ...] = ()

    @property
    def verdicts(self) -> list[str]:
        """Return the verdicts of the marks, worst first, which the key explains."""
        shown = [point for point in self.points if _shown(point)]
        hollow = {Verdict.pass_by_tolerance.value for point in shown if point.hollow}
        return words.ordered({str(point.verdict) for point in shown} | hollow)


def read(
    trend: Trend,
    output: str,
    declared: Tolerance | None = None,
    events: tuple[AxisEvent, ...] = (),
) -> Curve | None:
    """Return the curve of an output from a trend, with the changes between its points.

    None: no point has a number, nor NaN or Inf.
    """
    points = tuple(_point(point, output) for point in trend.points)
    known = [point for point in points if point.mean is not None]
    odd = [point for point in points if point.nonfinite]
    if not known and not odd:
        return None
    changes_found = trend.numbers.get(output)
    changes = tuple(
        CurveChange(change.place, change.low, change.high, change.words)
        for change in (changes_found.changes if changes_found else ())
    )
    metric, over = trend.metric, trend.over
    means = [point.mean for point in known if point.mean is not None]
    noun = "build" if over == "builds" else "day"
    summary = f"{output}: no {noun} has a finite number."
    if means:
        low, high = words.number(min(means)), words.number(max(means))
        spread = f"is {high}" if low == high else f"lies between {low} and {high}"
        newest = "the newest " if len(points) >= MAX_BUILDS else ""
        points_words = f"{newest}{words.count(len(known), noun)}"
        summary = f"{output}: the mean {label(metric)} of {points_words} {spread}."
        summary += f" {_first_up(changes_found.words)}." if changes_found else ""
    hollow = [point.name for point in points if point.hollow and _shown(point)]
    summary += f" Hollow passes: {named(hollow, noun)}." if hollow else ""
    summary += f" NaN or Inf: {named([point.name for point in odd], noun)}." if odd else ""
    limit = comparators_view.limit(declared, metric)
    return Curve(output, metric, over, points, changes, limit, summary, events)


def metrics(declared: Tolerance | None) -> list[str]:
    """Return the statistics to choose from, the ones that decide first where allclose doesn't.

    Those of comparators are offered where the test declares them.
    """
    compared = [OF_COMPARATORS[name] for name in comparators_view.others(declared)]
    general = [name for name in METRICS if name not in OF_COMPARATORS.values()]
    return [*general, *compared] if declared and declared.allclose else [*compared, *general]


def label(metric: str) -> str:
    """Return the label of a statistic."""
    return _LABELS.get(metric) or STATISTICS[metric].label


def trend(curve: Curve) -> Options:
    """Return the options of the chart: a mark per build on a log axis, whiskers, and changes.

    The whiskers go from the smallest to the largest seed. A line with a band shows each change.
    """
    edges = [edge for point in curve.points for edge in (point.low, point.high) if edge]
    ends = log_axis.fitted([*edges, *([curve.limit] if curve.limit else [])])
    odd = any(point.nonfinite for point in curve.points)
    spread = [
        [place, *(short(max(ends.low, edge or _FLOOR)) for edge in (point.low, point.high))]
        for place, point in enumerate(curve.points)
        if point.mean is not None
    ]
    noun = curve.over.removesuffix("s")
    return {
        "grid": {"left": 62, "right": 18, "top": room_above(curve.events), "bottom": 58},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "category",
            "data": [point.name for point in curve.points],
            "name": f"{noun}s in order",
            "nameLocation": "middle",
            "nameGap": 34,
            "axisLabel": {
                "color": "$soft",
                "hideOverlap": True,
                "width": 120,
                "overflow": "truncate",
            },
        },
        "yAxis": log_axis_of(label(curve.metric), ends, odd, curve.events),
        "series": [
            {
                "type": "custom",
                "name": "spread",
                "renderItem": "whisker",
                "data": spread,
                "silent": True,
                "z": 1,
            },
            *(_marks(curve, verdict, noun, ends) for verdict in reversed(curve.verdicts)),
            *_also_hollow(curve, ends),
            _changes(curve),
            *marked(curve.events, len(curve.points), numbered=True),
            *rail(ends.high, ends.off, odd),
        ],
    }


def _scatter(verdict: str, name: str, size: int, data: list[list[Any]]) -> Options:
    return {
        "type": "scatter",
        "name": name,
        "symbol": f"path://{words.mark(verdict).path}",
        "symbolSize": size,
        "symbolKeepAspect": True,
        "itemStyle": {"color": f"${verdict}"},
        "encode": {"x": 0, "y": 1},
        "data": data,
        "z": 3,
    }


def _marks(curve: Curve, verdict: str, noun: str, ends: LogAxis) -> Options:
    """Return the points with a verdict: their means, and on the rail those with NaN or Inf."""
    data = []
    for place, point in enumerate(curve.points):
        if point.verdict != verdict:
            continue
        heights = [] if point.mean is None else [max(ends.low, point.mean or _FLOOR)]
        heights += [ends.rail] if point.nonfinite else []
        verdicts = ", ".join(f"{count.count:,} {count.label}" for count in point.counts) or "–"
        numbers = (short(value) for value in (point.mean, point.low, point.high))
        failed = f"{point.failures} of {point.runs}"
        row = [point.name, verdicts, point.seeds, *numbers, failed, point.nonfinite]
        data += [[place, short(height), *row] for height in heights]
    statistics = ["seeds with a number", "mean", "minimum", "maximum", "failed", "NaN or Inf"]
    scatter = _scatter(verdict, words.mark(verdict).label, 11, data)
    return {**scatter, "dimensions": ["_x", "_y", noun, "verdicts", *statistics]}


def _also_hollow(curve: Curve, ends: LogAxis) -> list[Options]:
    """Return a hollow mark beside each point that has hollow seeds and a worse verdict."""
    hollow = Verdict.pass_by_tolerance
    places = [
        [place, short(ends.rail if point.mean is None else max(ends.low, point.mean or _FLOOR))]
        for place, point in enumerate(curve.points)
        if point.hollow and _shown(point) and point.verdict != hollow
    ]
    scatter = _scatter(hollow.value, "also hollow", 9, places)
    return [{**scatter, "symbolOffset": [0, 11], "silent": True}] if places else []


def _shown(point: CurvePoint) -> bool:
    return point.mean is not None or point.nonfinite > 0


def _changes(curve: Curve) -> Options:
    """Return an empty series with a line at each change, and a band over the range of its place."""
    names = [point.name for point in curve.points]
    # inside, because the numbers of events stand above
    lines = [line_at({"xAxis": names[change.place]}, "$ink", "change") for change in curve.changes]
    areas = [
        [
            {"xAxis": names[change.low], "itemStyle": {"color": "$band", "opacity": 0.25}},
            {"xAxis": names[change.high]},
        ]
        for change in curve.changes
        if change.low != change.high
    ]
    if curve.limit is not None:
        lines.append(line_at({"yAxis": curve.limit}, "$tolerance", "declared tolerance"))
    return backdrop("changes", lines, areas)


def _point(point: TrendPoint, output: str) -> CurvePoint:
    spread, failures = point.numbers.get(output), point.failures
    return CurvePoint(
        point.name,
        spread.seeds if spread else 0,
        spread.low if spread else None,
        spread.mean if spread else None,
        spread.high if spread else None,
        failures.failures,
        failures.runs,
        verdict_of(point.counts),
        counts(point.counts, max(1, sum(point.counts.values()))),
        point.nonfinite.get(output, 0),
        bool(point.counts.get(Verdict.pass_by_tolerance)),
    )


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
