"""Chart options of the error (error_curve.py) and of the device time over builds.

Pure, plain JSON, as in dashboards/gonogo_dashboards/charts/charts.py.
"""

from __future__ import annotations

from gonogo.flakiness.device_times import unit_of
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts import log_axis
from gonogo_dashboards.charts.charts import (
    AXIS,
    Options,
    backdrop,
    figure,
    line_at,
    log_axis_of,
    marked,
    rail,
    room_above,
    short,
    symbols,
    upright,
)
from gonogo_dashboards.charts.log_axis import LogAxis
from gonogo_dashboards.kit import words
from gonogo_dashboards.tests.error_curve import Curve, label
from gonogo_service.tests.device_times import TimeSeries

_FLOOR = 1e-300
_ACROSS: Options = {
    "type": "category",
    "nameLocation": "middle",
    "nameGap": 34,
    "axisLabel": {**AXIS["axisLabel"], "width": 120, "overflow": "truncate"},
}
_WHISKERS: Options = {
    "type": "custom",
    "renderItem": "whisker",
    "name": "spread",
    "encode": {"x": 0, "y": [1, 2]},
    "silent": True,
    "z": 1,
}


def trend(curve: Curve) -> Options:
    """Return the options of the chart: a mark per build on a log axis, whiskers, and changes.

    The whiskers go from the smallest to the largest seed. A line with a band shows each change.
    """
    spreads = [(place, point.spread) for place, point in enumerate(curve.points) if point.spread]
    edges = [edge for _, spread in spreads for edge in (spread.low, spread.high) if edge]
    ends = log_axis.fitted([*edges, *([curve.limit] if curve.limit else [])])
    odd = any(point.nonfinite for point in curve.points)
    whiskers = [
        [place, *(short(max(ends.low, edge or _FLOOR)) for edge in (spread.low, spread.high))]
        for place, spread in spreads
    ]
    noun = curve.over.removesuffix("s")
    axis = {"data": [point.name for point in curve.points], "name": f"{noun}s in order"}
    series = [
        {**_WHISKERS, "data": whiskers},
        *(_marks(curve, verdict, noun, ends) for verdict in reversed(curve.verdicts)),
        *_also_hollow(curve, ends),
        _changes(curve),
        *marked(curve.events, len(curve.points), numbered=True),
        *rail(ends.high, ends.off, odd),
    ]
    up = log_axis_of(label(curve.metric), ends, odd, curve.events)
    return figure({**_ACROSS, **axis}, up, series, left=62, top=room_above(curve.events), bottom=58)


def times(series: TimeSeries) -> Options:
    """Return the options of the seconds a seed on the device by build: means and intervals."""
    points = series.points
    scale, unit = unit_of(max(one.time.seconds for one in points))
    axis = {"data": [point.build for point in points], "name": "builds in order"}
    rows = [
        [place, short(one.time.seconds / scale), one.build, one.time.words, one.time.seeds]
        for place, one in enumerate(points)
    ]
    whiskers = [
        [place, short(one.time.low / scale), short(one.time.high / scale)]
        for place, one in enumerate(points)
    ]
    dimensions = ["_x", "_y", "build", "a seed", "seeds"]
    places = [{"xAxis": points[change.place].build} for change in series.changes.changes]
    lines = [line_at(place, "$ink", "change") for place in places]
    return figure(
        {**_ACROSS, **axis},
        upright(f"{unit} a seed", scale=True),
        [
            {**_WHISKERS, "data": whiskers},
            symbols("a seed", Verdict.not_judged, dimensions, rows, 9),
            backdrop("changes", lines, []),
        ],
        left=62,
        bottom=58,
    )


def _marks(curve: Curve, verdict: str, noun: str, ends: LogAxis) -> Options:
    """Return the points with a verdict: their means, and on the rail those with NaN or Inf."""
    data = []
    for place, point in enumerate(curve.points):
        if point.verdict != verdict:
            continue
        spread, failures = point.spread, point.failures
        heights = [max(ends.low, spread.mean or _FLOOR)] if spread else []
        heights += [ends.rail] if point.nonfinite else []
        verdicts = ", ".join(f"{count.count:,} {count.label}" for count in point.counts) or "–"
        numbers = (spread.mean, spread.low, spread.high) if spread else (None,) * 3
        failed = f"{failures.failures} of {failures.runs}"
        seeds = spread.seeds if spread else 0
        row = [point.name, verdicts, seeds, *map(short, numbers), failed, point.nonfinite]
        data += [[place, short(height), *row] for height in heights]
    statistics = ["seeds with a number", "mean", "minimum", "maximum", "failed", "NaN or Inf"]
    dimensions = ["_x", "_y", noun, "verdicts", *statistics]
    return symbols(words.mark(verdict).label, verdict, dimensions, data, 11)


def _also_hollow(curve: Curve, ends: LogAxis) -> list[Options]:
    """Return a hollow mark beside each point that has hollow seeds and a worse verdict."""
    hollow = Verdict.pass_by_tolerance
    places = [
        [place, short(max(ends.low, point.spread.mean or _FLOOR) if point.spread else ends.rail)]
        for place, point in enumerate(curve.points)
        if point.hollow and point.shown and point.verdict != hollow
    ]
    below: Options = {"symbolOffset": [0, 11], "silent": True}
    return [symbols("also hollow", hollow, ["_x", "_y"], places, 9, **below)] if places else []


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
