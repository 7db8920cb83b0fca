"""Expectations of layernorm_bw: the NumPy definition, one line per term of the budget.

It works on whole matrices in float64.

Derivations, with e = computed - reference and P = dy gamma, x^ = (x - mean) rstd, s1 = mean(P), s2
= mean(P x^): dx = r (P - s1 - x^ s2), so to first order

    e_dx = r (eP - d1 - x^ d2 - s2 eX) + rounding of the subtractions + scale dx
           + rounding of the output,

with d1, d2 the errors of s1, s2 (shared by a row: patterns 1 and x^), and eP, eX those of P and x^.
B adds absolute values. s^2 adds squares: uniform errors as b^2/3; errors of one sign for a whole
row (the truncated 1/N, truncations on re-reading) whole. The stored intermediates' own rounding is
also *predicted* from the inputs (`bias`). Where it has one sign for many elements (constant inputs,
offsets) it is not noise, and a right kernel shows exactly it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.moments import lanes, moments
from gonogo.kernels.layernorm.arithmetic.terms import TF32_READ, BackwardTerms, ForwardTerms
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
    Mask,
    Shared,
    binade,
    coherence,
    cut,
    excess,
    output_bound,
    round_away,
    round_even,
    ties_of_blocks,
    truncate,
)

ARITHMETIC = 2.0**-22
"""Four fp32 operations of the last line, each 2^-24 of the largest operand."""

NEGLIGIBLE = 2.0**-40
"""The noise of float64: a reference below this part of its terms counts as zero."""


def row_tiles(values: Array) -> Array:
    """Return the sums over each tile of 32 rows: (rows, N) -> (row tiles, N)."""
    return np.asarray(np.add.reduceat(values, np.arange(0, values.shape[0], 32), axis=0))


def aligned_error(x: Array, mean: Array) -> Array:
    """Return the error that ELWSUB adds to x - mean.

    It rounds the magnitudes of both half up onto the larger operand's 2^-10 grid.
    """
    grid = binade(np.maximum(np.abs(x), np.abs(mean))) * 2.0**-10
    safe = np.where(grid > 0, grid, 1.0)
    difference = np.copysign(np.floor(np.abs(x) / safe + 0.5) * safe, x) - np.copysign(
        np.floor(np.abs(mean) / safe + 0.5) * safe, mean
    )
    return np.asarray(np.where(grid > 0, difference - (x - mean), 0.0))


def as_read(values: Array, t: BackwardTerms) -> Array:
    """Return the values that the FPU sees: fp32 truncated to TF32 where the terms say so."""
    return truncate(values, TF32_READ) if t.read else values


def largest_partial(terms: Array) -> Array:
    """Return max |partial sum| of each row, in order, (rows, 1)."""
    return np.asarray(np.abs(np.cumsum(terms, axis=1)).max(axis=1, keepdims=True))


@dataclass(frozen=True)
class GivenMoments:
    """Mean and rstd as the kernel has them, (rows, 1), and how far they may be off.

    The bounds and variances are 0 where mean and rstd are inputs.
    """

    mean: Array
    rstd: Array
    mean_error: Array
    rstd_error: Array  # relative
    var_mean: Array
    var_rstd: Array  # relative
    # errors that have one sign in all rows: the truncated 1/N, ties, rounding that all rows share
    trend_mean: tuple[Array, ...]
    trend_rstd: tuple[Array, ...]  # relative
    informative: Mask

    @classmethod
    def given(cls, mean: Array, rstd: Array) -> GivenMoments:
        """Return inputs as they are (statistics: given)."""
        m, r = np.asarray(mean, np.float64)[:, None], np.asarray(rstd, np.float64)[:, None]
        zero = np.zeros_like(m)
        return cls(m, r, zero, zero, zero, zero, (), (), np.ones(m.shape[0], bool))

    @classmethod
    def computed(cls, x: Array, epsilon: float, t: ForwardTerms) -> GivenMoments:
        """Return the moments that the kernel computes from x (statistics: own)."""
        m = moments(x, epsilon, t)
        r = m.rstd
        return cls(
            m.mean,
            r,
            m.bound_mean,
            m.bound_rstd / r,
            m.var_mean,
            m.var_rstd / r**2,
            (m.trend_mean, m.lane_bias, m.together_mean),
            (m.trend_rstd / r, m.together_rstd / r),
            m.informative,
        )


def given_moments(
    given: Mapping[str, NDArray[Any]], epsilon: float, t: BackwardTerms
) -> GivenMoments:
    """Return the kernel's moments for what the device was given."""
    if t.own_statistics is None:
        return GivenMoments.given(given["mean"], given["rstd"])
    return GivenMoments.computed(np.asarray(given["x"], np.float64), epsilon, t.own_statistics)


def expectations(
    given: Mapping[str, NDArray[Any]], known: GivenMoments, t: BackwardTerms
) -> dict[str, Expectation]:
    """Return what is expected of dx, dgamma and dbeta, from what the device was given."""
    x, dy = np.asarray(given["x"], np.float64), np.asarray(given["dy"], np.float64)
    gamma = np.asarray(given["gamma"], np.float64)[None, :]
    m, r = known.mean, known.rstd
    rows, n = x.shape

    xhat = (x - m) * r
    p = dy * gamma
    px = p * xhat
    s1, s2 = p.mean(axis=1, keepdims=True), px.mean(axis=1, keepdims=True)
    dx = r * (p - s1 - xhat * s2)

    mean_error, rstd_error = known.mean_error, known.rstd_error
    e_align = (
        t.align * binade(np.maximum(np.abs(x), np.abs(m))) + t.read * (np.abs(x) + np.abs(m))
    ) * r
    h_xhat = t.xhat * binade(np.abs(xhat) + e_align)
    moved = mean_error * r  # by how much a wrong mean shifts x^; its square moves s1's part of dx
    e_xhat = e_align + h_xhat + moved
    relative = t.product + 2 * t.read
    e_p = relative * np.abs(p) + t.stored_product * binade(p)

    lane1, lane2 = lanes(p), lanes(px)
    running = t.additions * t.accumulate
    d1 = (
        (t.reciprocal + t.read_sum + t.product) * np.abs(s1)
        + t.stored_sum * binade(s1)
        + t.read_lane * np.abs(lane1).sum(1, keepdims=True) / n
        + running * np.abs(p).mean(1, keepdims=True)
        + e_p.mean(1, keepdims=True)
    )
    d2 = (
        (t.reciprocal + t.read_sum + t.product) * np.abs(s2)
        + t.stored_sum * binade(s2)
        + t.read_lane * np.abs(lane2).sum(1, keepdims=True) / n
        + running * np.abs(px).mean(1, keepdims=True)
        + (np.abs(p) * e_xhat + np.abs(xhat) * e_p + t.stored_weighted * binade(px)).mean(
            1, keepdims=True
        )
    )
    h_difference = t.difference * (binade(p - s1) + binade(xhat * s2) + binade(p - s1 - xhat * s2))
    before = (
        r
        * (
            e_p
            + h_difference
            + d1
            + np.abs(xhat) * d2
            + np.abs(s2) * e_xhat
            + d2 * moved
            + 2 * rstd_error * np.abs(xhat * s2)
        )
        + (t.scale + rstd_error) * np.abs(dx)
        + ARITHMETIC * r * (np.abs(p) + np.abs(s1) + np.abs(xhat * s2))
    )
    bound = before + output_bound(np.abs(dx) + before, t.out, t.out_block)

    # The rounding of stored intermediates, predicted: x^, P and P x^.
    x_read, m_read = as_read(x, t), as_read(m, t)
    computed_xhat = (
        x_read - m_read + (aligned_error(x_read, m_read) if t.align >= 2.0**-12 else 0.0)
    ) * r
    d_even = round_even(computed_xhat, t.xhat) - xhat
    # the packer rounds ties away; an rstd of few bits makes many ties
    stored_xhat = round_away(computed_xhat, t.xhat)
    d_xhat = stored_xhat - xhat
    p_read = as_read(dy, t) * as_read(gamma, t)
    d_p = (round_away(p_read, t.stored_product) if t.stored_product else p_read) - p
    d_px = round_away(px, t.stored_weighted) - px if t.stored_weighted else np.zeros_like(p)
    bias1 = d_p.mean(1, keepdims=True)
    others = (xhat * d_p + d_px).mean(1, keepdims=True)
    bias2 = np.maximum(
        np.abs((p * d_xhat).mean(1, keepdims=True) + others),
        np.abs((p * d_even).mean(1, keepdims=True) + others),
    )

    used2 = np.abs(s2) + np.abs(bias2)  # x^ s2 itself, to second order
    shift1 = used2 * d_xhat.mean(1, keepdims=True)
    shift2 = used2 * (xhat * d_xhat).mean(1, keepdims=True)

    var_xhat = (e_align**2 + h_xhat**2) / 3
    var_p = e_p**2 / 3
    # truncations count with the mean of what they drop
    systematic = (t.reciprocal + t.read_sum / 2 + t.read_lane / 2 + t.product) ** 2
    lane_variance = t.read_lane**2 / 3 + t.additions * t.accumulate**2
    one_sign = running / 12**0.5 if t.in_order else 0.0
    # A sum in order errs by its largest partial sum, which may be far above the sum itself (a ramp
    # from -1 to 1)
    most1, most2 = (
        largest_partial(terms) if t.in_order else np.abs(terms.sum(1, keepdims=True))
        for terms in (p, px)
    )
    own1 = var_p.sum(1, keepdims=True) / n**2
    own2 = (p**2 * var_xhat + xhat**2 * var_p + (t.stored_weighted * binade(px)) ** 2 / 3).sum(
        1, keepdims=True
    ) / n**2
    v1 = (
        (systematic + t.read_sum**2 / 12) * s1**2
        + (t.stored_sum * binade(s1)) ** 2 / 3
        + (
            lane_variance * (lane1**2).sum(1, keepdims=True)
            + t.additions * t.accumulate**2 * ((p**2).sum(1, keepdims=True) + most1**2)
        )
        / n**2
        + (one_sign * s1) ** 2
        + own1
        + excess(bias1**2, own1)
        + excess(shift1**2, s2**2 * var_xhat.sum(1, keepdims=True) / n**2)
        + (s2 * r) ** 2 * known.var_mean
        + s1**2 * moved**4 / 3
    )
    v2 = (
        (systematic + t.read_sum**2 / 12) * s2**2
        + (t.stored_sum * binade(s2)) ** 2 / 3
        + (
            lane_variance * (lane2**2).sum(1, keepdims=True)
            + t.additions * t.accumulate**2 * ((px**2).sum(1, keepdims=True) + most2**2)
        )
        / n**2
        + (one_sign * s2) ** 2
        + own2
        + excess(bias2**2, own2)
        + excess(shift2**2, s2**2 * (xhat**2 * var_xhat).sum(1, keepdims=True) / n**2)
        + (s1 * r) ** 2 * known.var_mean
        + 4 * s2**2 * known.var_rstd
    )
    differences = t.difference**2 * (binade(p - s1) ** 2 + binade(p - s1 - xhat * s2) ** 2)
    # x^ s2 is stored, too. A row has one s2, so all elements with one stored x^ are rounded alike,
    # and a long row has many elements for each stored x^.
    rounded_alike = (
        (Keyed(stored_xhat, r * t.difference * binade(xhat * s2) / 3**0.5, adds_variance=True),)
        if t.difference
        else ()
    )
    noise = (
        r**2 * (var_p + s2**2 * var_xhat + differences / 3)
        + output_bound(dx, t.out, t.out_block) ** 2 / 3
    )
    noise = noise + (ARITHMETIC * r * (np.abs(p) + np.abs(s1) + np.abs(xhat * s2))) ** 2
    scale = t.scale + t.product_mean + t.read
    # s1 and s2 are rounded once per row: one error for all rows when all rows have the same sums
    once = 2 * t.stored_sum
    spread1 = (
        coherence(s1[known.informative, 0], t.stored_sum) * once * binade(s1)
        if once
        else np.zeros_like(s1)
    )
    spread2 = (
        coherence(s2[known.informative, 0], t.stored_sum) * once * binade(s2)
        if once
        else np.zeros_like(s2)
    )
    ties = ties_of_blocks(dx, t.out, t.out_block)
    patterns = tuple(Shared(np.ones((1, 1)), pattern) for pattern in ties)
    allowance: tuple[Array, ...] = ()
    if t.difference:
        # Stored P - s1 is rounded on P's grid: all P of a row in one binade lose the same part of
        # s1. And where x^ s2 is smaller than half a step of P - s1, stored P - s1 - x^ s2 loses all
        # of it.
        stored_p, stored_xs2 = (
            round_away(p_read, t.stored_product),
            round_away(stored_xhat * s2, t.difference),
        )
        for s in (s1, s1 - d1, s1 + d1):
            first = round_away(stored_p - s, t.difference)
            second = round_away(first - stored_xs2, t.difference)
            allowance += (r * ((first - (stored_p - s)) + (second - (first - stored_xs2))),)
    d_cut = np.zeros_like(p)  # what truncating buffers make of dgamma's terms
    truncated: Array | None = None
    if t.cut:
        truncated = truncated_dataflow(x_read - m_read, r, p_read, dx, t)
        allowance += (truncated,)
        d_cut = cut(as_read(dy, t) * cut(cut(x_read - m_read, t.cut) * r, t.cut), t.cut) - dy * xhat
    floor = n * (NEGLIGIBLE * r[:, 0] * np.abs(p).max(axis=1, initial=0.0)) ** 2
    expected = {
        "dx": Expectation(
            reference=dx,
            bound=bound,
            noise=noise,
            out=t.out,
            out_block=t.out_block,
            informative=known.informative,
            shared=(
                Shared(r**2 * v1, np.ones((1, 1))),
                Shared(r**2 * v2, xhat),
                Shared(scale**2 + known.var_rstd, dx),
                *patterns,
            ),
            trend=(
                r * (bias1 + xhat * bias2),
                np.sqrt(systematic) * r * (s1 + xhat * s2),
                scale * dx,
                *ties,
            ),
            allowance=allowance,
            truncated=truncated,
            keyed=rounded_alike,
            spread=r * (spread1 + np.abs(xhat) * spread2),
            directions=(
                Direction("row", np.ones_like(x)),
                Direction("xhat", xhat),
                Direction("scale", dx, floor=floor),
                Direction("col", np.ones_like(x), axis="column"),
            ),
        )
    }

    c = dy * xhat
    h_c = t.stored_column * binade(c)
    terms_bound = np.abs(dy) * e_xhat + h_c + (relative + rstd_error) * np.abs(c)
    terms_variance = dy**2 * var_xhat + h_c**2 / 3 + (relative * c) ** 2 / 3
    c_read = as_read(dy, t) * (xhat + d_xhat)
    # fp32 buffers are re-read as TF32, truncated: one sign in all terms
    d_c = (
        truncate(c_read, TF32_READ)
        if t.stored_column == TF32_READ
        else round_away(c_read, t.stored_column)
    ) - c
    sums = column_sum(
        row_tiles(c),
        np.abs(c).sum(axis=0),
        terms_bound.sum(axis=0),
        terms_variance.sum(axis=0),
        d_c.sum(axis=0),
        d_cut.sum(axis=0),
        scale,
        rows,
        t,
    )
    expected["dgamma"] = (
        sums if t.own_statistics is None else with_own_statistics(sums, dy, xhat, known)
    )
    magnitude = np.abs(dy).sum(axis=0)
    read = t.read + t.product
    expected["dbeta"] = column_sum(
        row_tiles(dy),
        magnitude,
        read * magnitude,
        read**2 / 3 * (dy**2).sum(axis=0),
        np.zeros(n),
        np.zeros(n),
        t.read + t.product_mean + t.scale,
        rows,
        t,
    )
    return expected


def truncated_dataflow(centred: Array, r: Array, p: Array, dx: Array, t: BackwardTerms) -> Array:
    """Return the error of dx where every buffer on its way truncates, and the output, too.

    Truncation has a sign: toward zero. A kernel may truncate some of its buffers and round others
    to nearest; its error is then a part of this. centred: x - mean as read. p: P as read.
    """
    x, first = cut(cut(centred, t.cut) * r, t.cut), cut(p, t.cut)
    s1 = cut(first.mean(1, keepdims=True), t.cut)
    s2 = cut(cut(first * x, t.cut).mean(1, keepdims=True), t.cut)
    truncated_dx = r * cut(cut(first - s1, t.cut) - cut(x * s2, t.cut), t.cut)
    return (truncated_dx if t.out_block else cut(truncated_dx, 2 * t.out)) - dx


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
                for pattern in ties_of_blocks(reference[None, :], t.out, t.out_block)
            ),
        ),
        directions=(Direction("scale", reference[None, :]), Direction("tile", tiles, axis="tiles")),
    )
