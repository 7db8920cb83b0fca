"""Chart options of the strip plot (dashboards/gonogo_dashboards/tests/strip.py).

Pure, plain JSON, as in dashboards/gonogo_dashboards/charts/charts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo import urls
from gonogo_dashboards.charts import log_axis, spreads
from gonogo_dashboards.charts.charts import (
    AXIS,
    LABEL,
    Options,
    backdrop,
    drawn,
    marked,
    name_gap,
    rail,
    room_above,
)
from gonogo_dashboards.charts.log_axis import LogAxis
from gonogo_dashboards.charts.plots import TOLERANCE_RATIO
from gonogo_dashboards.kit import words
from gonogo_dashboards.tests.strip import HALF, Strip, StripMark

_ROOM = 1.5
"""Room above the tolerance for its label."""
_MOST_LEVEL, _MOST_SLANTED = 7, 32
"""Builds whose names stand side by side, and those whose slanted names do."""
_CROWDED = 10
"""Seeds on a build above which its marks overlap, and are drawn so that one sees through them."""
_SIZES = ((60, 11), (200, 8), (2000, 6))
"""(maximum number of marks, their size in pixels)"""


def strip(plot: Strip) -> Options:
    """Return the options: a mark per seed, one series per verdict.

    Behind them are each column's bands and lines, and the declared tolerance across all columns.
    """
    ends = _range(plot)
    low, high, off = ends.low, ends.high, ends.off
    ratio = plot.metric == TOLERANCE_RATIO
    names = [words.brief(column.build) for column in plot.columns]
    jobs = {job: place for place, job in enumerate(dict.fromkeys(mark.job for mark in plot.marks))}
    slanted = _MOST_LEVEL < len(names) <= _MOST_SLANTED
    unnumbered = any(mark.value is None for mark in plot.marks)
    return {
        "links": [urls.job(job, output=plot.output) for job in jobs],
        "places": names,
        "narrow": _narrow(len(names)),
        "grid": {
            "left": 62,
            "right": 18,
            "top": room_above(plot.events),
            "bottom": 96 if slanted else 58,
        },
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "value",
            "min": -0.5,
            "max": len(names) - 0.5,
            "name": "builds in order",
            "nameLocation": "middle",
            "nameGap": 72 if slanted else 34,
            "axisLine": {"onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisTick": {"show": False},
            "axisLabel": {
                "color": "$soft",
                "hideOverlap": True,  # on a phone
                **({"rotate": 45, "fontSize": 11} if slanted else {}),
                "width": 84 if slanted else 120,
                "overflow": "truncate",
                "formatter": names,
                "customValues": list(range(len(names))),
            },
        },
        "yAxis": {
            **AXIS,
            "type": "log",
            "name": "error ÷ declared tolerance" if ratio else "error ÷ rounding",
            "nameGap": name_gap(plot.events),
            "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -54]},
            "min": low,
            "max": off if unnumbered else high,
            "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": "$line-strong"}},
            "axisLabel": {"color": "$soft", "formatter": "power", "showMaxLabel": not unnumbered},
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
        "series": [
            *_bands(plot, low),
            *_marks(plot, jobs, low, ends.rail),
            *marked(plot.events, len(names), between=True, numbered=True),
            _across(plot),  # after the lines of events, which cross its label
            *rail(high, off, unnumbered),
        ],
    }


def _narrow(builds: int) -> Options:
    """Return what differs on a phone: level names of the first and the last build only."""
    label = {
        "rotate": 0,
        "fontSize": 11,
        "width": 150,
        "customValues": sorted({0, builds - 1}),
        "alignMinLabel": "left" if builds > 1 else None,
        "alignMaxLabel": "right" if builds > 1 else None,
    }
    return {
        "grid": {"left": 50, "right": 8, "bottom": 24},
        "xAxis": {"name": "", "axisLabel": label},
    }


def _bands(plot: Strip, low: float) -> list[Options]:
    """Return the boxes and dashes behind the marks.

    They show the errors that rounding may make, the gap up to the tolerance, the range of all
    seeds, and the lines.
    """
    rounding: list[list[float]] = []
    gap: list[list[float]] = []
    limits: list[list[float]] = []
    advised: list[list[float]] = []
    declared: list[list[float]] = []
    for band in plot.bands:
        across = [band.left, band.right]
        if band.rounding is not None:
            rounding.append([*across, low, max(low, band.rounding), 0.16])
            limits.append([*across, max(low, band.rounding)])
            if band.beyond and band.declared is not None and band.declared > band.rounding:
                gap.append([*across, max(low, band.rounding), band.declared, 0.34])
        if band.advised is not None:
            advised.append([*across, max(low, band.advised)])
        if band.declared is not None and plot.metric != TOLERANCE_RATIO:
            declared.append([*across, max(low, band.declared)])
    ranges, medians = _spread(plot, low)
    return [
        drawn("rounding", "box", rounding, "$limit", 0),
        drawn("gap", "box", gap, "$gap", 0),
        drawn("range", "box", ranges, "$band", 1),
        drawn("median", "dash", medians, "$soft", 2),
        drawn("limit", "dash", limits, "$limit", 2),
        drawn("advised", "dots", advised, "$accent", 2),
        drawn("declared", "dash", declared, "$tolerance", 2),
    ]


def _spread(plot: Strip, low: float) -> tuple[list[list[float]], list[list[float]]]:
    """Return boxes and medians where there are too many seeds for a mark each.

    Boxes go from the smallest to the largest value, darker ones from the 10th to the 90th
    percentile.
    """
    ranges: list[list[float]] = []
    medians: list[list[float]] = []
    for place, column in enumerate(plot.columns if not plot.whole else ()):
        boxes, dashes = spreads.boxes(column, place - HALF, place + HALF, low)
        ranges += boxes
        medians += dashes
    return ranges, medians


def _marks(plot: Strip, jobs: Mapping[str, int], low: float, odd: float) -> list[Options]:
    """Return a series per verdict, the worst last and so on top.

    Only these series have `dimensions`: the texts of a tooltip, and what counts as a mark.
    """
    rows: dict[str, list[list[Any]]] = {}
    for mark in plot.marks:
        rows.setdefault(mark.verdict, []).append(_row(mark, jobs[mark.job], low, odd))
    value_label = "error ÷ tolerance" if plot.metric == TOLERANCE_RATIO else "error ÷ rounding"
    dimensions = ["_x", "_y", "build", plot.noun, "repeat", value_label, "_link"]
    dimensions += ["decided by"] if plot.decides else []
    size = next((size for most, size in _SIZES if len(plot.marks) <= most), 5)
    opacity = 0.45 if len(plot.marks) > _CROWDED * len(plot.columns) else 0.85
    return [
        {
            "type": "scatter",
            "name": words.mark(verdict).label,
            "symbol": f"path://{words.mark(verdict).path}",
            "symbolSize": size,
            "itemStyle": {"color": f"${verdict}", "opacity": opacity},
            "dimensions": dimensions,
            "encode": {"x": 0, "y": 1},
            "data": rows[verdict],
            "z": 3,
        }
        for verdict in reversed(words.ordered(rows))
    ]


def _row(mark: StripMark, job: int, low: float, odd: float) -> list[Any]:
    """Return a mark: x, y, seed, repeat, job, and what differs from y or decided.

    The browser makes the row of the `dimensions` from it: the build is that of the column, and the
    value is y unless the row says otherwise.
    """
    value = None if mark.value is None else float(f"{mark.value:.4g}")
    y = odd if value is None else max(low, value)
    row = [round(mark.x, 3), y, mark.seed, mark.repeat, job]
    if mark.decided is not None:
        return [*row, value, mark.decided or "–"]
    return row if value == y else [*row, value]


def _across(plot: Strip) -> Options:
    """Return an empty series with the line of the declared tolerance.

    Where the axis is the tolerance ratio, the line is the same for every build.
    """
    label = {
        **LABEL,
        "position": "insideEndTop",
        "formatter": "declared tolerance",
        "color": "$tolerance",
    }
    lines = [
        {
            "yAxis": 1,
            "lineStyle": {"color": "$tolerance", "type": "solid", "width": 1.5},
            "label": label,
        }
    ]
    shown: list[Options] = lines if plot.metric == TOLERANCE_RATIO else []
    return backdrop("lines", shown, z=2)


def _range(plot: Strip) -> LogAxis:
    """Return the log axis; every value is inside, and an exact 0 sits at its lowest."""
    values = [edge for column in plot.columns for edge in (column.low, column.high) if edge]
    values += [mark.value for mark in plot.marks if mark.value]
    values += [
        edge for band in plot.bands for edge in (band.rounding, band.advised, band.declared) if edge
    ]
    return log_axis.fitted(values, _ROOM)
