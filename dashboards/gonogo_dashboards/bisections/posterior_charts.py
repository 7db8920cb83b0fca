"""Charts of a bisection's posterior: a bar per build with its runs, and its course. Pure."""

from __future__ import annotations

import math

from gonogo.flakiness.bisecting import Stage
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.bisections.searches import Search
from gonogo_dashboards.charts.charts import AXIS, Options, marked, name_gap, room_above
from gonogo_dashboards.kit import words

_MOST_LEVEL = 6
"""Builds whose names stand side by side; more are slanted."""
_MOST_LABELS = 24
"""Builds that are all named, slanted; of more, those that fit."""


def posterior(search: Search) -> Options:
    """Return the options of each build's probability (bars) and its share of bad runs (marks)."""
    bad, builds = search.bad, search.builds
    first, is_over = builds[0].place, search.track.stage == Stage.no_change
    # probabilities of a change, if there was one
    bars = [
        [line.place - first, 0.0 if is_over else round(line.share, 4), line.name] for line in builds
    ]
    marks = [
        [line.place - first, round(line.bad / line.runs, 4), line.name, line.runs, line.bad]
        for line in builds
        if line.runs
    ]

    def share_axis(name: str, align: str, padding: list[int]) -> Options:
        style = {"color": "$soft", "align": align, "padding": padding}
        gap = name_gap(search.events)
        axis = {"type": "value", "min": 0, "max": 1, "name": name, "nameGap": gap}
        return {**AXIS, **axis, "nameTextStyle": style}

    # the key below says of what; on a phone two names meet
    left = share_axis("probability", "left", [0, 0, 0, -40])
    left["splitLine"] = {"show": True, "lineStyle": {"color": "$line"}}
    room = {"top": room_above(search.events), "bottom": _bottom(len(builds))}
    return {
        "grid": {"left": 48, "right": 48, **room},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "category",
            "data": [words.brief(line.name) for line in builds],
            "axisLabel": _slanted(len(builds)),
        },
        "yAxis": [left, share_axis(f"share {bad}", "right", [0, -40, 0, 0])],
        "series": [
            {
                "type": "bar",
                "name": "first changed build",
                "itemStyle": {"color": "$band"},
                "dimensions": ["_x", "probability", "build"],
                "encode": {"x": 0, "y": 1},
                "data": bars,
            },
            {
                "type": "scatter",
                "name": f"share of runs {bad}",
                "yAxisIndex": 1,
                "symbol": "circle",
                "symbolSize": 9,
                "itemStyle": {"color": "$ink", "opacity": 0.8},
                "dimensions": ["_x", f"share {bad}", "build", "runs", bad],
                "encode": {"x": 0, "y": 1},
                "data": marks,
            },
            *marked(search.events, len(builds), numbered=True),
        ],
    }


def moves(search: Search) -> Options:
    """Return the options with the builds across and the runs downwards.

    The darker a box, the likelier its build was the first changed one then. A mark shows each run.
    """
    first, names = (
        search.builds[0].place,
        [words.brief(line.name) for line in search.builds],
    )
    runs = max((dot.number for dot in search.dots), default=0) + 1
    ends = [*(move.runs for move in search.moves[1:]), runs]
    boxes = [
        # the root, so that an eighth is visible too; a box goes from the later run to the earlier,
        # because the axis is inverted
        [
            place - first - 0.5,
            place - first + 0.5,
            max(end, move.runs + 0.25),
            move.runs,
            round(0.85 * math.sqrt(share), 3),
        ]
        for move, end in zip(search.moves, ends, strict=False)
        for place, share in move.shares
    ]
    labels = {True: search.bad, False: search.track.track.answers[1], None: "no answer"}
    looks = {True: search.bad_looks, False: Verdict.pass_, None: Verdict.inconclusive}
    return {
        "grid": {"left": 48, "right": 18, "top": 30, "bottom": _bottom(len(names))},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {
            **AXIS,
            "type": "value",
            "min": -0.5,
            "max": len(names) - 0.5,
            "axisTick": {"show": False},
            "axisLabel": {
                **_slanted(len(names)),
                "formatter": names,
                "customValues": list(range(len(names))),
            },
        },
        "yAxis": {
            **AXIS,
            "type": "value",
            "inverse": True,
            "min": 0,
            "max": runs,
            "minInterval": 1,
            "name": "run",
            "nameLocation": "start",
            "axisLine": {"onZero": False, "lineStyle": {"color": "$line-strong"}},
            "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -40]},
            "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
        },
        "series": [
            {
                "type": "custom",
                "name": "probability",
                "renderItem": "box",
                "itemStyle": {"color": "$accent"},
                "data": boxes,
                "encode": {"x": [0, 1], "y": [2, 3]},
                "silent": True,
                "clip": True,
                "z": 1,
            },
            *(
                {
                    "type": "scatter",
                    "name": labels[answer],
                    "symbol": f"path://{words.mark(looks[answer]).path}",
                    "symbolSize": 9,
                    "itemStyle": {"color": f"${looks[answer]}"},
                    "dimensions": ["_x", "_y", "run", "build", "seed"],
                    "encode": {"x": 0, "y": 1},
                    "z": 3,
                    "data": [
                        [dot.place - first, dot.number - 0.5, dot.number, dot.build, dot.seed]
                        for dot in search.dots
                        if dot.bad is answer
                    ],
                }
                for answer in (False, None, True)
            ),
        ],
    }


def _slanted(builds: int) -> Options:
    """Return labels that name every build, the one that was found among them."""
    if builds > _MOST_LABELS:
        return {"color": "$soft", "hideOverlap": True, "width": 110, "overflow": "truncate"}
    slanted = {"rotate": 35} if builds > _MOST_LEVEL else {}
    return {"color": "$soft", "interval": 0, "width": 110, "overflow": "truncate", **slanted}


def _bottom(builds: int) -> int:
    return 84 if _MOST_LEVEL < builds <= _MOST_LABELS else 44
