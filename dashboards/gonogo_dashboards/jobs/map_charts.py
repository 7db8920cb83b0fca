"""Chart options of an error map: axes, colors and their scale.

The browser (web/src/maps.js) adds the cells from the artifact. A row of data is [column, row, the
colored value, rows, features, mean error, largest |error|, the same in ulp, not finite].
"""

from __future__ import annotations

import math

from gonogo_dashboards.charts.charts import AXIS, Options
from gonogo_dashboards.jobs.error_maps import MapContent
from gonogo_dashboards.kit import words

DECADES = 4
"""Powers of ten below the largest error that have their own color.

Smaller errors have the last color.
"""
_DIMENSIONS = [
    "_x",
    "_y",
    "_color",
    "rows",
    "features",
    "mean error",
    "largest |error|",
    "largest |error|, ulp",
    "not finite",
]


def signed(map_: MapContent) -> Options:
    """Return the options of each cell's mean error.

    One color is above 0 and another below; 0 has the color of the background.
    """
    most = map_.mean or 1.0
    colors = ["$below", "$below-soft", "$level", "$above-soft", "$above"]
    return _map(map_, "signed_mean", (-most, most), (-most, most), colors)


def largest(map_: MapContent) -> Options:
    """Return the options of each cell's largest |error| on a log scale.

    The unit is ulp where the map has them.
    """
    high = math.log10(map_.largest) if map_.largest else 0.0
    low = min(max(math.log10(map_.smallest) if map_.smallest else high, high - DECADES), high - 1)
    colors = ["$least", "$lesser", "$middle", "$greater", "$most"]
    return _map(map_, "largest", (low, high), (10**low, 10**high), colors)


def unit(map_: MapContent) -> str:
    """Return the unit of the largest errors."""
    return f"ulp of {map_.format}" if map_.format else "absolute"


def height(map_: MapContent) -> str:
    """Return a class of the style sheet: the height of a chart with this number of rows."""
    for most, name in ((2, "flat"), (12, "low"), (40, "middle")):
        if map_.down <= most:
            return f"map-{name}"
    return "map-high"


def _map(
    map_: MapContent,
    what: str,
    ends: tuple[float, float],
    named: tuple[float, float],
    colors: list[str],
) -> Options:
    """Return the options of a map; `named`: what its scale says at its ends."""
    zoom = {
        "type": "inside",
        "filterMode": "none",
        "zoomOnMouseWheel": "ctrl",
        "moveOnMouseWheel": False,
        "minValueSpan": 3,
    }
    scale = {
        "type": "continuous",
        "seriesIndex": 0,
        "dimension": 2,
        "min": ends[0],
        "max": ends[1],
        "text": [words.number(end).replace("-", "−") for end in reversed(named)],
        "inRange": {"color": colors},
        "orient": "horizontal",
        "left": "center",
        "bottom": 0,
        "itemWidth": 12,
        "itemHeight": 150,
        "precision": 15,
        "textStyle": {"color": "$soft", "fontSize": 11},
        "calculable": False,
        "hoverLink": False,
    }
    shared = {"dimensions": _DIMENSIONS, "encode": {"x": 0, "y": 1}, "data": []}
    tiles = {"type": "custom", "renderItem": "tile", "name": "tile", "cells": what}
    marks = {"type": "scatter", "name": "tile with NaN or Inf", "cells": "nonfinite"}
    style = {"color": "$ink", "borderColor": "$surface", "borderWidth": 1}
    # a longer name would take the height of the tiles
    flat = {"name": "row"} if height(map_) == "map-flat" else {}
    rows = {**_axis(map_.down, map_.group[0], "row of tiles"), **flat}
    return {
        "grid": {"left": 52, "right": 14, "top": 8, "bottom": 84},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {**_axis(map_.across, map_.group[1], "column of tiles"), "nameGap": 24},
        "yAxis": {**rows, "inverse": True, "nameGap": 34},
        "dataZoom": [{**zoom, "xAxisIndex": 0}, {**zoom, "yAxisIndex": 0}],
        "visualMap": scale,
        "series": [
            {**shared, **tiles, "progressive": 0, "clip": True},
            {**shared, **marks, "symbol": "diamond", "symbolSize": 7, "itemStyle": style},
        ],
    }


def _axis(cells: int, group: int, name: str) -> Options:
    axis_name = name if group == 1 else f"{name}, {group} in a cell"
    return {
        **AXIS,
        "type": "category",
        "data": [str(1 + place * group) for place in range(cells)],
        "name": f"{axis_name} (of {cells * group})",
        "nameLocation": "middle",
        "axisTick": {"show": False},
        "splitArea": {"show": False},
    }
