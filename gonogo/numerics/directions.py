"""Directions: rounding is noise, a wrong term has a direction.

The functions compute slopes of the error and their standard deviations. The slope of e on a
direction w is sum(w e) / sum(w^2). Over its standard deviation it is z, in which sum(w^2) cancels:

    z = sum(w e) / sqrt(var),
    var = sum over groups of (sum over the group |w| sqrt(noise))^2      each element's own error;
                                                                         equal references share one
        + sum_k variance_k (sum w pattern_k)^2                           errors shared by the row
        + sum over keys of (sum over the key w amplitude)^2              errors that equal inputs,
        or
                                                                         equal grids, share (Keyed)
        + excess of (sum w e0)^2 and (sum w bias)^2                      see below

The excess is what a perfectly rounded output, and the rounding of the stored intermediates, show
beyond chance by themselves. sum(w e) counts only as far as it lies outside the hull of 0 and the
allowances' projections. e0 = rounded(reference) - reference, for ties to even and ties away (the
larger counts). Down a column rows are independent, except for identical rows, for trends and for
spreads (see expectation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
    Mask,
    Repeats,
    excess,
)

Golden = tuple[Array, ...]
"""Errors of perfectly rounded outputs: ties to even, and ties away.

Where a bias is known, those of the predicted value follow.
"""


@dataclass(frozen=True)
class Scores:
    """The z of one direction: over its rows, columns or tiles.

    `count` is the number of those that could be measured.
    """

    rms: float | None
    largest: float | None
    count: int
    z: Array

    @classmethod
    def of(cls, numerator: Array, variance: Array, valid: Mask) -> Scores:
        """Return z where `valid`. 0/0 can't be measured; x/0 is infinite."""
        used = valid & ~((variance <= 0) & (numerator == 0)) & np.isfinite(numerator)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(used, numerator / np.sqrt(variance), np.nan)
        count = int(used.sum())
        if count == 0:
            return cls(None, None, 0, z)
        scores = np.abs(z[used])
        return cls(float(np.sqrt(np.mean(scores**2))), float(scores.max()), count, z)


def grouped(alike: Repeats | None, amounts: Array) -> Array:
    """Return the sum over keys of (sum of amounts)^2; amounts are (count, N)."""
    if alike is None:
        return np.asarray((amounts**2).sum(axis=1))
    return np.array([(np.bincount(alike, weights=row) ** 2).sum() for row in amounts])


def identical_rows(reference: Array) -> NDArray[np.intp]:
    """Return for each row the index of the first row that equals it bit for bit."""
    seen: dict[bytes, int] = {}
    return np.array(
        [
            seen.setdefault(np.ascontiguousarray(row).tobytes(), i)
            for i, row in enumerate(reference)
        ],
        dtype=np.intp,
    )


def scores_of(name: str, scores: Scores | None) -> dict[str, float | int | None]:
    """Return the statistics of a direction from its scores; None where it can't be measured."""
    if scores is None:
        return {f"{name}_z": None, f"{name}_z_max": None, f"{name}_count": 0}
    return {
        f"{name}_z": scores.rms,
        f"{name}_z_max": scores.largest,
        f"{name}_count": scores.count,
    }


def outside(projection: Array, allowances: Sequence[Array]) -> Array:
    """Return how far each projection lies outside the hull of 0 and the allowances', signed."""
    zero = np.zeros_like(projection)
    lowest, highest = np.min([zero, *allowances], axis=0), np.max([zero, *allowances], axis=0)
    return np.asarray(np.maximum(projection - highest, 0.0) + np.minimum(projection - lowest, 0.0))


def keyed(w: Array, errors: Keyed) -> Array:
    """Return the variance per row of errors that the elements with one key share."""
    amounts = np.where(np.isnan(errors.key), 0.0, w * errors.amplitude)
    return each_row(errors.repeats, amounts)


def each_row(alike: Sequence[Repeats | None], amounts: Array) -> Array:
    """Return `grouped` of each row of amounts (rows, N)."""
    if amounts.flags.c_contiguous and not any(same is not None for same in alike):
        return grouped(None, amounts)  # row by row, too: in this order in memory
    return np.concatenate(
        [grouped(same, row[None]) for same, row in zip(alike, amounts, strict=True)]
    )


@dataclass(frozen=True)
class Ruler:
    """A direction on an output, ready to measure any of its errors.

    Attributes:
        weights: the direction's weights, in the shape that they are applied.
        axis: the axis that is summed over: 1 for one z per row (or tile), 0 for one per column.
        variance: of the projections of a right kernel's errors.
        valid: where the direction can be measured.
        allowances: the projections of the errors that a right kernel may make as a whole.
    """

    weights: Array
    axis: int
    variance: Array
    valid: Mask
    allowances: tuple[Array, ...]

    @classmethod
    def of(cls, expected: Expectation, direction: Direction, golden_errors: Golden) -> Ruler:
        """Return the ruler of a direction."""
        if direction.axis == "column":
            return _down_columns(expected, direction, golden_errors)
        return _along_rows(expected, direction, golden_errors)

    def scores(self, error: Array) -> Scores:
        """Return the z of an error.

        The caller must have left out rows (of the matrix) that hold a non-finite error.
        """
        return Scores.of(self.numerator(error), self.variance, self.valid)

    def numerator(self, error: Array) -> Array:
        """Return the error's projections, as far as no allowance explains them."""
        return outside((self.weights * error).sum(axis=self.axis), self.allowances)


def _along_rows(expected: Expectation, direction: Direction, golden_errors: Golden) -> Ruler:
    """Return the ruler of one z per row.

    For "tiles" there is one per row of the weights, on the single row of the output.
    """
    w = direction.weights
    if direction.axis == "tiles":
        independent = grouped(expected.repeats[0], np.abs(w) * np.sqrt(expected.noise[0]))
    else:
        independent = each_row(expected.repeats, np.abs(w) * np.sqrt(expected.noise))
    variance = independent + excess(
        np.max(np.array([(w * golden).sum(axis=1) ** 2 for golden in golden_errors]), axis=0),
        independent,
    )
    for shared in expected.shared:
        variance = variance + shared.variance[:, 0] * (w * shared.pattern).sum(axis=1) ** 2
    for errors in expected.keyed:
        variance = variance + keyed(w, errors)
    for factor in expected.factors:
        variance = variance + ((w @ factor.T) ** 2).sum(axis=1)
    if expected.bias is not None:
        variance = variance + excess((w * expected.bias).sum(axis=1) ** 2, independent)
    return Ruler(
        w,
        1,
        variance,
        (w**2).sum(axis=1) > direction.floor,
        tuple((w * allowance).sum(axis=1) for allowance in expected.allowance),
    )


def _down_columns(expected: Expectation, direction: Direction, golden_errors: Golden) -> Ruler:
    """Return the ruler of one z per column.

    Rows are independent, groups of identical rows coherent.
    """
    w = np.broadcast_to(direction.weights, expected.reference.shape)
    amounts = np.abs(w) * np.sqrt(expected.variance)
    first = identical_rows(expected.reference)
    together = np.zeros_like(amounts)
    np.add.at(together, first, amounts)
    independent = (together**2).sum(axis=0)
    variance = independent + excess(
        np.max(np.array([(w * golden).sum(axis=0) ** 2 for golden in golden_errors]), axis=0),
        independent,
    )
    for trend in expected.trend:
        variance = variance + (w * trend).sum(axis=0) ** 2
    if expected.spread is not None:
        variance = variance + (np.abs(w) * expected.spread).sum(axis=0) ** 2
    return Ruler(
        w,
        0,
        variance,
        (w**2).sum(axis=0) > direction.floor,
        tuple((w * allowance).sum(axis=0) for allowance in expected.allowance),
    )


def scores(
    expected: Expectation, direction: Direction, error: Array, golden_errors: Golden
) -> Scores:
    """Return the z of `direction`.

    The caller must have left out rows (of the matrix) that hold a non-finite error.
    """
    return Ruler.of(expected, direction, golden_errors).scores(error)
