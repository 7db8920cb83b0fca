"""The shapes of a test's history: the failure rate that its tail predicts, and its change points.

gonogo.flakiness.tails and gonogo.flakiness.changes compute them. This module loads no numpy, as the
API's process doesn't either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gonogo.flakiness.rates import Rate


@dataclass(frozen=True)
class Threshold:
    """One fit of a tail."""

    threshold: float
    exceedances: int
    predicted: float


@dataclass(frozen=True)
class Tail:
    """The predicted failure rate per seed and its one-sided upper bound.

    If nothing can be predicted they are null, and `words` says why.
    """

    seeds: int
    """The number of samples, in the unit `per`"""
    left_out: int
    """The number of seeds without a number (NaN), which are left out"""
    observed: Rate
    """The observed rate of seeds above the limit"""
    predicted: float | None
    upper: float | None
    at_most: bool
    """Whether `predicted` is the smallest rate that so many seeds can predict, 1/(10 x seeds)"""
    level: float
    thresholds: tuple[Threshold, ...]
    largest: float | None
    words: str
    distinct: int
    """Distinct seeds among the samples"""
    per: str = "seeds"
    """The unit of the rates: `seeds`; or `runs`, where seeds ran again and gave other numbers"""
    repeated: int = 0
    """Runs that are no samples, because they repeat a seed's numbers"""


@dataclass(frozen=True)
class ChangePoint:
    """A change at the point `place`, inside the interval [low, high] at `level`.

    `place` is the first point after the change, counted from 0 in the given series.
    """

    at: str
    """The name of the point"""
    between: tuple[str, str]
    """The names of the points at the ends of the interval"""
    place: int
    low: int
    high: int
    level: float
    before: float
    """The mean of the logarithm (of a number), or the failure rate, since the previous change."""
    after: float
    p: float | None
    """The p-value of the test for numbers."""
    odds: float | None
    """Bayes factor against no change, for rates."""
    rates: tuple[Rate, Rate] | None
    words: str


@dataclass(frozen=True)
class Changes:
    """The change points of one series, in order; `points` have a number, `left_out` have none."""

    changes: Sequence[ChangePoint]
    points: int
    left_out: int
    words: str
