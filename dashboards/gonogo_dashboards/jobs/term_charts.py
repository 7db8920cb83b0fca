"""Chart options of a term's coefficients, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from gonogo.spec.diagnoses import DiagnosedTerm
from gonogo_dashboards.charts.charts import AXIS, Options, _short
from gonogo_dashboards.kit import words

MAX_ROWS = 100
"""Maximum rows of the table of a term; the diagnosis as JSON has every tile."""


@lru_cache(maxsize=64)  # a diagnosis never changes, and its page is read repeatedly
def term(view: DiagnosedTerm) -> Options:
    """Return the options of a bar per tile: how many times a term's part is used; 1 is right.

    Whiskers show one standard error in each direction. Where a tile is wrong, the part missing up
    to 1 or the excess above it stands out, so that a bar of height 0 is visible too. The browser
    draws both from the two numbers of a row, because a row may have a thousand tiles.
    """
    bars: list[list[Any]] = []
    strange: list[list[Any]] = []
    for index, value in enumerate(view.coefficients):
        if value is None:
            continue
        first, last = tiles_of(view, index)
        error = view.errors[index] if index < len(view.errors) else None
        row = [(first + last) / 2 if last > first else first, _short(value), _short(error)]
        row += [f"{first} … {last}"] if view.group > 1 else []
        (strange if differs(value, error) else bars).append(row)
    values = [value for value in view.coefficients if value is not None]
    numbers = ["times used", "± standard error"]
    shared: Options = {
        "type": "custom",
        "renderItem": "coefficient",
        "dimensions": ["_x", *numbers, view.unit] if view.group > 1 else [view.unit, *numbers],
        "encode": {"x": 0, "y": 1},
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
            },
            {
                **shared,
                "name": f"{view.name} of {view.output}: wrong",
                "itemStyle": {"color": "$pass_by_tolerance"},
                "data": strange,
            },
            {
                "type": "scatter",
                "name": "right",
                "data": [],
                "silent": True,
                "markLine": {
                    **right,
                    "lineStyle": {"color": "$limit", "type": [6, 4], "width": 1.2},
                },
            },
        ],
    }


@lru_cache(maxsize=64)
def term_rows(view: DiagnosedTerm) -> Sequence[tuple[str, str, str]]:
    """Return the same as a table, at most MAX_ROWS: (tiles, times used, standard error) in words.

    Neighbors that are used equally often, to two decimals, share a row with their largest error.
    """
    places = range(len(view.coefficients))
    errors = dict(zip(places, view.errors, strict=False))

    def rounded(index: int) -> float | None:
        value = view.coefficients[index]
        return None if value is None else round(value, 2) + 0.0  # never -0

    rows = []
    for used, group in groupby(places, rounded):
        members = list(group)
        first, last = tiles_of(view, members[0])[0], tiles_of(view, members[-1])[1]
        known = [error for place in members if (error := errors.get(place)) is not None]
        rows.append(
            (
                str(first) if first == last else f"{first} … {last}",
                "–" if used is None else f"{used:.2f}",
                words.number(max(known, default=None)),
            )
        )
    return rows[:MAX_ROWS]


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


def tiles_of(view: DiagnosedTerm, index: int) -> tuple[int, int]:
    """Return the first and last tile, counted from 1, of a term's coefficient."""
    return index * view.group + 1, min(view.tiles, (index + 1) * view.group) if view.tiles else (
        index + 1
    ) * view.group
