"""Expectations of layernorm_fw: the NumPy definition, one line per term of the budget.

It works on whole matrices in float64. The dataflow is that of ttnn's and tt-train's kernels: mean
and rstd as in moments.py; x^ stored; gamma x^ stored; beta added on the FPU. Kernels that store
less stay within it. The reference is the function of the given x, so the kernel's own mean and rstd
are part of the error of y. A row shares that error, with the patterns gamma r and gamma x^.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.moments import Coherent, moments
from gonogo.kernels.layernorm.arithmetic.terms import ARITHMETIC, TF32_READ, ForwardTerms
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
    Mask,
    Shared,
    binade,
    cut,
    output_bound,
    output_step,
    round_away,
    ties_of_blocks,
    truncate,
)

UNKNOWN_VARIANCE = 1e300
"""The variance of a value that nothing is known of. Its root times a weight of 0 is still 0."""


def expectations(
    given: Mapping[str, NDArray[Any]],
    epsilon: float,
    t: ForwardTerms,
    coherent: Coherent | None = None,
) -> dict[str, Expectation]:
    """Return what is expected of y, mean and rstd, from what the device was given.

    coherent: see moments.moments.
    """
    x = np.asarray(given["x"], np.float64)
    # gamma and beta are (1, N), and in group norm (rows, N)
    gamma, beta = (np.atleast_2d(np.asarray(given[name], np.float64)) for name in ("gamma", "beta"))
    m = moments(x, epsilon, t, coherent)
    mu, r, centred, e_align = m.mean, m.rstd, m.centred, m.align
    xhat = centred * r

    # y = gamma x^ + beta.
    d_centred = (m.bound_mean + e_align) * (r + m.bound_rstd) + np.abs(centred) * m.bound_rstd
    h_xhat = t.stored * binade(np.abs(xhat) + d_centred)
    d_xhat = d_centred + h_xhat
    g_xhat = gamma * xhat
    d_product = np.abs(gamma) * d_xhat + (t.product + 2 * t.read) * np.abs(g_xhat)
    h_product = t.stored * binade(np.abs(g_xhat) + d_product)
    h_add = t.align * binade(np.maximum(np.abs(g_xhat), np.abs(beta))) + t.read * np.abs(beta)
    y = g_xhat + beta
    before = (
        d_product
        + h_product
        + h_add
        + t.scale * np.abs(y)
        + ARITHMETIC * (np.abs(g_xhat) + np.abs(beta))
    )
    bound_y = before + output_bound(np.abs(y) + before, t.out, t.out_block)
    noise = (
        (t.stored * binade(g_xhat)) ** 2 / 3
        + ((t.product + 2 * t.read) * g_xhat) ** 2 / 3
        + h_add**2 / 3
        + output_bound(y, t.out, t.out_block) ** 2 / 3
        + (ARITHMETIC * (np.abs(g_xhat) + np.abs(beta))) ** 2
    )

    slope_mean, slope_rstd = gamma * r, gamma * centred
    ones = np.ones_like(x)
    # The result of ELWADD lies on a grid: its own 2^-10 one, or that of the smaller operand's last
    # bit. The packer meets a tie with probability grid/step, and rounds it away from zero by
    # step/2: grid/2 on average, with the sign of y. Aligning the smaller operand meets ties in the
    # same way, half up in magnitude. The FPU's reading of beta is off by one amount in a whole
    # column.
    smaller, larger = (
        np.minimum(np.abs(g_xhat), np.abs(beta)),
        np.maximum(np.abs(g_xhat), np.abs(beta)),
    )
    grid = np.minimum(
        np.maximum(t.align * binade(larger), t.stored * binade(smaller)),
        output_step(y, t.out, t.out_block),
    )
    smaller_operand = np.where(np.abs(g_xhat) < np.abs(beta), g_xhat, beta * np.ones_like(x))
    shifted = np.where(
        binade(smaller) * 8 < binade(larger),
        np.minimum(t.stored * binade(smaller), t.align * binade(larger)),
        0.0,
    )
    patterns = [
        np.copysign(grid, y),
        np.copysign(shifted, smaller_operand),
        *ties_of_blocks(y, t.out_block),
    ]
    if t.read:
        patterns.append((truncate(beta, TF32_READ) - beta) * ones)
    # Equal x have equal x^, with one rounding error. ELWSUB rounds the mean onto x's grid: all x of
    # a binade have one error.
    same_x = Keyed(
        x,
        gamma * np.sqrt(((e_align * r) ** 2 + (t.stored * binade(xhat)) ** 2) / 3),
        adds_variance=True,
    )
    grid = np.where(np.abs(x) > np.abs(mu), 2 * t.align * binade(x), 0.0)
    # x - mean lies on that grid. Where rstd has few bits (1, for example), so does x^, and all x^
    # of a binade are rounded by one amount.
    stored_rstd = round_away(r, t.stored)
    allowance: tuple[Array, ...] = ()
    for possible_mean in (mu, mu - m.bound_mean, mu + m.bound_mean):
        stored_mean = round_away(possible_mean, t.stored)
        aligned_mean = onto(stored_mean, grid)
        computed_xhat = (x - aligned_mean) * stored_rstd
        xhat_rounding = round_away(computed_xhat, t.stored) - computed_xhat
        allowance += (slope_mean * (stored_mean - aligned_mean) + gamma * xhat_rounding,)
    truncated: Array | None = None
    if t.cut:
        # x - mean may be stored, too: rounded onto its own grid, of which the mean may be a small
        # part. And any buffer may truncate.
        for possible_mean in (mu, mu - m.bound_mean, mu + m.bound_mean):
            exact_centred = x - round_away(possible_mean, t.stored)
            stored_centred = round_away(exact_centred, t.stored)
            computed_xhat = stored_centred * stored_rstd
            xhat_rounding = round_away(computed_xhat, t.stored) - computed_xhat
            allowance += (slope_mean * (stored_centred - exact_centred) + gamma * xhat_rounding,)
        truncated_xhat = cut(cut(x - cut(mu, t.cut), t.cut) * cut(r, t.cut), t.cut)
        truncated_y = cut(gamma * truncated_xhat, t.cut) + beta
        truncated = (truncated_y if t.out_block else cut(truncated_y, 2 * t.out)) - y
        allowance += (truncated,)
    scale = t.product_mean + t.read + t.scale
    expected_y = Expectation(
        reference=y,
        bound=bound_y,
        noise=noise,
        out=t.out,
        out_block=t.out_block,
        informative=m.informative,
        keyed=(same_x,),
        allowance=allowance,
        truncated=truncated,
        shared=(
            Shared(m.var_mean, slope_mean),
            Shared(m.var_rstd, slope_rstd),
            Shared(np.full((1, 1), scale**2), g_xhat),
            *shared_patterns(patterns),
        ),
        trend=(slope_mean * m.trend_mean, slope_rstd * m.trend_rstd, scale * g_xhat, *patterns),
        spread=np.abs(slope_mean) * (m.together_mean + m.lane)
        + np.abs(slope_rstd) * (m.together_rstd + m.lane_rstd),
        directions=(
            Direction("mean", gamma * ones),
            Direction("rstd", g_xhat),
            Direction("scale", y),
            Direction("gamma", xhat, axis="column"),
            Direction("beta", ones, axis="column"),
        ),
    )
    return {
        "y": expected_y,
        "mean": per_row(
            mu,
            m.before_mean,
            m.row_variance_mean,
            (m.trend_mean, m.together_mean, m.lane_bias),
            t,
            None,
        ),
        "rstd": per_row(
            r, m.before_rstd, m.row_variance_rstd, (m.trend_rstd, m.together_rstd), t, m.informative
        ),
    }


def shared_patterns(patterns: Sequence[Array]) -> tuple[Shared, ...]:
    """Return errors of a known pattern and sign, with the amplitude as the standard deviation."""
    return tuple(Shared(np.ones((1, 1)), pattern) for pattern in patterns)


def onto(values: Array, grid: Array) -> Array:
    """Return the values with their magnitudes rounded half up onto the grid. Grid 0: unchanged."""
    safe = np.where(grid > 0, grid, 1.0)
    return np.asarray(
        np.where(
            grid > 0, np.copysign(np.floor(np.abs(values) / safe + 0.5) * safe, values), values
        )
    )


def per_row(
    reference: Array,
    before: Array,
    variance: Array,
    systematic: tuple[Array, ...],
    t: ForwardTerms,
    informative: Mask | None,
) -> Expectation:
    """Return the expectation of mean or rstd, as one row, from columns (rows, 1).

    before: the bound before storing. variance: that of each row's own error. systematic: errors of
    one sign in all rows. A row that isn't informative has an unlimited bound.
    """
    stored = t.stored * binade(np.abs(reference) + before)
    bound = before + np.maximum(
        stored, output_bound((np.abs(reference) + before).T, t.out, t.out_block).T
    )
    extra = output_bound(reference.T, t.out, t.out_block).T ** 2 / 3
    usable = np.ones((reference.shape[0], 1), bool) if informative is None else informative[:, None]
    allowance: tuple[Array, ...] = ()
    if t.cut:  # a buffer and an output that truncate
        truncated_value = cut(reference, t.cut)
        allowance = (
            np.where(
                usable,
                (truncated_value if t.out_block else cut(truncated_value, 2 * t.out)) - reference,
                0.0,
            ).T,
        )
    return Expectation(
        reference=reference.T,
        bound=np.where(usable, bound, np.inf).T,
        noise=np.where(usable, variance + extra, UNKNOWN_VARIANCE).T,
        out=t.out,
        out_block=t.out_block,
        informative=np.array([bool(usable.any())]),
        allowance=allowance,
        truncated=allowance[0] if allowance else None,
        shared=shared_patterns(
            [
                np.where(usable, pattern, 0.0).T
                for pattern in (*systematic, *ties_of_blocks(reference, t.out_block))
            ]
        ),
        directions=(Direction("scale", np.where(usable, reference, 0.0).T),),
    )
