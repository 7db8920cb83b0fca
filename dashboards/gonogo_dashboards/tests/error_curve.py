"""The chart of a test from build to build: spread, mean and changes of each point. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gonogo.spec.statistics import STATISTICS
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts.charts import AXIS, Options
from gonogo_dashboards.kit import words
from gonogo_storage.db.records import from_object
from gonogo_storage.history.build_series import MAX_BUILDS
from gonogo_storage.history.trends import Trend, TrendPoint

_FLOOR = 1e-300


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
    summary: str


def read(trend: Trend, output: str) -> Curve | None:
    """Return the curve of an output from a trend.

    None: no point has a number.
    """
    points = tuple(_point(point, output) for point in trend.points)
    known = [point for point in points if point.mean is not None]
    if not known:
        return None
    changes = tuple(from_object(CurveChange, change) for change in trend.numbers[output].changes)
    metric, over = trend.metric, trend.over
    means = [point.mean for point in known if point.mean is not None]
    noun = "build" if over == "builds" else "day"
    low, high = words.number(min(means)), words.number(max(means))
    spread = f"is {high}" if low == high else f"lies between {low} and {high}"
    changed = _first_up(trend.numbers[output].words)
    newest = "the newest " if len(points) >= MAX_BUILDS else ""
    points_words = f"{newest}{words.count(len(known), noun)}"
    summary = f"{output}: the mean {label(metric)} of {points_words} {spread}. {changed}."
    return Curve(output, metric, over, points, changes, summary)


def label(metric: str) -> str:
    """Return the label of a statistic."""
    return STATISTICS[metric].label


def trend(curve: Curve) -> Options:
    """Return the options of the chart: a mark per build on a log axis, whiskers, and changes.

    The whiskers go from the smallest to the largest seed. A line with a band shows each change.
    """
    edges = [
        edge
        for point in curve.points
        for edge in (point.low, point.high)
        if edge is not None and edge > 0
    ] or [1.0]
    low, high = (
        10.0 ** math.floor(math.log10(min(edges)) - 0.05),
        10.0 ** math.ceil(math.log10(max(edges)) + 0.05),
    )
    rows = [(place, point) for place, point in enumerate(curve.points) if point.mean is not None]
    whiskers = [
        [place, _short(max(low, point.low or _FLOOR)), _short(max(low, point.high or _FLOOR))]
        for place, point in rows
    ]
    noun = "build" if curve.over == "builds" else "day"
    return {
        "grid": {"left": 62, "right": 18, "top": 30, "bottom": 58},
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
        "yAxis": {
            **AXIS,
            "type": "log",
            "name": label(curve.metric),
            "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -54]},
            "min": low,
            "max": high,
            "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisLabel": {"color": "$soft", "formatter": "power"},
            "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
        },
        "series": [
            {
                "type": "custom",
                "name": "spread",
                "renderItem": "whisker",
                "data": whiskers,
                "silent": True,
                "z": 1,
            },
            _marks(rows, noun, low, failed=False),
            _marks(rows, noun, low, failed=True),
            _changes(curve),
        ],
    }


def _marks(
    rows: Sequence[tuple[int, CurvePoint]], noun: str, low: float, *, failed: bool
) -> Options:
    """Return the means of the points with failed runs, or of those without.

    Shape and color tell them apart.
    """
    looks = words.mark(Verdict.fail if failed else Verdict.pass_)
    data = [
        [
            place,
            _short(max(low, point.mean or _FLOOR)),
            point.name,
            point.seeds,
            _short(point.mean),
            _short(point.low),
            _short(point.high),
            f"{point.failures} of {point.runs}",
        ]
        for place, point in rows
        if (point.failures > 0) is failed
    ]
    return {
        "type": "scatter",
        "name": "some runs failed" if failed else "no run failed",
        "symbol": f"path://{looks.path}",
        "symbolSize": 10,
        "itemStyle": {"color": "$fail" if failed else "$pass"},
        "dimensions": ["_x", "_y", noun, "seeds", "mean", "minimum", "maximum", "failed"],
        "encode": {"x": 0, "y": 1},
        "data": data,
        "z": 3,
    }


def _changes(curve: Curve) -> Options:
    """Return an empty series with a line at each change, and a band over the range of its place."""
    names = [point.name for point in curve.points]
    lines = [
        {
            "xAxis": names[change.place],
            "lineStyle": {"color": "$pass_by_tolerance", "type": "solid", "width": 1.5},
            "label": {"formatter": "change", "color": "$pass_by_tolerance", "fontSize": 11},
        }
        for change in curve.changes
    ]
    areas = [
        [
            {"xAxis": names[change.low], "itemStyle": {"color": "$gap", "opacity": 0.3}},
            {"xAxis": names[change.high]},
        ]
        for change in curve.changes
        if change.low != change.high
    ]
    return {
        "type": "scatter",
        "name": "changes",
        "data": [],
        "silent": True,
        "z": 0,
        "markLine": {"silent": True, "symbol": "none", "animation": False, "data": lines},
        "markArea": {"silent": True, "animation": False, "data": areas},
    }


def _point(point: TrendPoint, output: str) -> CurvePoint:
    spread, failures = point.numbers.get(output), point.failures
    counts = failures.failures, failures.runs
    if spread is None:
        return CurvePoint(point.name, 0, None, None, None, *counts)
    return CurvePoint(point.name, spread.seeds, spread.low, spread.mean, spread.high, *counts)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
