"""Expectations of the sums over all rows: dgamma = sum of dy x^, and dbeta = sum of dy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gonogo.kernels.layernorm.arithmetic.given import GivenMoments
from gonogo.kernels.layernorm.arithmetic.terms import BackwardTerms
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Shared,
    binade,
    cut,
    output_bound,
    ties_of_blocks,
)


def row_tiles(values: Array) -> Array:
    """Return the sums over each tile of 32 rows: (rows, N) -> (row tiles, N)."""
    return np.asarray(np.add.reduceat(values, np.arange(0, values.shape[0], 32), axis=0))


def with_own_statistics(
    expected: Expectation, dy: Array, xhat: Array, known: GivenMoments
) -> Expectation:
    """Return the expectation of dgamma for a kernel that computes its own statistics.

    The error of a row's mean and rstd enters all columns, with the patterns dy r and dy x^. A row
    that isn't informative makes the whole sum not informative.
    """
    if not known.var_mean.any() and not known.var_rstd.any():
        return expected
    slope_mean, slope_rstd = dy * known.rstd, dy * xhat
    trends = [slope_mean * trend for trend in known.trend_mean] + [
        slope_rstd * trend for trend in known.trend_rstd
    ]
    _, first, same = np.unique(
        np.hstack([known.mean, known.rstd]), axis=0, return_index=True, return_inverse=True
    )

    def together(errors: Array) -> Array:  # rows with one mean and rstd err together
        total = np.zeros((len(first), errors.shape[1]))
        np.add.at(total, same.reshape(-1), errors)
        return total

    return replace(
        expected,
        factors=(
            together(slope_mean * np.sqrt(known.var_mean)),
            together(slope_rstd * np.sqrt(known.var_rstd)),
        ),
        shared=(
            *expected.shared,
            *(Shared(np.ones((1, 1)), trend.sum(axis=0, keepdims=True)) for trend in trends),
        ),
        informative=np.array([bool(known.informative.all())]),
    )


def column_sum(
    tiles: Array,
    magnitude: Array,
    bound: Array,
    variance: Array,
    predicted: Array,
    cuts: Array,
    scale: float,
    rows: int,
    t: BackwardTerms,
) -> Expectation:
    """Return the expectation of a sum over rows.

    Its errors are those of the terms, the running sum, partial sums stored after each row tile, and
    the output.

    tiles: the sums of each tile of 32 rows, (row tiles, N). The others are (N,): sums over the rows
    of |term|, of the terms' bounds, variances and predicted errors, and of their errors where every
    buffer truncates. scale: the systematic relative error.
    """
    reference = tiles.sum(axis=0)
    partial = np.abs(np.cumsum(tiles, axis=0)).max(axis=0)
    # Within a tile, and over rows in any order, the running sum walks: at least by the terms' root
    # of the sum of squares
    if t.column is not None or t.any_order:
        partial = np.maximum(partial, magnitude / rows**0.5)
    stored = t.stored_partial * binade(partial)
    u = t.accumulate if t.column is None else t.column
    before = (
        bound + min(rows, 1024) * u * magnitude + len(tiles) * stored + scale * np.abs(reference)
    )
    one_sign = (min(rows, 1024) * u * partial) ** 2 / 12 if t.in_order else 0.0
    noise = (
        variance
        + one_sign
        + rows * (u * partial) ** 2
        + len(tiles) * stored**2 / 3
        + output_bound(reference[None, :], t.out, t.out_block)[0] ** 2 / 3
    )
    allowance: tuple[Array, ...] = ()
    if t.cut:
        truncated_sum = reference + cuts
        allowance = (
            ((truncated_sum if t.out_block else cut(truncated_sum, 2 * t.out)) - reference)[
                None, :
            ],
        )
    return Expectation(
        reference=reference[None, :],
        bound=(before + output_bound((np.abs(reference) + before)[None, :], t.out, t.out_block)[0])[
            None, :
        ],
        noise=noise[None, :],
        out=t.out,
        out_block=t.out_block,
        bias=predicted[None, :],
        allowance=allowance,
        truncated=allowance[0] if allowance else None,
        shared=(
            Shared(np.full((1, 1), scale**2), reference[None, :]),
            *(
                Shared(np.ones((1, 1)), pattern)
                for pattern in ties_of_blocks(reference[None, :], t.out_block)
            ),
        ),
        directions=(Direction("scale", reference[None, :]), Direction("tile", tiles, axis="tiles")),
    )
