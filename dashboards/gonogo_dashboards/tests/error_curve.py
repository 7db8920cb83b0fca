"""The chart of a test from build to build: spread, mean and changes of each point. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo.spec.statistics import STATISTICS
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts import log_axis
from gonogo_dashboards.charts.charts import (
    AXIS,
    LABEL,
    Options,
    _short,
    backdrop,
    marked,
    name_gap,
    rail,
    room_above,
)
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests.build_series import MAX_BUILDS
from gonogo_service.tests.trends import METRICS, OF_COMPARATORS, Trend, TrendPoint

_FLOOR = 1e-300
_LABELS = {"rel_frobenius": "relative Frobenius error", "ulp_max": "largest distance, ulp"}
"""The labels of statistics that have no column on a seed's page, or another one there."""
_LOST = (Verdict.hang, Verdict.crash, Verdict.error)


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
        from_object(CurveChange, change)
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
    summary += f" Hollow passes: {_named(hollow, noun)}." if hollow else ""
    summary += f" NaN or Inf: {_named([point.name for point in odd], noun)}." if odd else ""
    limit = comparators_view.limit(declared, metric)
    return Curve(output, metric, over, points, changes, limit, summary, events)


def _named(names: Sequence[str], noun: str) -> str:
    """Return some builds or days: "2 builds (a, b)"."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{words.count(len(names), noun)} ({', '.join(map(words.brief, names[:4]))}{more})"


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
    edges = [
        edge
        for point in curve.points
        for edge in (point.low, point.high)
        if edge is not None and edge > 0
    ]
    ends = log_axis.fitted([*edges, *([curve.limit] if curve.limit else [])])
    low, high, off = ends.low, ends.high, ends.off
    odd = any(point.nonfinite for point in curve.points)
    rows = [(place, point) for place, point in enumerate(curve.points) if point.mean is not None]
    whiskers = [
        [place, _short(max(low, point.low or _FLOOR)), _short(max(low, point.high or _FLOOR))]
        for place, point in rows
    ]
    noun = "build" if curve.over == "builds" else "day"
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
        "yAxis": {
            **AXIS,
            "type": "log",
            "name": label(curve.metric),
            "nameGap": name_gap(curve.events),
            "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -54]},
            "min": low,
            "max": off if odd else high,
            "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisLabel": {"color": "$soft", "formatter": "power", "showMaxLabel": not odd},
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
            *(_marks(curve, verdict, noun, low, ends.rail) for verdict in reversed(curve.verdicts)),
            *_also_hollow(curve, low, ends.rail),
            _changes(curve),
            *marked(curve.events, len(curve.points), numbered=True),
            *rail(high, off, odd),
        ],
    }


def _marks(curve: Curve, verdict: str, noun: str, low: float, top: float) -> Options:
    """Return the points with a verdict: their means, and on the rail those with NaN or Inf."""
    looks = words.mark(verdict)
    data = []
    for place, point in enumerate(curve.points):
        if point.verdict != verdict:
            continue
        heights = [] if point.mean is None else [max(low, point.mean or _FLOOR)]
        heights += [top] if point.nonfinite else []
        data += [
            [
                place,
                _short(height),
                point.name,
                ", ".join(f"{count.count:,} {count.label}" for count in point.counts) or "–",
                point.seeds,
                _short(point.mean),
                _short(point.low),
                _short(point.high),
                f"{point.failures} of {point.runs}",
                point.nonfinite,
            ]
            for height in heights
        ]
    statistics = ["seeds with a number", "mean", "minimum", "maximum", "failed", "NaN or Inf"]
    return {
        "type": "scatter",
        "name": looks.label,
        "symbol": f"path://{looks.path}",
        "symbolSize": 11,
        "symbolKeepAspect": True,
        "itemStyle": {"color": f"${verdict}"},
        "dimensions": ["_x", "_y", noun, "verdicts", *statistics],
        "encode": {"x": 0, "y": 1},
        "data": data,
        "z": 3,
    }


def _also_hollow(curve: Curve, low: float, top: float) -> list[Options]:
    """Return a hollow mark beside each point that has hollow seeds and a worse verdict."""
    looks = words.mark(Verdict.pass_by_tolerance)
    places = [
        [place, _short(top if point.mean is None else max(low, point.mean or _FLOOR))]
        for place, point in enumerate(curve.points)
        if point.hollow and _shown(point) and point.verdict != Verdict.pass_by_tolerance
    ]
    if not places:
        return []
    return [
        {
            "type": "scatter",
            "name": "also hollow",
            "symbol": f"path://{looks.path}",
            "symbolSize": 9,
            "symbolOffset": [0, 11],
            "symbolKeepAspect": True,
            "itemStyle": {"color": "$pass_by_tolerance"},
            "encode": {"x": 0, "y": 1},
            "data": places,
            "silent": True,
            "z": 3,
        }
    ]


def _shown(point: CurvePoint) -> bool:
    return point.mean is not None or point.nonfinite > 0


def _changes(curve: Curve) -> Options:
    """Return an empty series with a line at each change, and a band over the range of its place."""
    names = [point.name for point in curve.points]
    lines: list[Options] = [
        {
            "xAxis": names[change.place],
            "lineStyle": {"color": "$ink", "type": "solid", "width": 1.5},
            # inside, because the numbers of events stand above
            "label": {**LABEL, "formatter": "change", "color": "$ink", "position": "insideEndTop"},
        }
        for change in curve.changes
    ]
    areas = [
        [
            {"xAxis": names[change.low], "itemStyle": {"color": "$band", "opacity": 0.25}},
            {"xAxis": names[change.high]},
        ]
        for change in curve.changes
        if change.low != change.high
    ]
    if curve.limit is not None:
        label_of_limit = {**LABEL, "position": "insideEndTop", "formatter": "declared tolerance"}
        lines.append(
            {
                "yAxis": curve.limit,
                "lineStyle": {"color": "$tolerance", "type": "solid", "width": 1.5},
                "label": {**label_of_limit, "color": "$tolerance"},
            }
        )
    return backdrop("changes", lines, areas)


def _point(point: TrendPoint, output: str) -> CurvePoint:
    spread = point.numbers.get(output)
    return CurvePoint(
        point.name,
        0 if spread is None else spread.seeds,
        None if spread is None else spread.low,
        None if spread is None else spread.mean,
        None if spread is None else spread.high,
        point.failures.failures,
        point.failures.runs,
        _verdict(point.counts),
        counts(point.counts, max(1, sum(point.counts.values()))),
        point.nonfinite.get(output, 0),
        bool(point.counts.get(Verdict.pass_by_tolerance)),
    )


def _verdict(by_verdict: Mapping[str, int]) -> str:
    """Return the worst verdict; a hang, crash or error only where there is nothing else."""
    present = words.ordered(verdict for verdict, number in by_verdict.items() if number)
    judged = [verdict for verdict in present if verdict not in _LOST]
    return (judged or present or [Verdict.not_run])[0]


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
