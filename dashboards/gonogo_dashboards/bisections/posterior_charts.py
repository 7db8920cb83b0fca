"""Charts of a bisection's posterior: a bar per build with its runs, and its course. Pure."""

from __future__ import annotations

import math

from gonogo.flakiness.bisecting import Stage
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.bisections.searches import Search
from gonogo_dashboards.charts.charts import (
    Options,
    boxes,
    figure,
    marked,
    name_gap,
    room_above,
    symbols,
    upright,
)
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

    gap = name_gap(search.events)
    left = upright("probability", min=0, max=1, nameGap=gap)
    # the key below says of what; on a phone two names meet
    right = upright(f"share {bad}", min=0, max=1, nameGap=gap, splitLine={"show": False})
    right["nameTextStyle"] = {"color": "$soft", "align": "right", "padding": [0, -40, 0, 0]}
    across = {
        "type": "category",
        "data": [words.brief(line.name) for line in builds],
        "axisLabel": _slanted(len(builds)),
    }
    shares = {
        "type": "bar",
        "name": "first changed build",
        "itemStyle": {"color": "$band"},
        "dimensions": ["_x", "probability", "build"],
        "encode": {"x": 0, "y": 1},
        "data": bars,
    }
    dimensions = ["_x", f"share {bad}", "build", "runs", bad]
    look = {"symbol": "circle", "itemStyle": {"color": "$ink", "opacity": 0.8}, "yAxisIndex": 1}
    runs = symbols(f"share of runs {bad}", search.bad_looks, dimensions, marks, 9, **look)
    series = [shares, runs, *marked(search.events, len(builds), numbered=True)]
    room = {"top": room_above(search.events), "bottom": _bottom(len(builds))}
    return figure(across, [left, right], series, right=48, **room)


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
    likely = [
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
    across = {
        "type": "value",
        "min": -0.5,
        "max": len(names) - 0.5,
        "axisTick": {"show": False},
        "axisLabel": {
            **_slanted(len(names)),
            "formatter": names,
            "customValues": list(range(len(names))),
        },
    }
    up = upright("run", inverse=True, min=0, max=runs, minInterval=1, nameLocation="start")
    up["axisLine"] = {"onZero": False, "lineStyle": {"color": "$line-strong"}}
    series = [boxes("probability", likely, "$accent")]
    for answer in (False, None, True):
        rows = [
            [dot.place - first, dot.number - 0.5, dot.number, dot.build, dot.seed]
            for dot in search.dots
            if dot.bad is answer
        ]
        dimensions = ["_x", "_y", "run", "build", "seed"]
        series.append(symbols(labels[answer], looks[answer], dimensions, rows, 9))
    return figure(across, up, series, bottom=_bottom(len(names)))


def _slanted(builds: int) -> Options:
    """Return labels that name every build, the one that was found among them."""
    if builds > _MOST_LABELS:
        return {"color": "$soft", "hideOverlap": True, "width": 110, "overflow": "truncate"}
    slanted = {"rotate": 35} if builds > _MOST_LEVEL else {}
    return {"color": "$soft", "interval": 0, "width": 110, "overflow": "truncate", **slanted}


def _bottom(builds: int) -> int:
    return 84 if _MOST_LEVEL < builds <= _MOST_LABELS else 44
