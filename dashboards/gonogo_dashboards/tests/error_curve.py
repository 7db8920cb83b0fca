"""The chart of a test from build to build: spread, mean and changes of each point. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.flakiness.history import ChangePoint
from gonogo.flakiness.rates import Rate
from gonogo.spec.statistics import STATISTICS
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.build_cells import verdict_of
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_service.tests.build_series import MAX_BUILDS
from gonogo_service.tests.trends import METRICS, OF_COMPARATORS, Spread, Trend, TrendPoint

_LABELS = {"rel_frobenius": "relative Frobenius error", "ulp_max": "largest distance, ulp"}
"""The labels of statistics that have no column on a seed's page, or another one there."""


@dataclass(frozen=True)
class CurvePoint:
    """A build or a day: the spread of a statistic over its seeds, and its failed runs."""

    name: str
    spread: Spread | None
    """None: no number is finite."""
    failures: Rate
    verdict: str
    """The worst verdict of its seeds, lost seeds aside; `not_run`: only with other tolerances."""
    counts: tuple[Count, ...]
    nonfinite: int
    """Seeds with NaN or Inf."""
    hollow: bool
    """Whether some seed is a hollow pass, also where others are worse."""

    @property
    def shown(self) -> bool:
        """Return whether it has a mark."""
        return self.spread is not None or self.nonfinite > 0


@dataclass(frozen=True)
class Curve:
    """One output's statistic over builds or days; `summary` is for readers who don't see it."""

    output: str
    metric: str
    over: str
    points: tuple[CurvePoint, ...]
    changes: tuple[ChangePoint, ...]
    limit: float | None
    """The largest value that the declared tolerance allows, where it is about this statistic."""
    summary: str
    events: tuple[AxisEvent, ...] = ()

    @property
    def verdicts(self) -> list[str]:
        """Return the verdicts of the marks, worst first, which the key explains."""
        shown = [point for point in self.points if point.shown]
        hollow = {Verdict.pass_by_tolerance.value for point in shown if point.hollow}
        return words.ordered({str(point.verdict) for point in shown} | hollow)


def read(
    trend: Trend,
    output: str,
    declared: Tolerance | None = None,
    events: tuple[AxisEvent, ...] = (),
) -> Curve | None:
    """Return the curve of an output from a trend, with the changes between its points.

    None: no point has a number, nor NaN or Inf.
    """
    points = tuple(_point(point, output) for point in trend.points)
    means = [point.spread.mean for point in points if point.spread]
    odd = [point for point in points if point.nonfinite]
    if not means and not odd:
        return None
    changes_found = trend.numbers.get(output)
    changes = tuple(changes_found.changes) if changes_found else ()
    metric, over = trend.metric, trend.over
    noun = "build" if over == "builds" else "day"
    summary = f"{output}: no {noun} has a finite number."
    if means:
        low, high = words.number(min(means)), words.number(max(means))
        spread = f"is {high}" if low == high else f"lies between {low} and {high}"
        newest = "the newest " if len(points) >= MAX_BUILDS else ""
        points_words = f"{newest}{words.count(len(means), noun)}"
        summary = f"{output}: the mean {label(metric)} of {points_words} {spread}."
        summary += f" {words.sentence_case(changes_found.words)}." if changes_found else ""
    hollow = [point.name for point in points if point.hollow and point.shown]
    summary += f" Hollow passes: {words.named(hollow, noun)}." if hollow else ""
    summary += f" NaN or Inf: {words.named([point.name for point in odd], noun)}." if odd else ""
    limit = comparators_view.limit(declared, metric)
    return Curve(output, metric, over, points, changes, limit, summary, events)


def metrics(declared: Tolerance | None) -> list[str]:
    """Return the statistics to choose from, the ones that decide first where allclose doesn't.

    Those of comparators are offered where the test declares them.
    """
    compared = [OF_COMPARATORS[name] for name in comparators_view.others(declared)]
    general = [name for name in METRICS if name not in OF_COMPARATORS.values()]
    return [*general, *compared] if declared and declared.allclose else [*compared, *general]


def label(metric: str) -> str:
    """Return the label of a statistic."""
    return _LABELS.get(metric) or STATISTICS[metric].label


def _point(point: TrendPoint, output: str) -> CurvePoint:
    return CurvePoint(
        point.name,
        point.numbers.get(output),
        point.failures,
        verdict_of(point.counts),
        counts(point.counts, sum(point.counts.values())),
        point.nonfinite.get(output, 0),
        bool(point.counts.get(Verdict.pass_by_tolerance)),
    )
