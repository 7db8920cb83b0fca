"""Chart options of a device's page: plain JSON, as in gonogo_dashboards/charts/charts.py. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gonogo_dashboards.charts.charts import (
    Options,
    backdrop,
    boxes,
    figure,
    line_at,
    marked,
    upright,
)
from gonogo_dashboards.devices.activity import HOUR_S, DeviceDays, Series
from gonogo_dashboards.devices.health_timeline import OFFLINE, Timeline
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth

_ROOM = {"right": 14, "top": 26, "bottom": 28}
_FLAT = 0.05
"""The room around readings that are equal, as a part of their value."""


HEIGHTS = {
    DeviceHealth.maintenance: (0.0, 0.15),
    DeviceHealth.good: (0.0, 0.4),
    OFFLINE: (0.3, 0.7),
    DeviceHealth.suspect: (0.0, 0.7),
    DeviceHealth.bad: (0.0, 1.0),
}
"""Bottom and top of a span by its state, so that the states also differ in form."""


def health(line: Timeline, events: Sequence[AxisEvent] = ()) -> Options:
    """Return the options of the spans of health, a series of boxes for each state."""
    first, last = _milliseconds(line.since), _milliseconds(line.until)
    series: list[Options] = []
    for state, (bottom, top) in HEIGHTS.items():
        spans = [span for span in line.spans if span.state == state]
        rows = [
            [_milliseconds(span.start), _milliseconds(span.end), bottom, top, 1, span.words]
            for span in spans
        ]
        if rows:
            shown = {"silent": False, "dimensions": [*(f"_{place}" for place in range(5)), "was"]}
            series.append({**boxes(str(state), rows, f"${spans[0].verdict}"), **shown})
    if line.heard_at is not None:
        heard = line_at({"xAxis": _milliseconds(line.heard_at)}, "$ink", "silent")
        series.append(backdrop("last heartbeat", [heard], z=3))
    across = {"type": "time", "min": first, "max": last, "splitNumber": 4}
    up = {"type": "value", "min": 0, "max": 1, "show": False}
    series += marked(events, last - first)
    return figure(across, up, series, left=14, right=14, top=8, bottom=28)


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
            outcome.label,
            ["day", "canaries"],
            f"${outcome.mark}",
            [[_short(day.day), day.canaries[outcome]] for day in view.days],
            stack="canaries",
        )
        for outcome in CanaryOutcome
        if any(day.canaries[outcome] for day in view.days)
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
    means: Options = {
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
    }
    across = {"type": "time", "min": first, "max": last, "splitNumber": 4}
    up = upright(series.unit, splitNumber=3, **_ends(series))
    drawings = [boxes("range", bands, "$band"), means, *marked(events, last - first)]
    return figure(across, up, drawings, **_ROOM)


def _ends(series: Series) -> Options:
    """Return the ends of an axis that fits its readings, which may be equal."""
    low = min(reading.low for reading in series.readings)
    high = max(reading.high for reading in series.readings)
    room = (_FLAT * abs(high) or 0.5) if low == high else 0.0
    if not room:
        return {"scale": True}
    return {"min": round(low - room, 1), "max": round(high + room, 1), "interval": round(room, 1)}


def _by_day(view: DeviceDays, name: str, axis: Options, series: Sequence[Any]) -> Options:
    across = {"type": "category", "data": [_short(day.day) for day in view.days]}
    return figure(across, upright(name, splitNumber=3, **axis), series, **_ROOM)


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


def _short(day: str) -> str:
    return f"{datetime.fromisoformat(day):%d %b}"


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
