"""A rate with its interval, from a count: false alarms of right kernels, missed mutants."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.flakiness.special import beta_quantile
from gonogo.gauge.summary import MeasuredRate

CONFIDENCE = 0.95
"""The level of the intervals."""


@dataclass(frozen=True)
class Rate:
    """`count` of `of`, with its Clopper-Pearson interval.

    It isn't gonogo.flakiness.rates.Rate: this interval is exact, so it is never too narrow, even at
    0 of 3. Jeffreys' interval there is right on average over many tests, but a gauge promises a
    bound for this one.
    """

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of:
            raise ValueError(f"impossible counts: {self.count} of {self.of}")

    @property
    def value(self) -> float | None:
        """The rate; None without trials."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of Clopper and Pearson (Biometrika 26, 1934); 0 to 1 without trials.

        Its ends are quantiles of beta distributions.
        """
        half = (1 - CONFIDENCE) / 2
        low = beta_quantile(half, self.count, self.of - self.count + 1) if self.count else 0.0
        high = (
            beta_quantile(1 - half, self.count + 1, self.of - self.count)
            if self.count < self.of
            else 1.0
        )
        return low, high

    @property
    def summary(self) -> MeasuredRate:
        """Return it with its interval."""
        return MeasuredRate(self.count, self.of, self.value, *self.interval)
