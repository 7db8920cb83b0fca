"""The picture of a bisection's posterior: a bar for each build, and where it ran. Pure."""

from __future__ import annotations

from dashboards.bisections import Search
from dashboards.charts import AXIS, Options
from gonogo.flakiness.bisecting import Stage


def posterior(search: Search) -> Options:
    """How likely each build is the first changed one (bars), and the share of its runs that were bad (marks, where it has run)."""
    bad = "unexplained" if search.track == "numbers" else "red"
    ran = [line for line in search.builds if line.runs]
    first = search.builds[0].place
    shares = [0.0 if search.stage == Stage.no_change else round(line.share, 4) for line in search.builds]  # of a change, if there was one
    return {
        "grid": {"left": 48, "right": 48, "top": 30, "bottom": 44},
        "tooltip": {"trigger": "item", "formatter": "row"},
        "xAxis": {**AXIS, "type": "category", "data": [f"{line.place + 1} {line.name}" for line in search.builds]},
        "yAxis": [
            {
                **AXIS, "type": "value", "min": 0, "max": 1, "name": "first changed build",
                "nameTextStyle": {"color": "$soft", "align": "left", "padding": [0, 0, 0, -40]},
                "splitLine": {"show": True, "lineStyle": {"color": "$line"}},
            },
            {
                **AXIS, "type": "value", "min": 0, "max": 1, "name": f"runs {bad}",
                "nameTextStyle": {"color": "$soft", "align": "right", "padding": [0, -40, 0, 0]},
            },
        ],
        "series": [
            {
                "type": "bar", "name": "first changed build", "itemStyle": {"color": "$band"}, "dimensions": ["_x", "probability", "build"],
                "encode": {"x": 0, "y": 1},
                "data": [[line.place - first, share, line.name] for line, share in zip(search.builds, shares, strict=True)],
            },
            {
                "type": "scatter", "name": f"share of runs {bad}", "yAxisIndex": 1, "symbol": "circle", "symbolSize": 9,
                "itemStyle": {"color": "$ink", "opacity": 0.8}, "dimensions": ["_x", f"share {bad}", "build", "runs", bad],
                "encode": {"x": 0, "y": 1},
                "data": [[line.place - first, round(line.bad / line.runs, 4), line.name, line.runs, line.bad] for line in ran],
            },
        ],
    }  # fmt: skip
