"""Confidence intervals of proportions."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import beta

LEVEL = 0.95


@dataclass(frozen=True)
class Share:
    """A number of cases among all cases, and its Clopper-Pearson interval."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """Return the share, None without cases."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the exact interval at 95 %; (0, 1) without cases."""
        return clopper_pearson(self.count, self.total)

    def text(self) -> str:
        """Return "3 of 400, .75 % [.15-2.2]"."""
        if self.value is None:
            return "no case"
        low, high = self.interval
        return (
            f"{self.count} of {self.total}, {100 * self.value:.2f} % "
            f"[{100 * low:.2f}-{100 * high:.2f}]"
        )


def clopper_pearson(count: int, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval that covers the true proportion with at least this probability.

    Clopper and Pearson (1934): the bounds are quantiles of beta distributions. Raises ValueError
    for a count outside of 0..total.
    """
    if not 0 <= count <= total:
        raise ValueError(f"count {count} of {total}: needs 0 <= count <= total")
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, total - count + 1))
    high = 1.0 if count == total else float(beta.ppf(1 - tail, count + 1, total - count))
    return low, high
