"""Faults of kernels that round their statistics, too: a mean and an rstd stored in 16 bits.

Beside an offset the rounding of a stored mean is as large as many a fault. The rest that a fault
leaves is then an error of each row's mean and rstd, of the size that rounding them has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual
from gonogo.judging.faults.statistics import Statistics
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp

MIN_ALONE = 0.5
"""The least share of the error that the fault explains alone: rounded statistics don't explain
most of an error that isn't theirs."""
ROUNDINGS = 4
"""Half units in the last place of a row's mean or rstd: a kernel may store the mean, the centered
values, the variance, the root and its inverse, and their errors rarely add up."""
ROUNDS = 4
"""Rounds in which a fitted fault and the statistics beside it are fitted in turn."""


def likeliest(faults: Iterable[Fault], residual: Residual) -> Fault | None:
    """Return the fault that leaves the least error, if it explains enough of it alone."""
    finite = [fault for fault in faults if np.isfinite(fault.effect).all()]
    if not finite:
        return None
    best = min(finite, key=lambda fault: residual.without(fault.effect).energy)
    rest = residual.without(best.effect).energy
    return best if rest <= (1.0 - MIN_ALONE) * residual.energy else None


@dataclass(frozen=True)
class StoredStatistics:
    """The errors of y that rounding a row's mean and rstd to a format may cause.

    Attributes:
        scaled: what an error of rstd adds, relative (rows, N).
        of_mean: the same of the mean (rows, N); None where no mean is subtracted.
        most_of_rstd, most_of_mean: the largest errors of the two (rows, 1).
    """

    scaled: Array
    of_mean: Array | None
    most_of_rstd: Array
    most_of_mean: Array

    @classmethod
    def of(cls, right: Statistics, scaled: Array, of_mean: Array | None, form: str) -> Self:
        """Return it for the statistics of rows, stored in a format."""
        most_of_rstd = ROUNDINGS * half_ulp(right.rstd, form) / right.rstd
        most_of_mean = ROUNDINGS * half_ulp(np.broadcast_to(right.mean, right.rstd.shape), form)
        return cls(scaled, of_mean, most_of_rstd, most_of_mean)

    def beside(self, refit: Callable[[Residual], Fault], residual: Residual) -> Fault:
        """Return a fault with the errors of stored statistics beside it.

        refit: the fault, fitted to what the statistics leave.
        """
        fault = refit(residual)
        for _ in range(ROUNDS):
            effect = self._fit(residual.without(fault.effect))
            fault = refit(residual.without(effect))
        numbers = len(self.scaled) * (1 if self.of_mean is None else 2)
        return Fault(fault.words, fault.effect + effect, fault.fitted + numbers)

    def _fit(self, rest: Residual) -> Array:
        if self.of_mean is None:
            off_rstd = rest.per_row(self.scaled)
            return np.asarray(
                np.clip(off_rstd, -self.most_of_rstd, self.most_of_rstd) * self.scaled
            )
        off_rstd, off_mean = rest.two_factors(self.scaled, self.of_mean)
        of_rstd = np.clip(off_rstd, -self.most_of_rstd, self.most_of_rstd) * self.scaled
        of_mean = np.clip(off_mean, -self.most_of_mean, self.most_of_mean) * self.of_mean
        return np.asarray(of_rstd + of_mean)
