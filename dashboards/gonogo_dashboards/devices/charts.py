"""Chart options of a device's page: plain JSON, as in gonogo_dashboards/charts/charts.py. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gonogo_dashboards.charts.charts import AXIS, Options, marked
from gonogo_dashboards.devices.activity import CANARIES, HOUR_S, DeviceDays, Series
from gonogo_dashboards.kit.axis_events import AxisEvent

_GRID: Options = {"left": 48, "right": 14, "top": 26, "bottom": 28}
_ROOM, _STEPS = 0.1, 3
"""The height of an axis whose readings are equal, as a part of their value; steps of an axis."""
_DIGITS = 6


def work(view: DeviceDays, events: Sequence[AxisEvent] = ()) -> Options:
    """Return the options of a bar per day: its busy fraction."""
    rows = [
        [
            _short(day.day),
            None if day.busy is None else round(100 * day.busy, 1),
            day.seeds,
            day.attempts,
        ]
        for day in view.days
    ]
    bars = _bars("busy", ["day", "% of the day", "seeds", "attempts"], "$bar", rows)
    axis = {"min": 0, "max": 100, "interval": 50}
    return _by_day(view, "busy, % of the day", axis, [bars, *marked(events, len(view.days))])


def canaries(view: DeviceDays, events: Sequence[AxisEvent] = ()) -> Options:
    """Return the options of stacked bars: the canaries of each day by outcome, good ones lowest."""
    bars = [
        _bars(
            label,
            ["day", "canaries"],
            f"${verdict}",
            [[_short(day.day), day.canaries[name]] for day in view.days],
            stack="canaries",
        )
        for name, (label, verdict) in CANARIES.items()
        if any(day.canaries[name] for day in view.days)
    ]
    axis = {"min": 0, "minInterval": 1}
    return _by_day(view, "canaries", axis, [*marked(events, len(view.days)), *bars])


def telemetry(view: DeviceDays, series: Series, events: Sequence[AxisEvent] = ()) -> Options:
    """Return the options of each hour's mean as a line, and its range as a band.

    Hours without readings are a gap in both.
    """
    line: list[list[Any]] = []
    bands: list[list[float]] = []
    half = int(HOUR_S * 500)
    for reading in series.readings:
        start = _milliseconds(reading.start)
        low, mean, high = round(reading.low, 2), round(reading.mean, 2), round(reading.high, 2)
        if line and start - line[-1][0] > half:
            line.append([start, None])  # the line has a gap at an outage
        line.append([start + half, mean, reading.start[5:16].replace("T", " "), low, high])
        if low < high:
            bands.append([start, start + 2 * half, low, high, 0.55])
    first, last = _milliseconds(view.since), _milliseconds(view.until)
    return {
        "grid": _GRID,
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {**AXIS, "type": "time", "min": first, "max": last, "splitNumber": 4},
        "yAxis": _y_axis(series.unit, _fitted(series)),
        "series": [
            {
                "type": "custom",
                "name": "range",
                "renderItem": "box",
                "itemStyle": {"color": "$band"},
                "data": bands,
                "encode": {"x": [0, 1], "y": [2, 3]},
                "silent": True,
                "z": 1,
            },
            {
                "type": "line",
                "name": series.name,
                "dimensions": ["_x", f"mean {series.unit}", "hour", "minimum", "maximum"],
                "encode": {"x": 0, "y": 1},
                "connectNulls": False,
                "symbol": "circle",
                "symbolSize": 3,
                "itemStyle": {"color": "$accent"},
                "lineStyle": {"color": "$accent", "width": 1.5},
                "data": line,
                "z": 2,
            },
            *marked(events, last - first),
        ],
    }


def _fitted(series: Series) -> Options:
    """Return the ends of an axis around the readings, at round numbers, with even steps."""
    low = min(reading.low for reading in series.readings)
    high = max(reading.high for reading in series.readings)
    room = (high - low) or _ROOM * abs(high) or 1.0  # a reading that never changed has room, too
    low, high = (low - room / 2, high + room / 2) if low == high else (low, high)
    rough = (high - low) / _STEPS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    return {
        "min": round(math.floor(low / step) * step, _DIGITS),
        "max": round(math.ceil(high / step) * step, _DIGITS),
        "interval": round(step, _DIGITS),
    }


def _by_day(view: DeviceDays, name: str, axis: Options, series: Sequence[Any]) -> Options:
    return {
        "grid": _GRID,
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {**AXIS, "type": "category", "data": [_short(day.day) for day in view.days]},
        "yAxis": _y_axis(name, axis),
        "series": [*series],
    }


def _bars(name: str, dimensions: list[str], color: str, rows: Any, **more: Any) -> Options:
    return {
        "type": "bar",
        "name": name,
        **more,
        "dimensions": dimensions,
        "encode": {"x": 0, "y": 1},
        "itemStyle": {"color": color},
        "barCategoryGap": "20%",
        "data": rows,
    }


def _y_axis(name: str, more: Options) -> Options:
    return {
        **AXIS,
        "type": "value",
        **more,
        "name": name,
        "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -40]},
        "splitNumber": 3,
        "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
    }


def _short(day: str) -> str:
    return f"{datetime.fromisoformat(day):%d %b}"


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
