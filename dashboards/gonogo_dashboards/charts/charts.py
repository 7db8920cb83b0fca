"""Chart options for ECharts from the views: pure, plain JSON.

Colors are "$names" of the style sheet's custom properties; functions are names that
web/src/charts.js knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gonogo_dashboards.charts import log_axis, spreads
from gonogo_dashboards.charts.log_axis import LogAxis
from gonogo_dashboards.charts.plots import TOLERANCE_RATIO, SeedPlot
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.axis_events import AxisEvent

Options = dict[str, Any]

AXIS: Options = {
    "nameTextStyle": {"color": "$soft"},
    "axisLabel": {"color": "$soft", "hideOverlap": True},
    "axisLine": {"lineStyle": {"color": "$line-strong"}},
    "axisTick": {"lineStyle": {"color": "$line-strong"}},
    "splitLine": {"show": False},
}
_TEXT: Options = {"fontSize": 11, "textBorderColor": "$surface", "textBorderWidth": 3}
LABEL: Options = {**_TEXT, "fontWeight": 600}
"""The label of a line or an area."""
ZOOM: Options = {
    "type": "inside",
    "xAxisIndex": 0,
    "filterMode": "none",
    "zoomOnMouseWheel": "ctrl",
    "moveOnMouseWheel": False,
}
_ROOM = 1.7
"""Room above the tolerance for its label."""
_MOST_WORDS, _MOST_DIGITS = 26, 34
"""Labels of events that fit side by side, also on a phone: upright words, and digits."""
_DASHES = 1000
"""Above this number of marks, a dash per mark would be a smear: the median stands for all."""
_FLAT = 2.0
"""Limits of the seeds within this factor may share one straight line.

Otherwise each has its own dash.
"""


def seeds(plot: SeedPlot) -> Options:
    """Return the options of every seed as a mark, one series per verdict, on a log axis.

    Lines show the tolerance and the largest error of a seed's form that is rounding.
    """
    ends = _range(plot)
    low, high, off = ends.low, ends.high, ends.off
    odd = any(mark.value is None for mark in plot.marks)
    place = _Places(plot)
    ratio = plot.metric == TOLERANCE_RATIO
    xs = [place(mark.seed) for mark in plot.marks] + (
        [] if plot.spread is None else [plot.first, plot.last]
    )
    series = _spread(plot, low)
    own_dashes = len(plot.marks) <= _DASHES and not _one_line_will_do(plot)
    if own_dashes:
        series += _limit_dashes(plot, place, low)
    series += _marks(plot, place, low, ends.rail)
    across = {
        "type": "value",
        "name": place.words,
        "nameLocation": "middle",
        "nameGap": 27,
        "minInterval": 1,
        **_span(xs),
        "axisLine": {"onZero": False, "lineStyle": {"color": "$line-strong"}},
        "axisLabel": {**AXIS["axisLabel"], "showMinLabel": False, "showMaxLabel": False},
    }
    up = log_axis_of("error ÷ declared tolerance" if ratio else "error ÷ rounding", ends, odd)
    series += [_lines(plot, not own_dashes, low), *rail(high, off, odd)]
    links = [""]  # a mark leads to the job's own page
    return {**figure(across, up, series, left=62), "links": links, "dataZoom": [ZOOM]}


def figure(
    across: Options, up: Any, series: Sequence[Options], *, left: int = 48, **room: int
) -> Options:
    """Return a chart: an axis across, one or two upright ones, and series with tooltips.

    left, right, top, bottom: pixels beside the plot.
    """
    return {
        "grid": {"left": left, "right": 18, "top": 30, "bottom": 44, **room},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {**AXIS, **across},
        "yAxis": up,
        "series": [*series],
    }


def upright(name: str, **more: Any) -> Options:
    """Return an upright axis of numbers with its name above it, and a line at each tick."""
    return {
        **AXIS,
        "type": "value",
        "name": name,
        "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -40]},
        "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
        **more,
    }


def symbols(
    name: str, verdict: str, dimensions: Sequence[str], rows: Sequence[Any], size: int, **more: Any
) -> Options:
    """Return a series of marks with a verdict's shape and color.

    dimensions: the texts of a tooltip; series with them are counted as marks.
    """
    return {
        "type": "scatter",
        "name": name,
        "symbol": f"path://{words.mark(verdict).path}",
        "symbolSize": size,
        "itemStyle": {"color": f"${verdict}", "opacity": 0.9},
        "dimensions": dimensions,
        "encode": {"x": 0, "y": 1},
        "data": rows,
        "z": 3,
        **more,
    }


def log_axis_of(name: str, ends: LogAxis, odd: bool, events: Sequence[AxisEvent] = ()) -> Options:
    """Return an upright log axis; odd: whether some marks without a number stand on its rail."""
    return {
        **AXIS,
        "type": "log",
        "name": name,
        "nameGap": name_gap(events),
        "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -54]},
        "min": ends.low,
        "max": ends.off if odd else ends.high,
        "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": "$line-strong"}},
        "axisLabel": {"color": "$soft", "formatter": "power", "showMaxLabel": not odd},
        "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
    }


def line_at(
    place: Options, color: str, text: str, position: str = "insideEndTop", dashes: Any = "solid"
) -> Options:
    """Return a straight line with a label; place: {"xAxis": value} or {"yAxis": value}."""
    label = {**LABEL, "position": position, "formatter": text, "color": color}
    return {**place, "lineStyle": {"color": color, "type": dashes, "width": 1.5}, "label": label}


def marked(
    events: Sequence[AxisEvent], span: float, *, between: bool = False, numbered: bool = False
) -> list[Options]:
    """Return an empty series with an upright line at each place with events; none without events.

    span: the length of the axis, in its units. between: a line stands before its place instead of
    on it. numbered: the numbers of the list below the chart stand above the lines; else a word
    stands beside each. A label that would run into the one before is left out; its line stays.
    """
    if not events:
        return []
    by_place: dict[float, list[AxisEvent]] = {}
    for event in events:
        by_place.setdefault(event.place, []).append(event)
    lines: list[Options] = []
    labelled = -math.inf
    for number, (place, of_place) in enumerate(by_place.items(), start=1):
        room = span / _MOST_DIGITS * len(str(number)) if numbered else span / _MOST_WORDS
        shown = place - labelled >= room
        labelled = place if shown else labelled
        word = of_place[0].label if len(of_place) == 1 else f"{len(of_place)} changes"
        lines.append(
            {
                "xAxis": place - 0.5 if between else place,
                "lineStyle": {"color": "$soft", "type": "dashed", "width": 1},
                "label": {
                    **_TEXT,
                    "color": "$soft",
                    "show": shown,
                    "position": "end" if numbered else "insideEndTop",
                    "formatter": str(number) if numbered else word,
                },
            }
        )
    return [backdrop("events", lines, z=2)]


def backdrop(
    name: str, lines: Sequence[Options], areas: Sequence[Any] = (), *, z: int = 0
) -> Options:
    """Return an empty series with straight lines and shaded areas, which nothing points at."""
    return {
        "type": "scatter",
        "name": name,
        "data": [],
        "silent": True,
        "z": z,
        # precision: ECharts rounds to 2 decimals by default, and a line at 0.002 would vanish
        "markLine": {
            "silent": True,
            "symbol": "none",
            "animation": False,
            "precision": 15,
            "data": lines,
        },
        "markArea": {"silent": True, "animation": False, "data": areas},
    }


def room_above(events: Sequence[AxisEvent]) -> int:
    """Return the room above a plot: for its axis' name, and for the numbers of its events."""
    return 46 if events else 30


def name_gap(events: Sequence[AxisEvent]) -> int:
    """Return how far above the plot the name of its upright axis stands."""
    return 28 if events else 15


def rail(high: float, off: float, shown: bool) -> list[Options]:
    """Return the band above every number, for marks without a finite one, where it is needed.

    `high` is the top of the numbers, `off` that of the axis.
    """
    if not shown:
        return []
    label = {
        **_TEXT,
        "position": "insideTopLeft",
        "formatter": "NaN, Inf or no result",
        "color": "$soft",
    }
    line = {
        "yAxis": high,
        "lineStyle": {"color": "$line-strong", "type": "solid", "width": 1.5},
        "label": {"show": False},
    }
    band = {"yAxis": high, "label": label, "itemStyle": {"color": "$band", "opacity": 0.35}}
    return [backdrop("rail", [line], [[band, {"yAxis": off}]])]


def _marks(plot: SeedPlot, place: _Places, low: float, odd: float) -> list[Options]:
    """Return a series per verdict, the worst last and so on top.

    Only these series have `dimensions`: the texts of a tooltip, and what counts as a mark.
    """
    by_verdict: dict[str, list[list[Any]]] = {}
    for mark in plot.marks:
        y = odd if mark.value is None else max(low, mark.value)
        numbers = [short(mark.value)] if plot.metric == TOLERANCE_RATIO else []
        by_verdict.setdefault(mark.verdict, []).append(
            [
                place(mark.seed),
                short(y),
                mark.seed,
                mark.repeat,
                *numbers,
                short(mark.rounding_ratio),
                0,
            ]
        )
    names = ["_x", "_y", "seed", "repeat"]
    names += ["error ÷ tolerance"] if plot.metric == TOLERANCE_RATIO else []
    names += ["error ÷ rounding", "_link"]
    size = 11 if len(plot.marks) <= 150 else 8 if len(plot.marks) <= 1000 else 6
    return [
        symbols(words.mark(verdict).label, verdict, names, by_verdict[verdict], size)
        for verdict in reversed(words.ordered(by_verdict))
    ]


def _spread(plot: SeedPlot, low: float) -> list[Options]:
    """Return the spread of all seeds, which is behind the marks where these are only some."""
    if plot.spread is None:
        return []
    ranges, medians = spreads.boxes(plot.spread, plot.first - 0.5, plot.last + 0.5, low)
    return [drawn("range", "box", ranges, "$band", 1), drawn("median", "dash", medians, "$soft", 2)]


def boxes(name: str, rows: Sequence[Sequence[Any]], color: str, level: int = 1) -> Options:
    """Return a series of boxes; a row is [left, right, low, high, opacity], and what a tip says."""
    return {
        "type": "custom",
        "name": name,
        "renderItem": "box",
        "itemStyle": {"color": color},
        "data": rows,
        "encode": {"x": [0, 1], "y": [2, 3]},
        "silent": True,
        "clip": True,
        "z": level,
    }


def drawn(name: str, renderer: str, data: list[list[float]], color: str, level: int) -> Options:
    """Return a series of boxes, or of level dashes or dots, that web/src/charts.js draws."""
    rows = [[float(f"{value:.5g}") for value in row] for row in data]
    heights = {} if renderer == "box" else {"encode": {"x": [0, 1], "y": [2]}}
    return {**boxes(name, rows, color, level), "renderItem": renderer, **heights}


def _limit_dashes(plot: SeedPlot, place: _Places, low: float) -> list[Options]:
    """Return a dash per seed at the largest error of its form that is rounding."""
    rows = [
        [place(mark.seed), short(max(low, mark.rounding))]
        for mark in plot.marks
        if mark.rounding is not None
    ]
    size = [11 if len(rows) <= 150 else 4, 2]
    return [
        {
            "type": "scatter",
            "name": "rounding",
            "symbol": "rect",
            "symbolSize": size,
            "itemStyle": {"color": "$limit"},
            "data": rows,
            "silent": True,
            "z": 2,
        }
    ]


def _lines(plot: SeedPlot, shared_limit: bool, low: float) -> Options:
    """Return an empty series with the straight lines and the shaded gap between them.

    It has one line for the limits of all seeds, or none.
    """
    lines: list[Options] = []
    area: list[list[Options]] = []
    limit = None if plot.limit is None else short(max(low, plot.limit))
    if plot.metric == TOLERANCE_RATIO:
        lines.append(line_at({"yAxis": 1}, "$tolerance", "declared tolerance"))
        if limit is not None and limit < 1:
            gap = {
                **_TEXT,
                "show": limit < 0.2,
                "position": "insideTopRight",
                "formatter": "a wrong kernel is green here",
                "color": "$ink",
            }
            area.append(
                [
                    {"yAxis": limit, "label": gap, "itemStyle": {"color": "$gap", "opacity": 0.3}},
                    {"yAxis": 1},
                ]
            )
    if limit is not None and shared_limit:
        where = "rounding, of this form", "insideEndBottom", [6, 4]
        lines.append(line_at({"yAxis": limit}, "$limit", *where))
    return backdrop("lines", lines, area)


def _range(plot: SeedPlot) -> LogAxis:
    """Return the log axis; every value is inside, and an exact 0 sits at its lowest."""
    values = [mark.value for mark in plot.marks if mark.value] + [
        mark.rounding for mark in plot.marks if mark.rounding
    ]
    values += [edge for edge in (plot.spread.low, plot.spread.high) if edge] if plot.spread else []
    zeros = [min([1.0, *values]) / 5] if any(mark.value == 0 for mark in plot.marks) else []
    return log_axis.fitted([1.0, *values, *zeros], _ROOM)


class _Places:
    """The place of a seed on the x axis: its number, or its rank where numbers have wide gaps."""

    def __init__(self, plot: SeedPlot) -> None:
        known = sorted({mark.seed for mark in plot.marks})
        sparse = len(known) > 1 and plot.spread is None and known[-1] - known[0] > 4 * len(known)
        self._order = {seed: place + 1 for place, seed in enumerate(known)} if sparse else None
        self.words = f"{plot.noun}s in order of their number" if sparse else plot.noun

    def __call__(self, seed: int) -> int:
        return seed if self._order is None else self._order[seed]


def _one_line_will_do(plot: SeedPlot) -> bool:
    """Return whether no seed's own limit is far from the median."""
    limits = [mark.rounding for mark in plot.marks if mark.rounding is not None]
    return not limits or max(limits) <= _FLAT * min(limits)


def _span(xs: Sequence[int]) -> Options:
    """Return the ends of the axis of seeds: half a seed beyond the outermost, or a little more."""
    pad = max(0.5, 0.02 * (max(xs) - min(xs)))
    return {"min": min(xs) - pad, "max": max(xs) + pad}


def short(value: float | None) -> Any:
    """Round to four significant digits: a mark is a few pixels wide, and 5,000 of them are sent."""
    return None if value is None else float(f"{value:.4g}")
