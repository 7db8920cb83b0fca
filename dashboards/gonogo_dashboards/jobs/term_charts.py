"""Chart options of a term's coefficients, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gonogo_dashboards.charts.charts import AXIS, Options, _short
from gonogo_dashboards.jobs.diagnosis_view import TermView
from gonogo_dashboards.kit import words

MAX_ROWS = 1000
"""Maximum rows of the table of a term."""


@lru_cache(maxsize=64)  # a diagnosis never changes, and its page is read repeatedly
def term(view: TermView) -> Options:
    """Return the options of a bar per tile: how many times a term's part is used; 1 is right.

    Whiskers show one standard error in each direction. Where a tile is wrong, the part missing up
    to 1 or the excess above it stands out, so that a bar of height 0 is visible too.
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
        texts = [str(first) if first == last else f"{first} … {last}", _short(value), _short(error)]
        wrong = differs(value, error)
        bars.append([x, _short(min(value, 1.0) if wrong else value), *texts])
        if wrong:
            missing = {"opacity": 0.32} if value < 1 else {}
            strange.append(
                {"value": [x, _short(abs(1 - max(value, 0.0))), *texts], "itemStyle": missing}
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
            # set here: the round numbers of ECharts begin at 0, and tiles are counted from 1
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
                "name": f"{view.name} of {view.output}: wrong",
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
    """Return the same as a table, at most MAX_ROWS: (tiles, times used, standard error) in words.

    It is made here because a template takes three times as long, and there are three terms of
    hundreds of tiles.
    """
    rows = []
    for index, value in enumerate(view.coefficients[:MAX_ROWS]):
        first, last = tiles_of(view, index)
        error = view.errors[index] if index < len(view.errors) else None
        rows.append(
            (
                str(first) if first == last else f"{first} … {last}",
                words.number(value),
                words.number(error),
            )
        )
    return rows


def _from_one(tiles: int) -> list[int]:
    """Return the ticks of an axis of tiles: the first tile, round numbers, the last tile."""
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
    """Return whether a coefficient is drawn as wrong.

    It differs from 1 by more than a tenth and by more than four standard errors. This is for the
    eye only: the forensics decide which terms are wrong.
    """
    return abs(value - 1) > max(0.1, 4 * (error or 0.0))


def tiles_of(view: TermView, index: int) -> tuple[int, int]:
    """Return the first and last tile, counted from 1, of a term's coefficient."""
    return index * view.group + 1, min(view.tiles, (index + 1) * view.group) if view.tiles else (
        index + 1
    ) * view.group
