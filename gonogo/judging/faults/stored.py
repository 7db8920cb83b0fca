"""Faults of kernels that round their statistics, too: a mean and an rstd stored in 16 bits.

Beside an offset the rounding of a stored mean is as large as many a fault. So the error of each
row's mean and rstd has a distribution, that of roundings, and a fault is as likely as what it
leaves to them and to the elements' own rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.faults.fault import MIN_EVIDENCE, SMALL, Fault, Residual
from gonogo.judging.faults.statistics import Statistics
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp

ROUNDINGS = 4
"""Roundings of a row's mean or rstd, of half a unit in the last place each: a kernel may store the
mean, the centered values, the variance, the root and its inverse. That many are their largest sum;
independent and uniform, they have sqrt(ROUNDINGS / 3) half units as their deviation."""
SHOWS = 3.0 * ROUNDINGS**2
"""The square of the largest sum of roundings, over the variance of one; also over what is usual."""
SURE = 3.0
"""Deviations of a fitted number beyond which it is surely larger than roundings."""


@dataclass(frozen=True)
class StoredStatistics:
    """The errors of y that rounding a row's mean and rstd to a format causes, in an output's error.

    Attributes:
        residual: the output's error.
        patterns: what an error of rstd adds to the output, relative, and the same of the mean,
            unless none is subtracted (1 or 2, rows, N).
        half_steps: half a unit in the last place of each, as the patterns have it (1 or 2, rows).
    """

    residual: Residual
    patterns: Array
    half_steps: Array

    @classmethod
    def of(
        cls, right: Statistics, scaled: Array, of_mean: Array | None, form: str, residual: Residual
    ) -> Self:
        """Return it for the statistics of rows, stored in a format."""
        patterns, half_steps = [scaled], [half_ulp(right.rstd, form) / right.rstd]
        if of_mean is not None:
            patterns.append(of_mean)
            half_steps.append(half_ulp(np.broadcast_to(right.mean, right.rstd.shape), form))
        return cls(residual, np.stack(patterns), np.stack(half_steps)[..., 0])

    def sizes(self, off: Array) -> Array:
        """Return errors of rstd and mean (1 or 2, rows) in deviations of what rounding adds."""
        return np.asarray(off / np.maximum(self.half_steps, SMALL) / np.sqrt(ROUNDINGS / 3))

    def likeliest(self, faults: Iterable[Fault]) -> Fault | None:
        """Return the fault that leaves most to what rounding is likely to add.

        None where rounded statistics alone are nearly as likely, or where what is left of them is
        more than roundings.
        """
        alone = self.energy(self.residual.error)
        usable = [fault for fault in faults if np.isfinite(fault.effect).all()]
        left = [self.energy(self.residual.error - fault.effect) for fault in usable]
        evidence = [
            self.residual.evidence(alone, rest) - MIN_EVIDENCE * max(1.0, fault.fitted)
            for fault, rest in zip(usable, left, strict=True)
        ]
        most = max(evidence, default=0.0)
        if most <= 0.0:
            return None
        # a later one isn't preferred to an earlier one that is nearly as likely
        place = next(at for at, one in enumerate(evidence) if one > max(0.0, most - MIN_EVIDENCE))
        fault = usable[place]
        off = self._off(self.residual.error - fault.effect)
        return None if self._beyond(off, left[place]).any() else self._with(fault, off)

    def rest(self) -> Residual:
        """Return what the likeliest errors of the statistics alone leave."""
        off = self._off(self.residual.error)
        return self.residual.without(np.einsum("kr,krn->rn", off, self.patterns))

    def beside(self, fault: Fault) -> Fault:
        """Return a fault with the likeliest errors of stored statistics beside it."""
        return self._with(fault, self._off(self.residual.error - fault.effect))

    def common(self, pattern: Array) -> float:
        """Return the likeliest factor of a pattern (rows, N)."""
        along = self._along(pattern)
        error = self._along(self.residual.error)
        weighted = self.residual.weight * pattern
        norm = (weighted * pattern).sum() - (along * self._solved(along)).sum()
        product = (weighted * self.residual.error).sum() - (along * self._solved(error)).sum()
        return float(product / max(norm, SMALL))

    def relates(self, pattern: Array, effect: Array) -> Array:
        """Return whether an effect on a pattern (rows, N) explains the output."""
        off = self._off(self.residual.error - effect)
        beside = np.einsum("kr,krn->rn", off, self.patterns)
        return self.residual.without(beside).relates(pattern, effect)

    def energy(self, rest: Array) -> float:
        """Return the energy of an error (rows, N) with the likeliest errors of the statistics."""
        along = self._along(rest)
        size = (self.residual.weight * np.square(rest)).sum()
        return float(size - (along * self._solved(along)).sum())

    def _beyond(self, off: Array, energy: float) -> NDArray[np.bool_]:
        """Return which errors of the statistics (1 or 2, rows) are surely larger than roundings.

        energy: that of the error that they leave.
        """
        noise = max(1.0, energy / max(self.residual.expected, SMALL))
        variance = np.einsum("rkk->kr", self._inverse) * self.residual.unit * noise
        return np.asarray(np.abs(off) > ROUNDINGS * self.half_steps + SURE * np.sqrt(variance))

    def _with(self, fault: Fault, off: Array) -> Fault:
        effect = fault.effect + np.einsum("kr,krn->rn", off, self.patterns)
        # a number that rounding holds near 0 is fitted in part
        numbers = np.einsum("rkl,rlk->r", self._inverse, self._gram)
        fitted = float((numbers / self.residual.copies[:, 0]).sum())
        cost = float((self._prior * np.square(off)).sum())
        return Fault(fault.words, effect, fault.fitted + fitted, cost=fault.cost + cost)

    def _off(self, rest: Array) -> Array:
        return self._solved(self._along(rest))

    def _along(self, values: Array) -> Array:
        return np.asarray(np.einsum("krn,rn->kr", self.patterns, self.residual.weight * values))

    def _solved(self, along: Array) -> Array:
        return np.asarray(np.einsum("rkl,lr->kr", self._inverse, along))

    @cached_property
    def _prior(self) -> Array:
        variance = np.square(self.half_steps) * ROUNDINGS / 3
        unit = self.residual.unit / self.residual.copies[:, 0]
        return np.asarray(unit / np.maximum(variance, SMALL))

    @cached_property
    def _gram(self) -> Array:
        weighted = self.patterns * self.residual.weight
        return np.asarray(np.einsum("krn,lrn->rkl", weighted, self.patterns))

    @cached_property
    def _inverse(self) -> Array:
        priors = np.eye(len(self.patterns)) * self._prior.T[:, None]
        return np.asarray(np.linalg.inv(self._gram + priors), np.float64)
