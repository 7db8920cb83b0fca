"""The reference and the budget of rmsnorm_fw: y = g x r, r = 1/sqrt(ms + eps), ms = mean(x^2).

The derivation is that of layernorm_fw (gonogo.kernels.layernorm.arithmetic.forward), whose dataflow
this is without a mean. The 32 lane sums of x^2 over the tiles are stored and multiplied by a stored
1/N; epsilon is truncated, rstd stored; x^ = x r is stored; g x^ is written out. No mean is
subtracted, so x^ has no alignment error, and no beta is added. The terms (u of a stored value,
read, product, reciprocal ...) are ForwardTerms.

    D_ms = dN ms + L (1 + dN) + (2^-12 + 2 read + product + running) ms + extra + |trunc(eps) - eps|
    L = sum_c h(acc_c) / N
    extra = mean h(x^2) + h(ms): for kernels that store the squares and their mean;
            tt-train's keeps both in Dst
    r by the interval 1/sqrt(ms + eps -+ D_ms), never linearized; B_r = its half width + h(r)
    D = |x| B_r + read |x| r;  D' = D + h(|x^| + D)
    B_y = |g| D' + (product + 2 read) |g x^| + scale |y| + h(|y| + ...)

ms is a sum of terms of one sign, so nothing cancels. D_ms / ms is below 2^-5 for every format down
to bf16, and every row is informative unless a 16-bit running sum loses all of it. s: the squares'
roundings are independent, except for equal |x|, whose rounding is predicted (`excess`). Everything
else in ms is one factor per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.forward import per_row, shared_patterns
from gonogo.kernels.layernorm.arithmetic.moments import lanes
from gonogo.kernels.layernorm.arithmetic.terms import ARITHMETIC, ForwardTerms
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Keyed,
    Mask,
    Shared,
    binade,
    coherence,
    excess,
    output_bound,
    output_step,
    round_away,
    ties_of_blocks,
)

TT_TRAIN = "tt-train"


def reference(
    x: NDArray[np.floating], gamma: NDArray[np.floating], epsilon: float
) -> dict[str, Array]:
    """Return y (rows, N) and rstd (rows,) in float64."""
    wide = np.asarray(x, np.float64)
    rstd = 1.0 / np.sqrt((wide**2).mean(axis=1) + epsilon)
    return {"y": np.asarray(gamma, np.float64) * (wide * rstd[:, None]), "rstd": rstd}


@dataclass(frozen=True)
class Root:
    """Rstd per row, (rows, 1), like gonogo.kernels.layernorm.arithmetic.moments.Moments."""

    rstd: Array
    before: Array  # bound before storing
    bound: Array  # after it
    row_variance: Array  # variance of the error that each row has independently
    trend: Array  # of one sign in all rows
    together: Array  # how much of the rounding of the stored value all rows share
    lane: Array  # bound of the lanes' rounding
    informative: Mask

    @property
    def variance(self) -> Array:
        """The variance of its whole error."""
        return self.trend**2 + self.together**2 + self.row_variance


def root(x: Array, epsilon: float, t: ForwardTerms, *, stores_squares: bool) -> Root:
    """Return rstd and its errors for x (rows, N) in float64."""
    n = x.shape[1]
    squares = x**2
    ms = squares.mean(axis=1, keepdims=True)
    r = 1.0 / np.sqrt(ms + epsilon)
    running = t.additions * t.accumulate
    relative = 2 * t.read + t.product

    steps = binade(lanes(squares)) * t.stored
    lane = steps.sum(axis=1, keepdims=True) / n
    stored = t.stored if stores_squares else 0.0
    h_squares, h_mean = stored * binade(squares), stored * binade(ms)
    # Equal |x| are rounded alike, so their rounding is predicted. Ties away and ties to even agree
    # within half a step.
    predicted = (
        (round_away(squares, stored) - squares).mean(axis=1, keepdims=True)
        if stores_squares
        else np.zeros_like(ms)
    )
    bound_ms = (
        t.reciprocal * ms
        + lane * (1 + t.reciprocal)
        + h_squares.mean(axis=1, keepdims=True)
        + h_mean
        + (t.half_grid + relative + running) * ms
        + t.epsilon_error
    )
    informative = (bound_ms < ms + epsilon)[:, 0]
    usable = np.where(informative[:, None], bound_ms, 0.0)
    before = np.maximum(
        1.0 / np.sqrt(ms + epsilon - usable) - r, r - 1.0 / np.sqrt(ms + epsilon + usable)
    )
    # ms + epsilon, its root, the reciprocal: one fp32 rounding each
    after = 3 * t.accumulate * r if t.running else np.zeros_like(r)
    before = before + after
    cube = r**3 / 2
    independent = (h_squares**2 / 3 + (relative * squares) ** 2 / 3).sum(
        axis=1, keepdims=True
    ) / n**2
    row_variance_ms = (
        independent
        + excess(predicted**2, independent)
        + (steps**2).sum(axis=1, keepdims=True) / 3 / n**2
        + h_mean**2 / 3
        + t.additions * (t.accumulate * ms) ** 2
        # sums in order: equal terms have roundings of one sign for long
        + ((running * ms) ** 2 / 12 if t.running else 0.0)
    )
    row_variance = after**2 / 3 + (t.stored * binade(r)) ** 2 / 3 + cube**2 * row_variance_ms
    share = ms / (ms + epsilon)
    return Root(
        rstd=r,
        before=before,
        bound=before + t.stored * binade(r + before),
        row_variance=row_variance,
        trend=share * (t.reciprocal + t.half_grid + t.product_mean + 2 * t.read) / 2 * r
        + cube * t.epsilon_error,
        together=coherence(r[:, 0], t.stored) * (t.stored * binade(r) + cube * h_mean),
        lane=cube * lane,
        informative=informative,
    )


def expectations(
    given: Mapping[str, NDArray[Any]], epsilon: float, t: ForwardTerms, *, stores_squares: bool
) -> dict[str, Expectation]:
    """Return what is expected of y and rstd, from x (rows, N) and gamma (N,) of the device."""
    x = np.asarray(given["x"], np.float64)
    gamma = np.asarray(given["gamma"], np.float64)[None, :]
    m = root(x, epsilon, t, stores_squares=stores_squares)
    r = m.rstd
    xhat = x * r
    y = gamma * xhat

    d_scaled = np.abs(x) * m.bound + t.read * np.abs(xhat)
    d_xhat = d_scaled + t.stored * binade(np.abs(xhat) + d_scaled)
    relative = t.product + 2 * t.read
    before = np.abs(gamma) * d_xhat + (relative + t.scale + ARITHMETIC) * np.abs(y)
    h_out = output_bound(y, t.out, t.out_block)
    bound = before + output_bound(np.abs(y) + before, t.out, t.out_block)
    noise = (relative * y) ** 2 / 3 + h_out**2 / 3 + (ARITHMETIC * y) ** 2

    # Equal |x| of a row have equal |x^|, with one rounding error. In the same way g x^ of few bits
    # has one grid. The packer meets ties on it with probability grid/step and rounds them away from
    # zero by step/2: half the grid on average.
    rounded = np.copysign(
        gamma * np.sqrt(((t.stored * binade(xhat)) ** 2 + (t.read * xhat) ** 2) / 3), gamma * x
    )
    same_x = Keyed(np.abs(x), rounded, adds_variance=True)
    grid = np.minimum(
        2 * t.stored * binade(xhat) * lowest_bit(gamma), output_step(y, t.out, t.out_block)
    )
    patterns = [np.copysign(grid / 2, y), *ties_of_blocks(y, t.out_block)]
    # A stored rstd of few bits makes products of few bits. Their digits then decide how x^ of a
    # whole row is rounded.
    allowance: tuple[Array, ...] = ()
    for possible_rstd in (r, r - m.bound, r + m.bound):
        scaled = x * round_away(possible_rstd, t.stored)
        allowance += (gamma * (round_away(scaled, t.stored) - scaled),)
    slope = gamma * x
    ones = np.ones_like(x)
    scale = t.product_mean + t.read + t.scale
    return {
        "y": Expectation(
            reference=y,
            bound=bound,
            noise=noise,
            out=t.out,
            out_block=t.out_block,
            informative=m.informative,
            keyed=(same_x,),
            allowance=allowance,
            shared=(
                Shared(m.variance, slope),
                Shared(np.full((1, 1), scale**2), y),
                *shared_patterns(patterns),
            ),
            trend=(slope * m.trend, scale * y, *patterns),
            spread=np.abs(slope) * (m.together + m.lane),
            directions=(
                Direction("mean", gamma * ones),
                Direction("scale", y),
                Direction("gamma", xhat, axis="column"),
                Direction("beta", ones, axis="column"),
            ),
        ),
        "rstd": per_row(r, m.before, m.row_variance, (m.trend, m.together), t, m.informative),
    }


def lowest_bit(values: Array) -> Array:
    """Return the value of the lowest set bit of each significand, relative to its leading one.

    It is 1 for powers of two, and 2^-7 for an odd bf16.
    """
    significand = np.abs(np.frexp(values)[0]) * 2.0**53
    whole = significand.astype(np.int64)
    return np.asarray(np.where(whole > 0, (whole & -whole) / 2.0**52, 1.0))
