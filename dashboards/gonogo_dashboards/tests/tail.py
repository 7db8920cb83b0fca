"""The tail of a green test: the share of seeds above each error, and the predicted failure rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.flakiness.history import Tail
from gonogo.flakiness.policy import POLICY
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.charts import log_axis
from gonogo_dashboards.charts.charts import (
    AXIS,
    Options,
    backdrop,
    figure,
    line_at,
    symbols,
    upright,
)
from gonogo_dashboards.charts.plots import TOLERANCE_RATIO
from gonogo_dashboards.kit import words
from gonogo_service.results import worst
from gonogo_service.results.model import WHOLE
from gonogo_service.tests.variants import JobFacts


@dataclass(frozen=True)
class TailView:
    """The tail of a build's tolerance ratio; `curve`: (ratio, share of the newest seeds above)."""

    tail: Tail
    curve: tuple[tuple[float, float], ...]

    @property
    def summary(self) -> str:
        """Return the chart in words."""
        tail = self.tail
        text = "Share of seeds above each error. " if self.curve else ""
        if tail.largest is not None:
            counted = words.count(tail.seeds, tail.per.removesuffix("s"))
            largest = words.number(tail.largest)
            text += f"The largest error of {counted} is {largest} times the declared tolerance. "
        if tail.predicted is None:
            return f"{text}No failure rate can be predicted: {tail.words}."
        return f"{text}Predicted from the largest errors: {tail.words}."


def read(session: Session, tail: Tail | None, jobs: Sequence[JobFacts]) -> TailView | None:
    """Return the tail from a grade's tail and the jobs of its build.

    None where nothing was predicted from numbers.
    """
    if tail is None or not tail.seeds:
        return None
    ratios = worst.newest(session, jobs, WHOLE, TOLERANCE_RATIO)
    # a chart of few seeds shows nothing of a tail, however often they ran
    few = min(len(ratios), tail.seeds) < POLICY.least_seeds
    return TailView(tail, () if few else tuple(_curve(ratios)))


def _curve(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return (value, share of all values at least as large), from the smallest value above 0."""
    counts = Counter(float(f"{value:.3g}") for value in values if value > 0)
    left = counts.total()
    curve = []
    for value in sorted(counts):
        curve.append((value, left / len(values)))
        left -= counts[value]
    return curve


def survival(view: TailView) -> Options:
    """Return the options of the chart, with both axes logarithmic.

    It has the share of seeds above a ratio, the line where green turns red, and the prediction
    there with its bound.
    """
    tail, target = view.tail, POLICY.latent_target
    predicted = [rate for rate in (tail.predicted, tail.upper, target) if rate]
    rates = [*(share for _, share in view.curve), *predicted, 1.0]
    across = log_axis.fitted([*(ratio for ratio, _ in view.curve), 1.0])
    mark = [[1.0, tail.predicted, tail.predicted, tail.upper]] if tail.predicted else []
    log: Options = {"type": "log", "axisLabel": {**AXIS["axisLabel"], "formatter": "power"}}
    lines = [
        line_at({"xAxis": 1}, "$tolerance", "red from here"),
        line_at({"yAxis": target}, "$suspect", "target", "insideStartTop", [6, 4]),
    ]
    ratios = {
        **log,
        "min": across.low,
        "max": across.high,
        "name": "error ÷ declared tolerance",
        "nameLocation": "middle",
        "nameGap": 27,
    }
    shares = {
        **backdrop("share of seeds above", lines, z=2),
        "type": "line",
        "step": "start",
        "showSymbol": False,
        "lineStyle": {"color": "$bar", "width": 2},
        "itemStyle": {"color": "$bar"},
        "data": [[ratio, float(f"{share:.4g}")] for ratio, share in view.curve],
    }
    bound = {
        "type": "custom",
        "name": "bound",
        "renderItem": "whisker",
        "silent": True,
        "z": 3,
        "encode": {"x": 0, "y": [1, 2]},
        "data": [[row[0], row[1], row[3]] for row in mark if row[3]],
    }
    dimensions = ["_x", "_y", f"per {tail.per.removesuffix('s')}", "upper bound"]
    diamond: Options = {"symbol": "diamond", "z": 4}
    failures = symbols("predicted failures", Verdict.fail, dimensions, mark, 12, **diamond)
    up = upright("share of seeds above", **log, min=log_axis.fitted(rates).low, max=1)
    return figure(ratios, up, [shares, bound, failures], left=52, bottom=46)
