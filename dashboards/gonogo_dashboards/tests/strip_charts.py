"""Chart options of the strip plot (dashboards/gonogo_dashboards/tests/strip_view.py).

Pure, plain JSON, as in dashboards/gonogo_dashboards/charts/charts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo import urls
from gonogo_dashboards.charts import log_axis, spreads
from gonogo_dashboards.charts.charts import (
    AXIS,
    ZOOM,
    Options,
    backdrop,
    drawn,
    figure,
    line_at,
    log_axis_of,
    marked,
    rail,
    room_above,
    symbols,
)
from gonogo_dashboards.charts.log_axis import LogAxis
from gonogo_dashboards.charts.plots import TOLERANCE_RATIO
from gonogo_dashboards.kit import words
from gonogo_dashboards.tests.strip_view import HALF, Strip, StripMark

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
    ratio = plot.metric == TOLERANCE_RATIO
    names = [words.brief(column.build) for column in plot.columns]
    jobs = {job: place for place, job in enumerate(dict.fromkeys(mark.job for mark in plot.marks))}
    slanted = _MOST_LEVEL < len(names) <= _MOST_SLANTED
    unnumbered = any(mark.value is None for mark in plot.marks)
    unit = "declared tolerance" if ratio else "rounding"
    across = [line_at({"yAxis": 1}, "$tolerance", "declared tolerance")] if ratio else []
    builds = {
        "type": "value",
        "min": -0.5,
        "max": len(names) - 0.5,
        "name": "builds in order",
        "nameLocation": "middle",
        "nameGap": 72 if slanted else 34,
        "axisLine": {"onZero": False, "lineStyle": {"color": "$line-strong"}},
        "axisTick": {"show": False},
        "axisLabel": {
            **AXIS["axisLabel"],
            **({"rotate": 45, "fontSize": 11} if slanted else {}),
            "width": 84 if slanted else 120,
            "overflow": "truncate",
            "formatter": names,
            "customValues": list(range(len(names))),
        },
    }
    series = [
        *_bands(plot, ends.low),
        *_marks(plot, jobs, ends),
        *marked(plot.events, len(names), between=True, numbered=True),
        backdrop("lines", across, z=2),  # after the lines of events, which cross its label
        *rail(ends.high, ends.off, unnumbered),
    ]
    room = {"left": 62, "top": room_above(plot.events), "bottom": 96 if slanted else 58}
    return {
        "links": [urls.job(job, output=plot.output) for job in jobs],
        "places": names,
        "narrow": _narrow(len(names)),
        "dataZoom": [ZOOM],
        **figure(
            builds,
            log_axis_of(f"error ÷ {unit}", ends, unnumbered, plot.events),
            series,
            **room,
        ),
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
    seeds, and the lines. Boxes of a range go from the smallest to the largest value, darker ones
    from the 10th to the 90th percentile.
    """
    data: dict[str, list[list[float]]] = {
        name: [] for name in ("rounding", "gap", "range", "median", "limit", "advised", "declared")
    }
    for band in plot.bands:
        across = [band.left, band.right]
        if band.rounding is not None:
            limit = max(low, band.rounding)
            data["rounding"].append([*across, low, limit, 0.16])
            data["limit"].append([*across, limit])
            if band.beyond and band.declared is not None and band.declared > band.rounding:
                data["gap"].append([*across, limit, band.declared, 0.34])
        if band.advised is not None:
            data["advised"].append([*across, max(low, band.advised)])
        if band.declared is not None and plot.metric != TOLERANCE_RATIO:
            data["declared"].append([*across, max(low, band.declared)])
    for place, column in enumerate(plot.columns if not plot.whole else ()):
        boxes, dashes = spreads.boxes(column, place - HALF, place + HALF, low)
        data["range"] += boxes
        data["median"] += dashes
    looks = {
        "rounding": ("box", "$limit", 0),
        "gap": ("box", "$gap", 0),
        "range": ("box", "$band", 1),
        "median": ("dash", "$soft", 2),
        "limit": ("dash", "$limit", 2),
        "advised": ("dots", "$accent", 2),
        "declared": ("dash", "$tolerance", 2),
    }
    return [
        drawn(name, renderer, data[name], color, level)
        for name, (renderer, color, level) in looks.items()
    ]


def _marks(plot: Strip, jobs: Mapping[str, int], ends: LogAxis) -> list[Options]:
    """Return a series per verdict, the worst last and so on top.

    Only these series have `dimensions`: the texts of a tooltip, and what counts as a mark.
    """
    rows: dict[str, list[list[Any]]] = {}
    for mark in plot.marks:
        rows.setdefault(mark.verdict, []).append(_row(mark, jobs[mark.job], ends))
    value_label = "error ÷ tolerance" if plot.metric == TOLERANCE_RATIO else "error ÷ rounding"
    dimensions = ["_x", "_y", "build", plot.noun, "repeat", value_label, "_link"]
    dimensions += ["decided by"] if plot.decides else []
    size = next((size for most, size in _SIZES if len(plot.marks) <= most), 5)
    opacity = 0.45 if len(plot.marks) > _CROWDED * len(plot.columns) else 0.85
    return [
        symbols(
            words.mark(verdict).label,
            verdict,
            dimensions,
            rows[verdict],
            size,
            itemStyle={"color": f"${verdict}", "opacity": opacity},
        )
        for verdict in reversed(words.ordered(rows))
    ]


def _row(mark: StripMark, job: int, ends: LogAxis) -> list[Any]:
    """Return a mark: x, y, seed, repeat, job, and what differs from y or decided.

    The browser makes the row of the `dimensions` from it: the build is that of the column, and the
    value is y unless the row says otherwise.
    """
    value = None if mark.value is None else float(f"{mark.value:.4g}")
    y = ends.rail if value is None else max(ends.low, value)
    row = [round(mark.x, 3), y, mark.seed, mark.repeat, job]
    if mark.decided is not None:
        return [*row, value, mark.decided or "–"]
    return row if value == y else [*row, value]


def _range(plot: Strip) -> LogAxis:
    """Return the log axis; every value is inside, and an exact 0 sits at its lowest."""
    edges = [edge for column in plot.columns for edge in (column.low, column.high)]
    edges += [mark.value for mark in plot.marks]
    edges += [edge for band in plot.bands for edge in (band.rounding, band.advised, band.declared)]
    return log_axis.fitted([edge for edge in edges if edge], _ROOM)
