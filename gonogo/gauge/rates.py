"""A rate with its interval, from a count: how often right kernels failed, how often wrong ones
passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gonogo.flakiness.special import beta_quantile

CONFIDENCE = 0.95
"""Of the intervals."""


@dataclass(frozen=True)
class Rate:
    """`count` of `of`, with its Clopper-Pearson interval: exact, so never too narrow, also at 0 of
    3.

    Not the Jeffreys interval of gonogo.flakiness.rates, which is right on average over many tests:
    a gauge promises a bound for this one.
    """

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of:
            raise ValueError(f"{self.count} of {self.of} is no rate")

    @property
    def value(self) -> float | None:
        """None of no trials."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The quantiles of the beta distribution that Clopper and Pearson (Biometrika 26, 1934)
        take; 0 to 1 of no trials.
        """
        half = (1 - CONFIDENCE) / 2
        low = beta_quantile(half, self.count, self.of - self.count + 1) if self.count else 0.0
        high = (
            beta_quantile(1 - half, self.count + 1, self.of - self.count)
            if self.count < self.of
            else 1.0
        )
        return low, high

    def to_json(self) -> dict[str, Any]:
        """{"count", "of", "rate", "low", "high"}."""
        low, high = self.interval
        return {"count": self.count, "of": self.of, "rate": self.value, "low": low, "high": high}
