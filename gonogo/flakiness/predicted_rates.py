"""The failure rate that the tail of a test's errors predicts.

gonogo.flakiness.tails fits it. This module loads no numpy, as the API's process doesn't either.
"""

from __future__ import annotations

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
