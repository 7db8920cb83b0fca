"""layernorm_fw, a block of rows in one pass.

The pass computes references, budget and comparison of y, and the values per row behind mean and
rstd. The formulas are those of arithmetic/forward.py, term by term and in its order; that file says
why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.kernels.layernorm.fused.columns import COLUMN_PATTERN, add_columns
from gonogo.kernels.layernorm.fused.variance import add_variance
from gonogo.numerics.compiled.keys import keyed_variance
from gonogo.numerics.compiled.loops import (
    LANES,
    binade,
    cut,
    dot,
    lane_sums,
    rounded_away,
    total,
    truncated,
)
from gonogo.numerics.compiled.rows import (
    KNOWN,
    SHARED,
    add_allowances,
    compare_row,
    row_scratch,
)
from gonogo.numerics.jit import jit
from gonogo.numerics.totals import DIRECTIONS

ARITHMETIC = 2.0**-22
COHERENT = 4.0
TF32_READ = 2.0**-10

# Values per row, as in arithmetic.moments: mean, rstd, before_mean, row_variance_mean, lane_bias,
# trend_mean, before_rstd, row_variance_rstd, trend_rstd, informative, and the raw mean and rstd.
FACTS = 12
(
    MU,
    R,
    BEFORE_MEAN,
    ROW_VARIANCE_MEAN,
    LANE_BIAS,
    TREND_MEAN,
    BEFORE_RSTD,
    ROW_VARIANCE_RSTD,
    TREND_RSTD,
    INFORMATIVE,
    MU_RAW,
    R_RAW,
) = range(FACTS)


@jit
def forward_block(
    start: int,
    stop: int,
    x: Any,
    gamma: Any,
    beta: Any,
    x_raw: Any,
    gamma_raw: Any,
    beta_raw: Any,
    epsilon: float,
    given_output: bool,
    output: Any,
    t: Any,
    together_mean: float,
    together_rstd: float,
    rtol: float,
    atol: float,
    declared: bool,
    origin: float,
    totals: Any,
    bins: Any,
    scores: Any,
    columns: Any,
    facts: Any,
) -> None:
    """Compare the rows start..stop of x (rows, N) float32.

    `t` is ForwardTerms as numbers. columns: (2, COLUMNS, N), for gamma and beta.
    """
    (
        u_out,
        stored,
        align,
        read,
        product,
        product_mean,
        reciprocal,
        accumulate,
        additions,
        half_grid,
        epsilon_error,
        scale,
        first_order,
        may_run,
        step_cut,
    ) = (
        t[0],
        t[1],
        t[2],
        t[3],
        t[4],
        t[5],
        t[6],
        t[7],
        t[8],
        t[9],
        t[10],
        t[11],
        t[12],
        t[13],
        t[14],
    )
    n = x.shape[1]
    centred, xhat, e_align, a, b = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    ref, raw, bound, noise, out = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    error, golden_error, golden_away, variance, g_xhat = (
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )
    keyed_noise = np.empty(n)
    patterns = 3 if read > 0.0 else 2
    pattern = np.zeros((3, n))
    allowances = 7 if step_cut > 0.0 else 3
    allowance, zeros = np.empty((allowances, n)), np.zeros(n)
    scratch = row_scratch(n)
    lane = np.empty(32)
    hull_lanes = np.zeros(allowances * DIRECTIONS * LANES)
    known = np.zeros((KNOWN, DIRECTIONS))
    coherent_variance = known[SHARED]
    shared = np.empty(3)
    trends, spreads = np.zeros((3, 3)), np.zeros(4)
    running = additions * accumulate
    relative_product = product + 2.0 * read
    slope = scale + product_mean + read
    for i in range(start, stop):
        for j in range(n):
            a[j] = np.float64(x[i, j])
            b[j] = abs(a[j])
        mu = total(a, n) / n
        mu_abs = abs(mu)
        row_size = total(b, n) / n
        lane_sums(a, n, lane)
        h_sum, h_squares, lane_bias = 0.0, 0.0, 0.0
        for c in range(32):
            h = binade(lane[c]) * stored
            h_sum += h
            h_squares += h * h
            if h > 0.0:
                lane_bias += (
                    np.copysign(np.floor(abs(lane[c]) / (2.0 * h) + 0.5) * (2.0 * h), lane[c])
                    - lane[c]
                )
        per_lane, lane_bias = h_sum / n, lane_bias / n
        before_mean = (
            reciprocal * mu_abs
            + per_lane * (1.0 + reciprocal)
            + half_grid * (mu_abs + per_lane)
            + (running + read + product) * row_size
        )
        bound_mean = before_mean + stored * binade(mu_abs + before_mean)
        trend_mean = (reciprocal + half_grid + read + product_mean) * mu
        row_variance_mean = (
            h_squares / 3.0 / n / n
            + (stored * binade(mu)) ** 2 / 3.0
            + additions * (accumulate * row_size) ** 2
        )
        row_variance_mean += (read * read + product * product) * dot(a, a, n) / 3.0 / n / n
        if may_run > 0.0:
            row_variance_mean += (n * accumulate * row_size) ** 2 / 12.0
        var_mean = (
            trend_mean * trend_mean
            + (together_mean * stored * binade(mu)) ** 2
            + row_variance_mean
            + max(lane_bias * lane_bias - COHERENT * row_variance_mean, 0.0)
        )

        for j in range(n):
            top = binade(max(b[j], mu_abs))
            e_align[j] = align * top + read * (b[j] + mu_abs)
            centred[j] = a[j] - mu
        for j in range(n):
            a[j] = centred[j] * centred[j]
        row_variance = total(a, n) / n
        lane_sums(a, n, lane)
        h_square, h_square_squares = 0.0, 0.0
        for c in range(32):
            h = binade(lane[c]) * stored
            h_square += h
            h_square_squares += h * h
        for j in range(n):
            a[j] = abs(centred[j] * e_align[j])
        squares = dot(e_align, e_align, n) / n
        if first_order > 0.0:
            squares += 2.0 * (total(a, n) / n)
        products = dot(a, a, n)
        if may_run > 0.0:
            for j in range(n):
                a[j] = abs(centred[j])
            squares += 2.0 * (total(a, n) / n) * running * row_size
        bound_variance = (
            reciprocal * row_variance
            + h_square / n
            + bound_mean * bound_mean * (1.0 + reciprocal)
            + (half_grid + read + product + running) * row_variance
            + squares
            + epsilon_error
        )
        informative = bound_variance < row_variance + epsilon
        usable = bound_variance if informative else 0.0
        r = 1.0 / np.sqrt(row_variance + epsilon)
        half = max(
            1.0 / np.sqrt(row_variance + epsilon - usable) - r,
            r - 1.0 / np.sqrt(row_variance + epsilon + usable),
        )
        root = 3.0 * accumulate * r if may_run > 0.0 else 0.0
        half += root
        bound_rstd = half + stored * binade(r + half)
        relative = (
            (row_variance / (row_variance + epsilon))
            * (reciprocal + half_grid + product_mean + read)
            / 2.0
        )
        cube = r * r * r / 2.0
        trend_rstd = relative * r + cube * epsilon_error
        row_variance_rstd = (
            root * root / 3.0
            + (stored * binade(r)) ** 2 / 3.0
            + cube
            * cube
            * (
                h_square_squares / 3.0 / n / n
                + bound_mean**4
                + squares * squares
                + additions * (accumulate * row_variance) ** 2
                + 4.0 / 3.0 * products / n / n
            )
        )
        var_rstd = (
            trend_rstd * trend_rstd + (together_rstd * stored * binade(r)) ** 2 + row_variance_rstd
        )
        other = cube * h_square / n
        (
            facts[i, MU],
            facts[i, BEFORE_MEAN],
            facts[i, ROW_VARIANCE_MEAN],
            facts[i, LANE_BIAS],
            facts[i, TREND_MEAN],
        ) = (
            mu,
            before_mean,
            row_variance_mean,
            lane_bias,
            trend_mean,
        )
        facts[i, R], facts[i, BEFORE_RSTD], facts[i, ROW_VARIANCE_RSTD], facts[i, TREND_RSTD] = (
            r,
            half,
            row_variance_rstd,
            trend_rstd,
        )
        facts[i, INFORMATIVE] = 1.0 if informative else 0.0

        for j in range(n):
            a[j] = np.float64(x_raw[i, j])
        mu_raw = total(a, n) / n
        for j in range(n):
            a[j] -= mu_raw
        r_raw = 1.0 / np.sqrt(dot(a, a, n) / n + epsilon)
        facts[i, MU_RAW], facts[i, R_RAW] = mu_raw, r_raw
        if not given_output:
            continue

        for j in range(n):
            raw[j] = gamma_raw[j] * (a[j] * r_raw) + beta_raw[j]
            out[j] = np.float64(output[i, j])
        for j in range(n):
            xhat_j = centred[j] * r
            xhat[j] = xhat_j
            gamma_abs = abs(gamma[j])
            d_centred = (bound_mean + e_align[j]) * (r + bound_rstd) + abs(centred[j]) * bound_rstd
            d_xhat = d_centred + stored * binade(abs(xhat_j) + d_centred)
            g_xhat_j = gamma[j] * xhat_j
            g_xhat[j] = g_xhat_j
            g_xhat_abs, beta_abs = abs(g_xhat_j), abs(beta[j])
            d_product = gamma_abs * d_xhat + relative_product * g_xhat_abs
            h_add = align * binade(max(g_xhat_abs, beta_abs)) + read * beta_abs
            value = g_xhat_j + beta[j]
            arithmetic_error = ARITHMETIC * (g_xhat_abs + beta_abs)
            before = (
                d_product
                + stored * binade(g_xhat_abs + d_product)
                + h_add
                + scale * abs(value)
                + arithmetic_error
            )
            ref[j] = value
            bound[j] = before + u_out * binade(abs(value) + before)
            h_out, h_xhat, h_gx, alignment = (
                u_out * binade(value),
                stored * binade(xhat_j),
                stored * binade(g_xhat_j),
                e_align[j] * r,
            )
            product_error = relative_product * g_xhat_j
            noise[j] = (
                h_gx * h_gx / 3.0
                + product_error * product_error / 3.0
                + h_add * h_add / 3.0
                + h_out * h_out / 3.0
                + arithmetic_error * arithmetic_error
            )
            variance[j] = gamma[j] * np.sqrt((alignment * alignment + h_xhat * h_xhat) / 3.0)
            pattern[0, j] = np.copysign(
                min(
                    max(
                        align * binade(max(g_xhat_abs, beta_abs)),
                        stored * binade(min(g_xhat_abs, beta_abs)),
                    ),
                    h_out,
                ),
                value,
            )
            bmin, bmax = (
                binade(min(g_xhat_abs, beta_abs)),
                binade(max(g_xhat_abs, beta_abs)),
            )
            shifted = min(stored * bmin, align * bmax) if bmin * 8.0 < bmax else 0.0
            pattern[1, j] = np.copysign(shifted, g_xhat_j if g_xhat_abs < beta_abs else beta[j])
            keyed_noise[j] = (
                variance[j] * variance[j]
                + pattern[0, j] * pattern[0, j]
                + pattern[1, j] * pattern[1, j]
            )
        if read > 0.0:
            for j in range(n):
                pattern[2, j] = truncated(beta[j], TF32_READ) - beta[j]
                keyed_noise[j] += pattern[2, j] * pattern[2, j]
        # Equal x err alike (here `variance` holds the amplitudes); the mean is rounded onto the
        # grid of each x.
        coherent_variance[0] = coherent_variance[1] = coherent_variance[2] = 0.0
        for j in range(n):
            b[j] = np.float64(x[i, j])
        keyed_variance(b, variance, gamma, g_xhat, ref, n, scratch[5], coherent_variance)
        stored_rstd = rounded_away(r, stored)
        for k in range(3):
            stored_mean = rounded_away(
                mu if k == 0 else (mu - bound_mean if k == 1 else mu + bound_mean), stored
            )
            stored_mean_abs = abs(stored_mean)
            for j in range(n):
                aligned_mean = stored_mean
                if abs(b[j]) > mu_abs:
                    grid = 2.0 * align * binade(b[j])
                    aligned_mean = np.copysign(
                        np.floor(stored_mean_abs / grid + 0.5) * grid, stored_mean
                    )
                computed_xhat = (b[j] - aligned_mean) * stored_rstd
                xhat_rounding = rounded_away(computed_xhat, stored) - computed_xhat
                allowance[k, j] = gamma[j] * (r * (stored_mean - aligned_mean) + xhat_rounding)
        if step_cut > 0.0:
            for k in range(3):
                stored_mean = rounded_away(
                    mu if k == 0 else (mu - bound_mean if k == 1 else mu + bound_mean), stored
                )
                for j in range(n):
                    exact_centred = b[j] - stored_mean
                    stored_centred = rounded_away(exact_centred, stored)
                    computed_xhat = stored_centred * stored_rstd
                    xhat_rounding = rounded_away(computed_xhat, stored) - computed_xhat
                    allowance[3 + k, j] = gamma[j] * (
                        r * (stored_centred - exact_centred) + xhat_rounding
                    )
            mean_cut, r_cut = cut(mu, step_cut), cut(r, step_cut)
            for j in range(n):
                truncated_y = (
                    cut(gamma[j] * cut(cut(b[j] - mean_cut, step_cut) * r_cut, step_cut), step_cut)
                    + beta[j]
                )
                allowance[6, j] = cut(truncated_y, 2.0 * u_out) - ref[j]
        for k in range(patterns):
            coherent_variance[0] += dot(gamma, pattern[k], n) ** 2
            coherent_variance[1] += dot(g_xhat, pattern[k], n) ** 2
            coherent_variance[2] += dot(ref, pattern[k], n) ** 2
        shared[0], shared[1], shared[2] = r * r * var_mean, var_rstd / (r * r) + slope * slope, 0.0
        add_variance(ref, noise, keyed_noise, gamma, g_xhat, shared, n, variance)
        add_allowances(gamma, g_xhat, ref, n, allowance, allowances, hull_lanes, known)
        tied = compare_row(
            i,
            n,
            True,
            out,
            raw,
            raw,
            ref,
            ref,
            bound,
            noise,
            variance,
            allowance[6] if step_cut > 0.0 else zeros,
            gamma,
            g_xhat,
            ref,
            shared,
            known,
            u_out,
            rtol,
            atol,
            declared,
            origin,
            informative,
            totals,
            bins,
            scores[i],
            scratch,
            error,
            golden_error,
            golden_away,
        )
        if not informative:
            continue
        trends[0, 0] = r * trend_mean
        trends[1, 1] = trend_rstd / r
        trends[2, 1] = slope
        spreads[0], spreads[1] = r * stored * binade(mu), r * per_lane
        spreads[2], spreads[3] = stored * binade(r) / r, other / r
        add_columns(
            n,
            xhat,
            True,
            gamma,
            g_xhat,
            ref,
            error,
            golden_error,
            golden_away,
            tied,
            variance,
            trends,
            spreads,
            allowance,
            allowances,
            columns[0],
        )
        add_columns(
            n,
            xhat,
            False,
            gamma,
            g_xhat,
            ref,
            error,
            golden_error,
            golden_away,
            tied,
            variance,
            trends,
            spreads,
            allowance,
            allowances,
            columns[1],
        )
        for k in range(patterns):
            for j in range(n):
                columns[0, COLUMN_PATTERN + k, j] += xhat[j] * pattern[k, j]
                columns[1, COLUMN_PATTERN + k, j] += pattern[k, j]


@jit
def moments_block(start: int, stop: int, x: Any, epsilon: float, means: Any, rstds: Any) -> None:
    """Compute mean and rstd of the rows start..stop.

    How much of their rounding all rows share must be known before any row is judged.
    """
    n = x.shape[1]
    a = np.empty(n)
    for i in range(start, stop):
        for j in range(n):
            a[j] = np.float64(x[i, j])
        mu = total(a, n) / n
        for j in range(n):
            a[j] -= mu
        means[i] = mu
        rstds[i] = 1.0 / np.sqrt(dot(a, a, n) / n + epsilon)
