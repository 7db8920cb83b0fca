"""Expectations of layernorm_bw and rmsnorm_bw: the NumPy definition, one line per term.

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

e_r is the relative error of rstd where the kernel computes it itself: an rstd off by a factor 1 + e
moves dx by e (dx - 2 r x^ s2).

A kernel that subtracts no mean (RMSNorm) is the same without mean and s1: x^ has no alignment
error, and P isn't stored a second time as P - s1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.columns import column_sum, row_tiles, with_own_statistics
from gonogo.kernels.layernorm.arithmetic.given import GivenMoments
from gonogo.kernels.layernorm.arithmetic.moments import Coherent
from gonogo.kernels.layernorm.arithmetic.row_sums import (
    RowSum,
    coherence_of,
    row_means,
    row_sum,
    systematic_variance,
)
from gonogo.kernels.layernorm.arithmetic.terms import ARITHMETIC, TF32_READ, BackwardTerms
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
    Shared,
    binade,
    cut,
    excess,
    output_bound,
    round_away,
    round_even,
    ties_of_blocks,
    truncate,
)

NEGLIGIBLE = 2.0**-40
"""The noise of float64: a reference below this part of its terms counts as zero."""


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


@dataclass(frozen=True)
class Normalized:
    """x^ of some rows and columns with its errors, (rows, columns) each."""

    value: Array
    error: Array  # a bound
    variance: Array
    moved: Array  # (rows, 1)
    read: Array  # x - mean as the FPU reads them
    computed: Array  # x^ before it is stored
    stored: Array

    @classmethod
    def of(cls, x: Array, known: GivenMoments, t: BackwardTerms, *, centered: bool) -> Normalized:
        """Return x^ of x."""
        align = t.align if centered else 0.0
        m, r = known.mean, known.rstd
        xhat = (x - m) * r
        e_align = (
            align * binade(np.maximum(np.abs(x), np.abs(m))) + t.read * (np.abs(x) + np.abs(m))
        ) * r
        h_xhat = t.xhat * binade(np.abs(xhat) + e_align)
        # by how much a wrong mean shifts x^; its square moves s1's part of dx
        moved = known.mean_error * r
        x_read, m_read = as_read(x, t), as_read(m, t)
        aligned = aligned_error(x_read, m_read) if align >= 2.0**-12 else 0.0
        computed = (x_read - m_read + aligned) * r
        return cls(
            value=xhat,
            error=e_align + h_xhat + moved,
            variance=(e_align**2 + h_xhat**2) / 3,
            moved=moved,
            read=x_read - m_read,
            computed=computed,
            # the packer rounds ties away; an rstd of few bits makes many ties
            stored=round_away(computed, t.xhat),
        )

    def truncated(self, r: Array, t: BackwardTerms, *, centered: bool) -> Array:
        """Return x^ where every buffer on its way truncates."""
        return cut((cut(self.read, t.cut) if centered else self.read) * r, t.cut)


def input_gradient(
    given: Mapping[str, NDArray[Any]],
    known: GivenMoments,
    t: BackwardTerms,
    coherent: Coherent | None = None,
    *,
    centered: bool = True,
) -> Expectation:
    """Return what is expected of dx, from what the device was given.

    Args:
        given: x and dy, some rows; gamma.
        known: the statistics of these rows.
        t: the dataflow.
        coherent: how far s1 and s2 of all rows are rounded alike; by default those of these rows.
        centered: whether the kernel subtracts a mean; without one `known` has a mean of 0.
    """
    x, dy = np.asarray(given["x"], np.float64), np.asarray(given["dy"], np.float64)
    gamma = np.asarray(given["gamma"], np.float64)[None, :]
    r = known.rstd
    rows, n = x.shape

    normalized = Normalized.of(x, known, t, centered=centered)
    xhat, e_xhat, moved = normalized.value, normalized.error, normalized.moved
    p = dy * gamma
    px = p * xhat
    s2 = px.mean(axis=1, keepdims=True)
    through = xhat * s2

    rstd_error = known.rstd_error
    relative = t.product + 2 * t.read
    e_p = relative * np.abs(p) + t.stored_product * binade(p)
    var_xhat, var_p = normalized.variance, e_p**2 / 3

    # The rounding of stored intermediates, predicted: x^, P and P x^.
    d_even = round_even(normalized.computed, t.xhat) - xhat
    stored_xhat = normalized.stored
    d_xhat = stored_xhat - xhat
    p_read = as_read(dy, t) * as_read(gamma, t)
    stored_p = round_away(p_read, t.stored_product)
    d_p = stored_p - p
    others = (xhat * d_p + (round_away(px, t.stored_weighted) - px)).mean(1, keepdims=True)
    bias2 = np.maximum(
        np.abs((p * d_xhat).mean(1, keepdims=True) + others),
        np.abs((p * d_even).mean(1, keepdims=True) + others),
    )

    used2 = np.abs(s2) + np.abs(bias2)  # x^ s2 itself, to second order
    weighted = t.stored_weighted * binade(px)
    if coherent is None:
        coherent = coherence_of(row_means(p, xhat), t, known.informative)
    first, second = (
        RowSum.none(rows),
        row_sum(
            px,
            t,
            coherent[1],
            bounds=np.abs(p) * e_xhat + np.abs(xhat) * e_p + weighted,
            variances=p**2 * var_xhat + xhat**2 * var_p + weighted**2 / 3,
            bias=bias2,
            shift=used2 * (xhat * d_xhat).mean(1, keepdims=True),
            shift_variance=s2**2 * (xhat**2 * var_xhat).sum(1, keepdims=True) / n**2,
        ),
    )
    if centered:
        first = row_sum(
            p,
            t,
            coherent[0],
            bounds=e_p,
            variances=var_p,
            bias=d_p.mean(1, keepdims=True),
            shift=used2 * d_xhat.mean(1, keepdims=True),
            shift_variance=s2**2 * var_xhat.sum(1, keepdims=True) / n**2,
        )
    s1, d1, d2 = first.value, first.bound, second.bound
    v1 = first.variance + (s2 * r) ** 2 * known.var_mean + s1**2 * moved**4 / 3
    v2 = second.variance + (s1 * r) ** 2 * known.var_mean + 4 * s2**2 * known.var_rstd

    rest = p - s1 - through
    dx = r * rest
    size = np.abs(p) + np.abs(s1) + np.abs(through)
    stored_first = binade(p - s1) if centered else 0.0
    before = (
        r
        * (
            e_p
            + t.difference * (stored_first + binade(through) + binade(rest))
            + d1
            + np.abs(xhat) * d2
            + np.abs(s2) * e_xhat
            + d2 * moved
            + 2 * rstd_error * np.abs(through)
        )
        + (t.scale + rstd_error) * np.abs(dx)
        + ARITHMETIC * r * size
    )
    noise = (
        r**2
        * (var_p + s2**2 * var_xhat + t.difference**2 * (stored_first**2 + binade(rest) ** 2) / 3)
        + output_bound(dx, t.out, t.out_block) ** 2 / 3
        + (ARITHMETIC * r * size) ** 2
    )
    scale = t.scale + t.product_mean + t.read
    ties = ties_of_blocks(dx, t.out_block)
    ones = np.ones_like(x)
    keyed: tuple[Keyed, ...] = ()
    allowance: tuple[Array, ...] = ()
    if t.difference:
        # x^ s2 is stored, too. A row has one s2, so all elements with one stored x^ are rounded
        # alike, and a long row has many elements for each stored x^.
        amplitude = r * t.difference * binade(through) / 3**0.5
        keyed = (Keyed(stored_xhat, amplitude, adds_variance=True),)
        # Stored P - s1 is rounded on P's grid: all P of a row in one binade lose the same part of
        # s1. And where x^ s2 is smaller than half a step of P - s1, stored P - s1 - x^ s2 loses all
        # of it.
        for a in (0, -1, 1):
            used_s1, used_s2 = (s1 + a * d1, s2) if centered else (s1, s2 + a * d2)
            stored_xs2 = round_away(stored_xhat * used_s2, t.difference)
            left = round_away(stored_p - used_s1, t.difference) if centered else stored_p
            last = round_away(left - stored_xs2, t.difference)
            allowance += (r * ((left - (stored_p - used_s1)) + (last - (left - stored_xs2))),)
    truncated: Array | None = None
    if t.cut:
        cut_xhat = normalized.truncated(r, t, centered=centered)
        truncated = truncated_dx(cut_xhat, r, cut(p_read, t.cut), t, centered=centered) - dx
        allowance += (truncated,)
    floor = n * (NEGLIGIBLE * r[:, 0] * np.abs(p).max(axis=1, initial=0.0)) ** 2
    return Expectation(
        reference=dx,
        bound=before + output_bound(np.abs(dx) + before, t.out, t.out_block),
        noise=noise,
        out=t.out,
        out_block=t.out_block,
        informative=known.informative,
        shared=(
            *([Shared(r**2 * v1, np.ones((1, 1)))] if centered else []),
            Shared(r**2 * v2, xhat),
            Shared(scale**2 + known.var_rstd, dx),
            *(Shared(np.ones((1, 1)), pattern) for pattern in ties),
        ),
        trend=(
            r * (first.bias + xhat * second.bias),
            np.sqrt(systematic_variance(t)) * r * (s1 + through),
            scale * dx,
            *ties,
        ),
        allowance=allowance,
        truncated=truncated,
        keyed=keyed,
        spread=r * (first.spread + np.abs(xhat) * second.spread),
        directions=(
            Direction("row", ones),
            Direction("xhat", xhat),
            Direction("scale", dx, floor=floor),
            Direction("col", ones, axis="column"),
        ),
    )


def column_sums(
    given: Mapping[str, NDArray[Any]],
    known: GivenMoments,
    t: BackwardTerms,
    *,
    centered: bool = True,
) -> dict[str, Expectation]:
    """Return what is expected of dgamma and dbeta, from some columns of x and dy with all rows.

    A kernel that subtracts no mean has no dbeta; see input_gradient.
    """
    x, dy = np.asarray(given["x"], np.float64), np.asarray(given["dy"], np.float64)
    rows, n = x.shape
    normalized = Normalized.of(x, known, t, centered=centered)
    xhat = normalized.value
    relative = t.product + 2 * t.read
    scale = t.scale + t.product_mean + t.read
    c = dy * xhat
    h_c = t.stored_column * binade(c)
    c_read = as_read(dy, t) * normalized.stored
    # fp32 buffers are re-read as TF32, truncated: one sign in all terms
    stored_c = (
        truncate(c_read, TF32_READ)
        if t.stored_column == TF32_READ
        else round_away(c_read, t.stored_column)
    )
    predicted = (stored_c - c).sum(axis=0)
    variance = (dy**2 * normalized.variance + h_c**2 / 3 + (relative * c) ** 2 / 3).sum(axis=0)
    if not centered:  # equal rows round their terms alike
        variance = variance + excess(predicted**2, variance)
    bound = np.abs(dy) * normalized.error + h_c + (relative + known.rstd_error) * np.abs(c)
    d_cut = np.zeros(n)  # what truncating buffers make of the terms
    if t.cut:
        cut_xhat = normalized.truncated(known.rstd, t, centered=centered)
        d_cut = (cut(as_read(dy, t) * cut_xhat, t.cut) - c).sum(axis=0)
    dgamma = column_sum(
        row_tiles(c),
        np.abs(c).sum(axis=0),
        bound.sum(axis=0),
        variance,
        predicted,
        d_cut,
        scale,
        rows,
        t,
    )
    if t.own_statistics is not None:
        dgamma = with_own_statistics(dgamma, dy, xhat, known)
    expected = {"dgamma": dgamma}
    if centered:
        magnitude, read = np.abs(dy).sum(axis=0), t.read + t.product
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


def truncated_dx(xhat: Array, r: Array, p: Array, t: BackwardTerms, *, centered: bool) -> Array:
    """Return dx where every buffer on its way truncates, and the output, too.

    Truncation has a sign: toward zero. A kernel may truncate some of its buffers and round others
    to nearest; its error is then a part of this. xhat, p: as the buffers hold them.
    """
    s1 = cut(p.mean(1, keepdims=True), t.cut) if centered else 0.0
    s2 = cut(cut(p * xhat, t.cut).mean(1, keepdims=True), t.cut)
    dx = r * cut(cut(p - s1, t.cut) - cut(xhat * s2, t.cut), t.cut)
    return dx if t.out_block else cut(dx, 2 * t.out)
