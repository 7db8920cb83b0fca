"""Chart options for ECharts from the views: pure, plain JSON.

Colours are "$names" of the style sheet's custom properties, functions are names that
web/src/charts.js knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gonogo_dashboards import spreads, words
from gonogo_dashboards.diagnoses import TermView
from gonogo_dashboards.plots import TOLERANCE_RATIO, SeedPlot

Options = dict[str, Any]

AXIS: Options = {
    "nameTextStyle": {"color": "$soft"},
    "axisLabel": {"color": "$soft", "hideOverlap": True},
    "axisLine": {"lineStyle": {"color": "$line-strong"}},
    "axisTick": {"lineStyle": {"color": "$line-strong"}},
    "splitLine": {"show": False},
}
_INNER_LABELS: Options = {
    "color": "$soft",
    "hideOverlap": True,
    "showMinLabel": False,
    "showMaxLabel": False,
}
_TEXT: Options = {"fontSize": 11, "textBorderColor": "$surface", "textBorderWidth": 3}
LABEL: Options = {**_TEXT, "fontWeight": 600}
"""Of a line or an area."""
MOST_ROWS = 1000
"""Of the table of a term."""
_DASHES = 1000
"""With more marks than this, dashes of their own would be a smear: the median stands for all."""
_FLAT = 5.0
"""Limits of the seeds within this factor may share one straight line; otherwise each keeps its own
dash."""


def seeds(plot: SeedPlot) -> Options:
    """Every seed as a mark, one series per verdict, on a log axis with the lines of the tolerance
    and of what rounding explains."""
    low, high, off = _range(plot)
    place = _Places(plot)
    ratio = plot.metric == TOLERANCE_RATIO
    xs = [place(mark.seed) for mark in plot.marks] + (
        [] if plot.spread is None else [plot.first, plot.last]
    )
    series = _spread(plot, low)
    own = len(plot.marks) <= _DASHES and not _one_line_will_do(plot)
    if own:
        series += _own_limits(plot, place, low)
    series += _marks(plot, place, low, off)
    return {
        "links": [""],  # a mark leads to the job's own page
        "grid": {"left": 62, "right": 18, "top": 30, "bottom": 44},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "value",
            "name": place.words,
            "nameLocation": "middle",
            "nameGap": 27,
            "minInterval": 1,
            **_span(xs),
            "axisLine": {"onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisLabel": _INNER_LABELS,
        },
        "yAxis": {
            **AXIS,
            "type": "log",
            "name": "error ÷ declared tolerance" if ratio else "error ÷ what rounding explains",
            "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -54]},
            "min": low,
            "max": off if any(mark.value is None for mark in plot.marks) else high,
            "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisLabel": {"color": "$soft", "formatter": "power"},
            "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
        },
        "dataZoom": [
            {
                "type": "inside",
                "xAxisIndex": 0,
                "filterMode": "none",
                "zoomOnMouseWheel": "ctrl",
                "moveOnMouseWheel": False,
            }
        ],
        "series": [*series, _lines(plot, not own, low)],
    }


def _marks(plot: SeedPlot, place: _Places, low: float, off: float) -> list[Options]:
    """A series per verdict, the worst last and so on top. Only these have `dimensions`: what a
    tooltip says, and what counts as a mark."""
    by_verdict: dict[str, list[list[Any]]] = {}
    for mark in plot.marks:
        y = off / 3 if mark.value is None else max(low, mark.value)
        numbers = (_short(each) for each in (mark.value, mark.explained, mark.budget_ratio))
        by_verdict.setdefault(mark.verdict, []).append(
            [place(mark.seed), _short(y), mark.seed, mark.repeat, *numbers, 0]
        )
    names = ["_x", "_y", "seed", "repeat"]
    names += (
        ["of the tolerance", "rounding explains up to"]
        if plot.metric == TOLERANCE_RATIO
        else ["times what rounding explains", "_"]
    )
    names += ["error ÷ budget", "_link"]
    return [
        {
            "type": "scatter",
            "name": words.mark(verdict).label,
            "symbol": f"path://{words.mark(verdict).path}",
            "symbolSize": 11 if len(plot.marks) <= 150 else 8 if len(plot.marks) <= 1000 else 6,
            "itemStyle": {"color": f"${verdict}", "opacity": 0.9},
            "dimensions": names,
            "encode": {"x": 0, "y": 1},
            "data": by_verdict[verdict],
            "z": 3,
        }
        for verdict in reversed(words.ordered(by_verdict))
    ]


def _spread(plot: SeedPlot, low: float) -> list[Options]:
    """Behind the marks, where they are only some of the seeds: the spread of all."""
    if plot.spread is None:
        return []
    ranges, medians = spreads.boxes(plot.spread, plot.first - 0.5, plot.last + 0.5, low)
    return [drawn("range", "box", ranges, "$band", 1), drawn("median", "dash", medians, "$soft", 2)]


def drawn(name: str, renderer: str, data: list[list[float]], colour: str, level: int) -> Options:
    """A series of boxes, or of level dashes or dots, that web/src/charts.js draws."""
    rows = [[float(f"{value:.5g}") for value in row] for row in data]
    return {
        "type": "custom",
        "name": name,
        "renderItem": renderer,
        "itemStyle": {"color": colour},
        "data": rows,
        "encode": {"x": [0, 1], "y": [2, 3] if renderer == "box" else [2]},
        "silent": True,
        "clip": True,
        "z": level,
    }


def _own_limits(plot: SeedPlot, place: _Places, low: float) -> list[Options]:
    """A dash per seed at what rounding explains, where the seeds' errors differ in form."""
    rows = [
        [place(mark.seed), _short(max(low, mark.explained))]
        for mark in plot.marks
        if mark.explained is not None
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
    """An empty series that carries the straight lines and the shaded gap between them; one line for
    all seeds' limits, or none."""
    lines: list[Options] = []
    area: list[list[Options]] = []
    limit = None if plot.limit is None else _short(max(low, plot.limit))
    if plot.metric == TOLERANCE_RATIO:
        lines.append(_line(1, "$tolerance", "solid", "declared tolerance", "insideEndTop"))
        if limit is not None and limit < 1:
            gap = {
                **_TEXT,
                "show": limit < 0.2,
                "position": "insideTopRight",
                "formatter": "here a wrong kernel is green",
                "color": "$soft",
            }
            area.append(
                [
                    {"yAxis": limit, "label": gap, "itemStyle": {"color": "$gap", "opacity": 0.3}},
                    {"yAxis": 1},
                ]
            )
    if limit is not None and shared_limit:
        lines.append(
            _line(limit, "$limit", [6, 4], "budget: what rounding explains", "insideEndBottom")
        )
    return {
        "type": "scatter",
        "name": "lines",
        "data": [],
        "silent": True,
        "z": 0,
        # precision: ECharts rounds to 2 decimals unless told, and a line at 0.002 would vanish
        "markLine": {
            "silent": True,
            "symbol": "none",
            "animation": False,
            "precision": 15,
            "data": lines,
        },
        "markArea": {"silent": True, "animation": False, "data": area},
    }


def _line(y: float, colour: str, dashes: Any, text: str, position: str) -> Options:
    label = {**LABEL, "position": position, "formatter": text, "color": colour}
    return {
        "yAxis": y,
        "lineStyle": {"color": colour, "type": dashes, "width": 1.5},
        "label": label,
    }


@lru_cache(maxsize=64)  # a diagnosis stays, and its page is read again and again
def term(view: TermView) -> Options:
    """A bar per tile: how often each tile's part of a term was used, 1 = once, as it should be;
    whiskers of one standard error each way.

    Where a tile is wrong, what is missing up to 1 or too much above it stands out, so that a bar of
    height 0 is seen too.
    """
    bars: list[list[Any]] = []
    strange: list[Options] = []
    whiskers: list[list[float | None]] = []
    for index, value in enumerate(view.coefficients):
        if value is None:
            continue
        first, last = tiles_of(view, index)
        x = (first + last) / 2
        error = view.errors[index] if index < len(view.errors) else None
        said = [str(first) if first == last else f"{first} … {last}", _short(value), _short(error)]
        wrong = differs(value, error)
        bars.append([x, _short(min(value, 1.0) if wrong else value), *said])
        if wrong:
            missing = {"opacity": 0.32} if value < 1 else {}
            strange.append(
                {"value": [x, _short(abs(1 - max(value, 0.0))), *said], "itemStyle": missing}
            )
        if error is not None:
            whiskers.append([x, _short(value - error), _short(value + error)])
    values = [value for value in view.coefficients if value is not None]
    shared: Options = {
        "type": "bar",
        "stack": "tile",
        "dimensions": ["_x", "_y", view.unit, "times used", "± standard error"],
        "encode": {"x": 0, "y": 1},
        "barCategoryGap": "15%",
        "barMaxWidth": 26,
        "barMinWidth": 1,
    }
    right = {
        "silent": True,
        "symbol": "none",
        "animation": False,
        "label": {"show": False},
        "data": [{"yAxis": 1}],
    }
    edge = 0.5 + 0.01 * view.tiles
    return {
        "grid": {"left": 44, "right": 12, "top": 14, "bottom": 42},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "value",
            "name": f"{view.unit} (of {view.tiles})",
            "nameLocation": "middle",
            "nameGap": 25,
            "minInterval": 1,
            "min": 1 - edge,
            "max": view.tiles + edge,
            # told, not left to ECharts, whose round numbers begin at 0: tiles are counted from 1
            "axisLabel": {
                "color": "$soft",
                "hideOverlap": True,
                "customValues": (ticks := _from_one(view.tiles)),
            },
            "axisTick": {"lineStyle": {"color": "$line-strong"}, "customValues": ticks},
        },
        "yAxis": {
            **AXIS,
            "type": "value",
            "min": _short(min([0.0, *values]) * 1.1),
            "max": _short(max([1.25, *values]) * 1.1),
            "splitNumber": 4,
            "axisLabel": {"color": "$soft", "formatter": "number", "showMaxLabel": False},
            "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
        },
        "series": [
            {
                **shared,
                "name": f"{view.name} of {view.output}",
                "itemStyle": {"color": "$bar"},
                "data": bars,
                "markLine": {
                    **right,
                    "lineStyle": {"color": "$limit", "type": [6, 4], "width": 1.2},
                },
            },
            {
                **shared,
                "name": f"{view.name} of {view.output}: not as it should be",
                "itemStyle": {"color": "$pass_by_tolerance"},
                "data": strange,
            },
            {
                "type": "custom",
                "name": "whiskers",
                "renderItem": "whisker",
                "data": whiskers,
                "encode": {"x": 0, "y": [1, 2]},
                "silent": True,
                "z": 4,
            },
        ],
    }


@lru_cache(maxsize=64)
def term_rows(view: TermView) -> Sequence[tuple[str, str, str]]:
    """The same as a table, at most MOST_ROWS: (which tiles, times used, standard error) in words.
    Made here, as a template takes thrice as long, and there are three terms of hundreds of
    tiles."""
    found = []
    for index, value in enumerate(view.coefficients[:MOST_ROWS]):
        first, last = tiles_of(view, index)
        error = view.errors[index] if index < len(view.errors) else None
        found.append(
            (
                str(first) if first == last else f"{first} … {last}",
                words.number(value),
                words.number(error),
            )
        )
    return found


def _from_one(tiles: int) -> list[int]:
    """Where an axis of tiles has its ticks: the first tile, round numbers, the last tile."""
    step = next(
        (
            size
            for power in range(10)
            for size in (10**power, 2 * 10**power, 5 * 10**power)
            if tiles <= 8 * size
        ),
        tiles,
    )
    inner = [
        place
        for place in range(step, tiles, step)
        if place > 1 and tiles - place >= step / 2 and place - 1 >= step / 2
    ]
    return sorted({1, *inner, max(1, tiles)})


def differs(value: float, error: float | None) -> bool:
    """Whether a coefficient is drawn as wrong: off 1 by more than a tenth and by more than four
    standard errors.

    For the eye only; which terms are wrong the forensics say.
    """
    return abs(value - 1) > max(0.1, 4 * (error or 0.0))


def tiles_of(view: TermView, index: int) -> tuple[int, int]:
    """First and last tile, counted from 1, of a term's coefficient."""
    return index * view.group + 1, min(view.tiles, (index + 1) * view.group) if view.tiles else (
        index + 1
    ) * view.group


def _range(plot: SeedPlot) -> tuple[float, float, float]:
    """(lowest, highest, off the scale) of the log axis, in whole powers of ten with everything
    inside; an exact 0 sits at the lowest."""
    values = [mark.value for mark in plot.marks if mark.value] + [
        mark.explained for mark in plot.marks if mark.explained
    ]
    values += [edge for edge in (plot.spread.low, plot.spread.high) if edge] if plot.spread else []
    values.append(1.0)
    low = 10.0 ** math.floor(math.log10(min(values)) - 0.02)
    high = 10.0 ** math.ceil(math.log10(max(values)) + 0.25)
    if any(mark.value == 0 for mark in plot.marks):
        low /= 10
    return low, high, high * 10


class _Places:
    """Where a seed stands on the x axis: at its number, or, where numbers have wide gaps, at its
    place in order."""

    def __init__(self, plot: SeedPlot) -> None:
        known = sorted({mark.seed for mark in plot.marks})
        sparse = len(known) > 1 and plot.spread is None and known[-1] - known[0] > 4 * len(known)
        self._order = {seed: place + 1 for place, seed in enumerate(known)} if sparse else None
        self.words = f"{plot.noun}s, in order of their number" if sparse else plot.noun

    def __call__(self, seed: int) -> int:
        return seed if self._order is None else self._order[seed]


def _one_line_will_do(plot: SeedPlot) -> bool:
    """Whether the median limit tells the same of every seed as its own limit does, and no limit is
    far from it."""
    if plot.limit is None:
        return True
    known = [
        (mark.value, mark.explained)
        for mark in plot.marks
        if mark.value is not None and mark.explained is not None
    ]
    limits = [limit for _, limit in known]
    return max(limits) <= _FLAT * min(limits) and all(
        (value > limit) is (value > plot.limit) for value, limit in known
    )


def _span(xs: Sequence[int]) -> Options:
    pad = max(1.0, 0.02 * (max(xs) - min(xs)))
    return {"min": math.floor(min(xs) - pad), "max": math.ceil(max(xs) + pad)}


def _short(value: float | None) -> Any:
    """Four significant digits: a mark is a few pixels wide, and 5,000 of them travel."""
    return None if value is None else float(f"{value:.4g}")
