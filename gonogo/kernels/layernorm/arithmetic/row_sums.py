"""The means s1 and s2 of a row in a backward kernel, and their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gonogo.kernels.layernorm.arithmetic.moments import Coherent, lanes
from gonogo.kernels.layernorm.arithmetic.terms import BackwardTerms
from gonogo.numerics.expectation import Array, Mask, binade, coherence, excess


@dataclass(frozen=True)
class RowSum:
    """The mean of a row's terms, (rows, 1), and its errors.

    Attributes:
        value: the exact mean.
        bound, variance: those of its error.
        bias: what the predicted rounding of its terms adds, which may have one sign.
        spread: how much of the rounding of the stored value all rows share.
    """

    value: Array
    bound: Array
    variance: Array
    bias: Array
    spread: Array

    @classmethod
    def none(cls, rows: int) -> RowSum:
        """Return the sum of a kernel that has none: 0, without errors."""
        zero = np.zeros((rows, 1))
        return cls(zero, zero, zero, zero, zero)


def systematic_variance(t: BackwardTerms) -> float:
    """Return the square of a sum's relative error that has one sign in all rows.

    Truncations count with the mean of what they drop.
    """
    return (t.reciprocal + t.read_sum / 2 + t.read_lane / 2 + t.product) ** 2


def row_sum(
    terms: Array,
    t: BackwardTerms,
    coherent: float,
    *,
    bounds: Array,
    variances: Array,
    bias: Array,
    shift: Array,
    shift_variance: Array,
) -> RowSum:
    """Return the mean of `terms` (rows, N), summed in 32 lanes, with its errors.

    Args:
        terms: P for s1, P x^ for s2.
        t: the dataflow.
        coherent: how far the stored means of all rows are rounded alike; see coherence_of.
        bounds: those of each term's own error (rows, N).
        variances: its variance (rows, N).
        bias: as in RowSum.
        shift: what the predicted rounding of x^ adds to the mean of x^ s2 or of x^^2 s2.
        shift_variance: the variance that independent rounding of x^ would give it.
    """
    n = terms.shape[1]
    value, lane = terms.mean(axis=1, keepdims=True), lanes(terms)
    running = t.additions * t.accumulate
    bound = (
        (t.reciprocal + t.read_sum + t.product) * np.abs(value)
        + t.stored_sum * binade(value)
        + t.read_lane * np.abs(lane).sum(1, keepdims=True) / n
        + running * np.abs(terms).mean(1, keepdims=True)
        + bounds.mean(1, keepdims=True)
    )
    # A sum in order errs by its largest partial sum, which may be far above the sum itself (a ramp
    # from -1 to 1).
    partial = np.cumsum(terms, axis=1) if t.in_order else terms.sum(1, keepdims=True)
    most = np.abs(partial).max(axis=1, keepdims=True)
    lane_variance = t.read_lane**2 / 3 + t.additions * t.accumulate**2
    one_sign = running / 12**0.5 if t.in_order else 0.0
    of_terms = variances.sum(1, keepdims=True) / n**2
    variance = (
        (systematic_variance(t) + t.read_sum**2 / 12) * value**2
        + (t.stored_sum * binade(value)) ** 2 / 3
        + (
            lane_variance * (lane**2).sum(1, keepdims=True)
            + t.additions * t.accumulate**2 * ((terms**2).sum(1, keepdims=True) + most**2)
        )
        / n**2
        + (one_sign * value) ** 2
        + of_terms
        + excess(bias**2, of_terms)
        + excess(shift**2, shift_variance)
    )
    # It is rounded once per row: one error for all rows when all rows have the same sum.
    return RowSum(value, bound, variance, bias, coherent * 2 * t.stored_sum * binade(value))


def row_means(p: Array, xhat: Array) -> tuple[Array, Array]:
    """Return s1 and s2 of each row, (rows, 1)."""
    return p.mean(axis=1, keepdims=True), (p * xhat).mean(axis=1, keepdims=True)


def coherence_of(means: tuple[Array, Array], t: BackwardTerms, informative: Mask) -> Coherent:
    """Return how far s1 and s2 are rounded alike in the rows that can tell right from wrong."""
    if not t.stored_sum:
        return 0.0, 0.0
    first, second = (coherence(mean[informative, 0], t.stored_sum) for mean in means)
    return first, second
