"""The reference and the budget of rmsnorm_bw: dx = r (P - x^ s2) and dgamma = sum of dy x^.

P = dy gamma, x^ = x r, s2 = mean(P x^). The derivation is that of layernorm_bw
(gonogo.kernels.layernorm.arithmetic.backward), whose dataflow this is without a mean and s1. To
first order, with e = computed - reference,

    e_dx = r (eP - x^ d2 - s2 eX) + rounding of the subtraction + scale dx + rounding of the output

    eX = read |x^| + h(x^): no mean is subtracted, so that x^ has no alignment error
    d2 = dN |s2| + sum_c read |acc_c| / N + read |s2| + running mean|P x^| + mean(|P| eX + |x^| eP)
         + stores
    B_dx = r (eP + |x^| d2 + |s2| eX + 2 e_r |x^ s2| + h(x^ s2) + h(P - x^ s2)) + (scale + e_r) |dx|
           + h(|dx| + ...)

e_r is the relative error of rstd where the kernel computes it itself: dx = r P - r^3 x mean(P x),
so an rstd off by a factor 1 + e moves dx by e (dx - 2 r x^ s2). The terms (u of a stored value,
read, product, dN ...) are BackwardTerms. B adds absolute values; s^2 adds squares, uniform errors
as b^2 / 3, and errors of one sign for a whole row whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.backward import (
    ARITHMETIC,
    NEGLIGIBLE,
    GivenMoments,
    as_read,
    column_sum,
    largest_partial,
    row_tiles,
    with_own_statistics,
)
from gonogo.kernels.layernorm.arithmetic.moments import lanes
from gonogo.kernels.layernorm.arithmetic.terms import TF32_READ, BackwardTerms
from gonogo.kernels.rmsnorm import budget
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
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


def reference(arrays: Mapping[str, NDArray[np.floating]], epsilon: float) -> dict[str, Array]:
    """Return dx (rows, N) and dgamma (N,) in float64; rstd is that of x where `arrays` has none."""
    x, dy, gamma = (np.asarray(arrays[name], np.float64) for name in ("x", "dy", "gamma"))
    if "rstd" in arrays:
        rstd = np.asarray(arrays["rstd"], np.float64)[:, None]
    else:
        rstd = 1.0 / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon)
    xhat = x * rstd
    product = dy * gamma
    s2 = (product * xhat).mean(axis=1, keepdims=True)
    return {"dx": rstd * (product - xhat * s2), "dgamma": (dy * xhat).sum(axis=0)}


def given_root(
    given: Mapping[str, NDArray[Any]], epsilon: float, t: BackwardTerms, *, stores_squares: bool
) -> GivenMoments:
    """Return rstd as the kernel has it, with a mean of 0; see GivenMoments.

    stores_squares: as for budget.root, where the kernel computes rstd itself.
    """
    if t.own_statistics is None:
        return GivenMoments.given(np.zeros(len(given["x"])), given["rstd"])
    root_terms = t.own_statistics
    m = budget.root(
        np.asarray(given["x"], np.float64), epsilon, root_terms, stores_squares=stores_squares
    )
    r, zero = m.rstd, np.zeros_like(m.rstd)
    return GivenMoments(
        mean=zero,
        rstd=r,
        mean_error=zero,
        rstd_error=m.bound / r,
        var_mean=zero,
        var_rstd=m.variance / r**2,
        trend_mean=(),
        trend_rstd=(m.trend / r, m.together / r, m.lane / r),
        informative=m.informative,
    )


def expectations(
    given: Mapping[str, NDArray[Any]], known: GivenMoments, t: BackwardTerms
) -> dict[str, Expectation]:
    """Return what is expected of dx and dgamma, from what the device was given."""
    x, dy = np.asarray(given["x"], np.float64), np.asarray(given["dy"], np.float64)
    gamma = np.asarray(given["gamma"], np.float64)[None, :]
    r, rstd_error = known.rstd, known.rstd_error
    rows, n = x.shape

    xhat, p = x * r, dy * gamma
    px = p * xhat
    s2 = px.mean(axis=1, keepdims=True)
    through = xhat * s2
    rest = p - through
    dx = r * rest
    size = np.abs(p) + np.abs(through)

    e_read = t.read * np.abs(xhat)
    h_xhat = t.xhat * binade(np.abs(xhat) + e_read)
    e_xhat = e_read + h_xhat
    relative = t.product + 2 * t.read
    e_p = relative * np.abs(p) + t.stored_product * binade(p)
    lane2 = lanes(px)
    running = t.additions * t.accumulate
    weighted = t.stored_weighted * binade(px)
    d2 = (
        (t.reciprocal + t.read_sum + t.product) * np.abs(s2)
        + t.stored_sum * binade(s2)
        + t.read_lane * np.abs(lane2).sum(1, keepdims=True) / n
        + running * np.abs(px).mean(1, keepdims=True)
        + (np.abs(p) * e_xhat + np.abs(xhat) * e_p + weighted).mean(1, keepdims=True)
    )
    before = (
        r
        * (
            e_p
            + t.difference * (binade(through) + binade(rest))
            + np.abs(xhat) * d2
            + np.abs(s2) * e_xhat
            + 2 * rstd_error * np.abs(through)
        )
        + (t.scale + rstd_error) * np.abs(dx)
        + ARITHMETIC * r * size
    )

    # The rounding of stored intermediates, predicted: x^, P and P x^.
    computed_xhat = as_read(x, t) * r
    stored_xhat = round_away(computed_xhat, t.xhat)
    d_xhat = stored_xhat - xhat
    d_even = round_even(computed_xhat, t.xhat) - xhat
    p_read = as_read(dy, t) * as_read(gamma, t)
    stored_p = round_away(p_read, t.stored_product) if t.stored_product else p_read
    d_p = stored_p - p
    d_px = round_away(px, t.stored_weighted) - px if t.stored_weighted else np.zeros_like(p)
    others = (xhat * d_p + d_px).mean(1, keepdims=True)
    bias = np.maximum(
        np.abs((p * d_xhat).mean(1, keepdims=True) + others),
        np.abs((p * d_even).mean(1, keepdims=True) + others),
    )
    shift = (np.abs(s2) + np.abs(bias)) * (xhat * d_xhat).mean(1, keepdims=True)

    var_xhat, var_p = (e_read**2 + h_xhat**2) / 3, e_p**2 / 3
    systematic = (t.reciprocal + t.read_sum / 2 + t.read_lane / 2 + t.product) ** 2
    one_sign = running / 12**0.5 if t.in_order else 0.0
    most = largest_partial(px) if t.in_order else np.abs(px.sum(1, keepdims=True))
    lane_variance = t.read_lane**2 / 3 + t.additions * t.accumulate**2
    of_terms = (p**2 * var_xhat + xhat**2 * var_p + weighted**2 / 3).sum(1, keepdims=True) / n**2
    v2 = (
        (systematic + t.read_sum**2 / 12) * s2**2
        + (t.stored_sum * binade(s2)) ** 2 / 3
        + (
            lane_variance * (lane2**2).sum(1, keepdims=True)
            + t.additions * t.accumulate**2 * ((px**2).sum(1, keepdims=True) + most**2)
        )
        / n**2
        + (one_sign * s2) ** 2
        + of_terms
        + excess(bias**2, of_terms)
        + excess(shift**2, s2**2 * (xhat**2 * var_xhat).sum(1, keepdims=True) / n**2)
        + 4 * s2**2 * known.var_rstd
    )
    noise = (
        r**2 * (var_p + s2**2 * var_xhat + t.difference**2 * binade(rest) ** 2 / 3)
        + output_bound(dx, t.out, t.out_block) ** 2 / 3
        + (ARITHMETIC * r * size) ** 2
    )
    # A row has one s2: all elements with one stored x^ have one stored x^ s2, and one rounding.
    amplitude = r * t.difference * binade(through) / 3**0.5
    rounded_alike = (Keyed(stored_xhat, amplitude, adds_variance=True),) if t.difference else ()
    # s2 is rounded once per row: one error for all rows when all rows have the same sum
    once = 2 * t.stored_sum
    together = coherence(s2[known.informative, 0], t.stored_sum) if once else 0.0
    scale = t.scale + t.product_mean + t.read
    ties = ties_of_blocks(dx, t.out, t.out_block)
    allowance: tuple[Array, ...] = ()
    if t.difference:
        # where stored x^ s2 is smaller than half a step of P, stored P - x^ s2 loses all of it
        for s in (s2, s2 - d2, s2 + d2):
            exact = stored_p - round_away(stored_xhat * s, t.difference)
            allowance += (r * (round_away(exact, t.difference) - exact),)
    truncated: Array | None = None
    d_cut = np.zeros_like(p)  # what truncating buffers make of dgamma's terms
    if t.cut:
        cut_xhat = cut(computed_xhat, t.cut)
        truncated = _truncated(cut_xhat, r, cut(p_read, t.cut), t) - dx
        allowance += (truncated,)
        d_cut = cut(as_read(dy, t) * cut_xhat, t.cut) - dy * xhat
    floor = n * (NEGLIGIBLE * r[:, 0] * np.abs(p).max(axis=1, initial=0.0)) ** 2
    ones = np.ones_like(x)
    expected = Expectation(
        reference=dx,
        bound=before + output_bound(np.abs(dx) + before, t.out, t.out_block),
        noise=noise,
        out=t.out,
        out_block=t.out_block,
        informative=known.informative,
        shared=(
            Shared(r**2 * v2, xhat),
            Shared(scale**2 + known.var_rstd, dx),
            *(Shared(np.ones((1, 1)), pattern) for pattern in ties),
        ),
        trend=(r * xhat * bias, np.sqrt(systematic) * r * through, scale * dx, *ties),
        allowance=allowance,
        truncated=truncated,
        keyed=rounded_alike,
        spread=r * np.abs(xhat) * (together * once * binade(s2)),
        directions=(
            Direction("row", ones),
            Direction("xhat", xhat),
            Direction("scale", dx, floor=floor),
            Direction("col", ones, axis="column"),
        ),
    )

    c = dy * xhat
    h_c = t.stored_column * binade(c)
    c_read = as_read(dy, t) * (xhat + d_xhat)
    # fp32 buffers are re-read as TF32, truncated: one sign in all terms
    stored_c = (
        truncate(c_read, TF32_READ)
        if t.stored_column == TF32_READ
        else round_away(c_read, t.stored_column)
    )
    variance = (dy**2 * var_xhat + h_c**2 / 3 + (relative * c) ** 2 / 3).sum(axis=0)
    predicted = (stored_c - c).sum(axis=0)
    sums = column_sum(
        row_tiles(c),
        np.abs(c).sum(axis=0),
        (np.abs(dy) * e_xhat + h_c + (relative + rstd_error) * np.abs(c)).sum(axis=0),
        # equal rows round their terms alike
        variance + excess(predicted**2, variance),
        predicted,
        d_cut.sum(axis=0),
        scale,
        rows,
        t,
    )
    if t.own_statistics is not None:
        sums = with_own_statistics(sums, dy, xhat, known)
    return {"dx": expected, "dgamma": sums}


def _truncated(xhat: Array, r: Array, p: Array, t: BackwardTerms) -> Array:
    """Return dx where every buffer on its way truncates, and the output, too.

    Truncation has a sign: toward zero. A kernel may truncate some of its buffers and round others
    to nearest; its error is then a part of this. xhat, p: as the buffers hold them.
    """
    s2 = cut(cut(p * xhat, t.cut).mean(1, keepdims=True), t.cut)
    dx = r * cut(p - cut(xhat * s2, t.cut), t.cut)
    return dx if t.out_block else cut(dx, 2 * t.out)
