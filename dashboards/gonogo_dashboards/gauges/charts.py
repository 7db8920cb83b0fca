"""Chart options of a gauge's curves (dashboards/gonogo_dashboards/gauges/curves.py).

Pure, plain JSON, as in dashboards/gonogo_dashboards/charts/charts.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts import log_axis
from gonogo_dashboards.charts.charts import (
    AXIS,
    LABEL,
    Options,
    backdrop,
    boxes,
    figure,
    line_at,
    symbols,
    upright,
)
from gonogo_dashboards.gauges.curves import Picture

Pieces = list[tuple[float, float, float, float, float]]
"""(from, to, rate, lower, upper) of every level piece of a curve."""
_ROOM = 2.0
"""How far the curves go on beyond the outermost tolerances."""


def curves(picture: Picture) -> Options:
    """Return the options of two stepped curves with their intervals over a log axis.

    The window is shaded, the declared tolerance is a line, and a mark shows where a kernel starts
    to pass.
    """
    low, high = _range(picture)
    alarms, misses = (_steps(picture, low, high, right=right) for right in (True, False))
    red, hollow = "$fail_by_tolerance", "$pass_by_tolerance"
    across = {
        "type": "log",
        "min": low,
        "max": high,
        "name": f"{picture.axis}, {picture.of}",
        "nameLocation": "middle",
        "nameGap": 28,
        "axisLabel": {**AXIS["axisLabel"], "formatter": "power"},
    }
    series = [
        _interval("interval of false alarms", alarms, red),
        _interval("interval of misses", misses, hollow),
        _line("right kernels that fail", alarms, high, red, [7, 4]),
        _line("mutants that pass", misses, high, hollow, "solid"),
        _turns(picture, low, right=True),
        _turns(picture, low, right=False),
        _marked(picture, high),
    ]
    return figure(across, upright("share of runs", min=0, max=1), series, bottom=48)


def _range(picture: Picture) -> tuple[float, float]:
    """Return the range of the axis, with everything inside."""
    values = [point.tolerance for point in picture.points] + [
        declared.tolerance for declared in picture.today
    ]
    values += [edge for edge in (picture.needed, *(picture.window or ())) if edge]
    ends = log_axis.fitted(values, _ROOM)
    return ends.low, ends.high


def _steps(picture: Picture, low: float, high: float, *, right: bool) -> Pieces:
    points = picture.points
    pieces = []
    for place, point in enumerate((replace(picture.strictest, tolerance=low), *points)):
        to = points[place].tolerance if place < len(points) else high
        rate = point.alarms if right else point.misses
        if rate.rate is not None:
            pieces.append((point.tolerance, to, rate.rate, rate.low, rate.high))
    return pieces


def _interval(name: str, pieces: Pieces, color: str) -> Options:
    rows = [[*map(_short, (left, to, least, most)), 0.13] for left, to, _, least, most in pieces]
    return boxes(name, rows, color)


def _line(name: str, pieces: Pieces, high: float, color: str, dashes: Any) -> Options:
    data = [[_short(piece[0]), _short(piece[2])] for piece in pieces]
    return {
        "type": "line",
        "name": name,
        "step": "end",
        "showSymbol": False,
        "silent": True,
        "z": 2,
        "lineStyle": {"color": color, "width": 2, "type": dashes},
        "itemStyle": {"color": color},
        "data": [*data, [_short(high), data[-1][1]]] if data else [],
    }


def _turns(picture: Picture, low: float, *, right: bool) -> Options:
    """Return a mark for each kernel at the tolerance from which it passes.

    Right kernels are on the zero line, mutants on the full line.
    """
    rows = [
        [
            _short(max(low, turn.tolerance)),
            0.02 if right else 0.98,
            turn.part,
            _short(turn.tolerance),
            turn.runs,
        ]
        for turn in picture.turns
        if turn.right is right and turn.tolerance is not None
    ]
    if right:
        named, passes, verdict = "right kernel", "passes from", Verdict.pass_
    else:
        named, passes, verdict = "mutant", "passes wrongly from", Verdict.pass_by_tolerance
    dimensions = ["_x", "_y", "kernel", passes, "runs"]
    return symbols(named, verdict, dimensions, rows, 10, z=4)


def _marked(picture: Picture, high: float) -> Options:
    """Return an empty series with the window and the lines of the declared tolerance."""
    lines = []
    for declared in picture.today:
        lines.append(line_at({"xAxis": declared.tolerance}, "$tolerance", declared.name))
    if picture.needed and not picture.window:
        place = {"xAxis": picture.needed}
        lines.append(line_at(place, "$limit", "rounding may need", dashes=[6, 4]))
    areas = []
    if picture.window:
        low, end = picture.window
        label = {**LABEL, "show": True, "position": "inside", "formatter": "window"}
        style = {"color": "$limit", "opacity": 0.2}
        edge = {"xAxis": low, "itemStyle": style, "label": {**label, "color": "$limit"}}
        areas.append([edge, {"xAxis": high if end is None else end}])
    return backdrop("window", lines, areas)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
