"""layernorm_bw, a block of rows in one pass.

The pass computes references, budget and comparison of dx, and the column sums behind dgamma and
dbeta. The formulas are those of arithmetic/backward.py, term by term and in its order; that file
says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.kernels.layernorm.fused.columns import add_columns
from gonogo.kernels.layernorm.fused.variance import add_variance
from gonogo.numerics.compiled.keys import keyed_variance
from gonogo.numerics.compiled.loops import (
    LANES,
    binade,
    cut,
    dot,
    dot3,
    lane_sums,
    largest,
    largest_partial,
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
TF32_READ = 2.0**-10
COHERENT = 4.0
ROOT_3 = 3.0**0.5

# The rows of `sums`: column sums for dgamma and dbeta.
SUMS = 11
C, C_ABS, C_BOUND, C_VARIANCE, C_PREDICTED, DY, DY_ABS, DY_SQUARED, C_RAW, DY_RAW, C_CUT = range(
    SUMS
)

# Per row: s1, s2, step of s1, step of s2 (the coherence of a stored sum over rows needs them all).
ROW_FACTS = 4


@jit
def backward_block(
    start: int,
    stop: int,
    x: Any,
    dy: Any,
    gamma: Any,
    mean: Any,
    rstd: Any,
    x_raw: Any,
    dy_raw: Any,
    gamma_raw: Any,
    mean_raw: Any,
    rstd_raw: Any,
    given_output: bool,
    output: Any,
    t: Any,
    rtol: float,
    atol: float,
    declared: bool,
    origin: float,
    totals: Any,
    bins: Any,
    scores: Any,
    columns: Any,
    sums: Any,
    facts: Any,
    floors: Any,
    mean_errors: Any,
    rstd_errors: Any,
    var_means: Any,
    var_rstds: Any,
    informative: Any,
) -> None:
    """Compare the rows start..stop of x and dy (rows, N) float32.

    `t` is BackwardTerms as numbers. Results go to totals, bins, scores (rows, 9), columns (COLUMNS,
    N), sums (SUMS, N), facts (rows, 4) and floors (rows,). floors has the squared norm below which
    a row's reference counts as zero.
    """
    (
        u_out,
        u_xhat,
        align,
        read,
        product,
        stored_product,
        stored_weighted,
        stored_sum,
        read_sum,
        read_lane,
        reciprocal,
        accumulate,
        additions,
    ) = (t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12])
    difference, scale, stored_column, predict_alignment, full_scale, one_sign, step_cut = (
        t[13],
        t[14],
        t[15],
        t[16],
        t[17],
        t[18],
        t[19],
    )
    n = x.shape[1]
    xhat, p, px = np.empty(n), np.empty(n), np.empty(n)
    e_xhat, var_xhat, d_xhat, d_even = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    e_p, d_p, a, b = np.zeros(n), np.zeros(n), np.empty(n), np.empty(n)
    p_raw, xhat_raw = np.empty(n), np.empty(n)
    ref, raw, bound, noise, out = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    error, golden_error, golden_away, variance = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    ones, stored_xhat, keyed_noise, keyed_amplitude = (
        np.ones(n),
        np.empty(n),
        np.zeros(n),
        np.empty(n),
    )
    allowances = 3 if difference > 0.0 else 0
    truncating = allowances
    if step_cut > 0.0:
        allowances += 1
    allowance = np.empty((4, n))
    x_cut, zeros = np.empty(n), np.zeros(n)
    scratch = row_scratch(n)
    lane = np.empty(32)
    hull_lanes = np.zeros(allowances * DIRECTIONS * LANES)
    known = np.zeros((KNOWN, DIRECTIONS))
    coherent_variance = known[SHARED]
    shared = np.empty(3)
    trends, spreads = np.zeros((3, 3)), np.zeros(4)
    relative = product + 2.0 * read
    lane_variance = read_lane * read_lane / 3.0 + additions * accumulate * accumulate
    running = additions * accumulate
    systematic = (reciprocal + read_sum / 2.0 + read_lane / 2.0 + product) ** 2
    generic = relative > 0.0 or stored_product > 0.0
    magic_xhat = (1.5 * 2.0**52 * 2.0) * u_xhat

    for i in range(start, stop):
        m, r = mean[i], rstd[i]
        m_abs = abs(m)
        for j in range(n):
            x_j = np.float64(x[i, j])
            xhat_j = (x_j - m) * r
            p_j = np.float64(dy[i, j]) * gamma[j]
            xhat[j] = xhat_j
            p[j] = p_j
            px[j] = p_j * xhat_j
        mean_error, rstd_error, var_mean, var_rstd = (
            mean_errors[i],
            rstd_errors[i],
            var_means[i],
            var_rstds[i],
        )
        moved_mean = mean_error * r
        for j in range(n):
            x_j = np.float64(x[i, j])
            top = binade(max(abs(x_j), m_abs))
            e_align = (align * top + read * (abs(x_j) + m_abs)) * r
            h = u_xhat * binade(abs(xhat[j]) + e_align)
            e_xhat[j] = e_align + h + moved_mean
            var_xhat[j] = (e_align * e_align + h * h) / 3.0
        m_read = truncated(m, TF32_READ) if read > 0.0 else m
        for j in range(n):
            x_j = np.float64(x[i, j])
            seen = truncated(x_j, TF32_READ) if read > 0.0 else x_j
            d = seen - m_read
            if predict_alignment > 0.0:
                grid = binade(max(abs(seen), abs(m_read))) * 2.0**-10
                if grid > 0.0:
                    d = np.copysign(np.floor(abs(seen) / grid + 0.5) * grid, seen) - np.copysign(
                        np.floor(abs(m_read) / grid + 0.5) * grid, m_read
                    )
            moved = d * r
            step = binade(moved) * magic_xhat
            rounded = (moved + step) - step
            half = binade(moved) * u_xhat
            d_even[j] = rounded - xhat[j]
            stored_xhat[j] = (
                moved + np.copysign(half, moved) if abs(rounded - moved) == half else rounded
            )
            d_xhat[j] = stored_xhat[j] - xhat[j]

        # s1 and s2: values, bounds, variances.
        s1, s2 = total(p, n) / n, total(px, n) / n
        for j in range(n):
            a[j] = abs(p[j])
            b[j] = abs(px[j])
        d1 = (
            (reciprocal + read_sum + product) * abs(s1)
            + stored_sum * binade(s1)
            + running * (total(a, n) / n)
        )
        d2 = (
            (reciprocal + read_sum + product) * abs(s2)
            + stored_sum * binade(s2)
            + running * (total(b, n) / n)
            + dot(a, e_xhat, n) / n
        )
        most1 = largest_partial(p, n) if one_sign > 0.0 else abs(n * s1)
        most2 = largest_partial(px, n) if one_sign > 0.0 else abs(n * s2)
        lane_sums(p, n, lane)
        lanes_abs, lanes_squared = 0.0, 0.0
        for c in range(32):
            lanes_abs += abs(lane[c])
            lanes_squared += lane[c] * lane[c]
        d1 += read_lane * lanes_abs / n
        var_s1 = (
            (systematic + read_sum * read_sum / 12.0) * s1 * s1
            + (stored_sum * binade(s1)) ** 2 / 3.0
            + (s2 * r) ** 2 * var_mean
            + s1 * s1 * moved_mean**4 / 3.0
            + (one_sign * s1) ** 2
        )
        var_s1 += (
            (
                lane_variance * lanes_squared
                + additions * accumulate * accumulate * (dot(p, p, n) + most1**2)
            )
            / n
            / n
        )
        lane_sums(px, n, lane)
        lanes_abs, lanes_squared = 0.0, 0.0
        for c in range(32):
            lanes_abs += abs(lane[c])
            lanes_squared += lane[c] * lane[c]
        d2 += read_lane * lanes_abs / n
        var_s2 = (systematic + read_sum * read_sum / 12.0) * s2 * s2 + (
            stored_sum * binade(s2)
        ) ** 2 / 3.0
        var_s2 += (s1 * r) ** 2 * var_mean + 4.0 * s2 * s2 * var_rstd + (one_sign * s2) ** 2
        var_s2 += (
            (
                lane_variance * lanes_squared
                + additions * accumulate * accumulate * (dot(px, px, n) + most2**2)
            )
            / n
            / n
        )
        own1, own2 = 0.0, dot3(p, p, var_xhat, n)
        bias1, others = 0.0, 0.0
        if generic:
            for j in range(n):
                e_p[j] = relative * a[j] + stored_product * binade(p[j])
                seen = (
                    truncated(np.float64(dy[i, j]), TF32_READ) * truncated(gamma[j], TF32_READ)
                    if read > 0.0
                    else p[j]
                )
                d_p[j] = rounded_away(seen, stored_product) - p[j]
            d1 += total(e_p, n) / n
            own1 = dot(e_p, e_p, n) / 3.0
            for j in range(n):
                b[j] = abs(xhat[j]) * e_p[j]
            d2 += total(b, n) / n
            own2 += dot(b, b, n) / 3.0
            bias1 = total(d_p, n)
            others += dot(xhat, d_p, n)
        if stored_weighted > 0.0:
            for j in range(n):
                b[j] = stored_weighted * binade(px[j])
                a[j] = rounded_away(px[j], stored_weighted) - px[j]
            d2 += total(b, n) / n
            own2 += dot(b, b, n) / 3.0
            others += total(a, n)
        bias2 = max(abs(dot(p, d_xhat, n) + others), abs(dot(p, d_even, n) + others))
        own1, own2, bias1, bias2 = own1 / n / n, own2 / n / n, bias1 / n, bias2 / n
        used2 = abs(s2) + abs(bias2)
        shift1, shift2 = used2 * (total(d_xhat, n) / n), used2 * (dot(xhat, d_xhat, n) / n)
        var_s1 += (
            own1
            + max(bias1 * bias1 - COHERENT * own1, 0.0)
            + max(shift1 * shift1 - COHERENT * (s2 * s2 * total(var_xhat, n) / n / n), 0.0)
        )
        var_s2 += (
            own2
            + max(bias2 * bias2 - COHERENT * own2, 0.0)
            + max(
                shift2 * shift2 - COHERENT * (s2 * s2 * dot3(xhat, xhat, var_xhat, n) / n / n), 0.0
            )
        )
        facts[i, 0], facts[i, 1], facts[i, 2], facts[i, 3] = s1, s2, binade(s1), binade(s2)

        # The raw reference of dx.
        m_raw, r_raw = mean_raw[i], rstd_raw[i]
        for j in range(n):
            xhat_raw[j] = (np.float64(x_raw[i, j]) - m_raw) * r_raw
            p_raw[j] = np.float64(dy_raw[i, j]) * gamma_raw[j]
        s1_raw, s2_raw = total(p_raw, n) / n, dot(p_raw, xhat_raw, n) / n

        # The columns of dgamma and dbeta.
        for j in range(n):
            dy_j = np.float64(dy[i, j])
            c = dy_j * xhat[j]
            h = stored_column * binade(c)
            size_c = abs(c)
            sums[C, j] += c
            sums[C_ABS, j] += size_c
            sums[C_BOUND, j] += abs(dy_j) * e_xhat[j] + h + (relative + rstd_error) * size_c
            sums[C_VARIANCE, j] += (
                dy_j * dy_j * var_xhat[j] + h * h / 3.0 + (relative * c) * (relative * c) / 3.0
            )
        for j in range(n):
            dy_j = np.float64(dy[i, j])
            seen = (truncated(dy_j, TF32_READ) if read > 0.0 else dy_j) * (xhat[j] + d_xhat[j])
            stored_c = (
                truncated(seen, TF32_READ)
                if stored_column == TF32_READ
                else rounded_away(seen, stored_column)
            )
            sums[C_PREDICTED, j] += stored_c - dy_j * xhat[j]
        if step_cut > 0.0:
            for j in range(n):
                x_j, dy_j = np.float64(x[i, j]), np.float64(dy[i, j])
                seen = truncated(x_j, TF32_READ) if read > 0.0 else x_j
                x_cut[j] = cut(cut(seen - m_read, step_cut) * r, step_cut)
                seen = truncated(dy_j, TF32_READ) if read > 0.0 else dy_j
                sums[C_CUT, j] += cut(seen * x_cut[j], step_cut) - dy_j * xhat[j]
        for j in range(n):
            dy_j = np.float64(dy[i, j])
            sums[DY, j] += dy_j
            sums[DY_ABS, j] += abs(dy_j)
            sums[DY_SQUARED, j] += dy_j * dy_j
        for j in range(n):
            dy_j = np.float64(dy_raw[i, j])
            sums[C_RAW, j] += dy_j * xhat_raw[j]
            sums[DY_RAW, j] += dy_j
        if not given_output:
            continue

        for j in range(n):
            raw[j] = r_raw * (p_raw[j] - s1_raw - xhat_raw[j] * s2_raw)
            out[j] = np.float64(output[i, j])
        s2_abs = abs(s2)
        for j in range(n):
            xhat_s2_j = xhat[j] * s2
            first = p[j] - s1
            second = first - xhat_s2_j
            value = r * second
            steps = difference * (binade(first) + binade(xhat_s2_j) + binade(second))
            arithmetic_error = ARITHMETIC * r * (abs(p[j]) + abs(s1) + abs(xhat_s2_j))
            before = (
                r
                * (
                    e_p[j]
                    + steps
                    + d1
                    + abs(xhat[j]) * d2
                    + s2_abs * e_xhat[j]
                    + d2 * moved_mean
                    + 2.0 * rstd_error * abs(xhat_s2_j)
                )
                + (scale + rstd_error) * abs(value)
                + arithmetic_error
            )
            ref[j] = value
            bound[j] = before + u_out * binade(abs(value) + before)
            squares = (
                difference
                * difference
                * (binade(first) * binade(first) + binade(second) * binade(second))
            )
            keyed_amplitude[j] = r * difference * binade(xhat_s2_j) / ROOT_3
            keyed_noise[j] = keyed_amplitude[j] * keyed_amplitude[j]
            h = u_out * binade(value)
            noise[j] = (
                r * r * (e_p[j] * e_p[j] / 3.0 + s2 * s2 * var_xhat[j] + squares / 3.0)
                + h * h / 3.0
                + arithmetic_error * arithmetic_error
            )
        for j in range(n):
            a[j] = abs(p[j])
        negligible = 2.0**-40 * r * largest(a, n)
        floors[i] = n * negligible * negligible
        shared[0], shared[1], shared[2] = (
            r * r * var_s1,
            r * r * var_s2,
            full_scale * full_scale + var_rstd,
        )
        if difference > 0.0:
            coherent_variance[0] = coherent_variance[1] = coherent_variance[2] = 0.0
            keyed_variance(
                stored_xhat, keyed_amplitude, ones, xhat, ref, n, scratch[5], coherent_variance
            )
            for k in range(3):
                s = s1 if k == 0 else (s1 - d1 if k == 1 else s1 + d1)
                for j in range(n):
                    seen = (
                        truncated(np.float64(dy[i, j]), TF32_READ) * truncated(gamma[j], TF32_READ)
                        if read > 0.0
                        else p[j]
                    )
                    exact = rounded_away(seen, stored_product) - s
                    first = rounded_away(exact, difference)
                    left = first - rounded_away(stored_xhat[j] * s2, difference)
                    allowance[k, j] = r * (
                        (first - exact) + (rounded_away(left, difference) - left)
                    )
        if step_cut > 0.0:
            for j in range(n):
                seen = (
                    truncated(np.float64(dy[i, j]), TF32_READ) * truncated(gamma[j], TF32_READ)
                    if read > 0.0
                    else p[j]
                )
                a[j] = cut(seen, step_cut)
                b[j] = cut(a[j] * x_cut[j], step_cut)
            s1_cut, s2_cut = cut(total(a, n) / n, step_cut), cut(total(b, n) / n, step_cut)
            for j in range(n):
                truncated_dx = r * cut(
                    cut(a[j] - s1_cut, step_cut) - cut(x_cut[j] * s2_cut, step_cut), step_cut
                )
                allowance[truncating, j] = cut(truncated_dx, 2.0 * u_out) - ref[j]
        add_variance(ref, noise, keyed_noise, ones, xhat, shared, n, variance)
        add_allowances(ones, xhat, ref, n, allowance, allowances, hull_lanes, known)
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
            allowance[truncating] if step_cut > 0.0 else zeros,
            ones,
            xhat,
            ref,
            shared,
            known,
            u_out,
            rtol,
            atol,
            declared,
            origin,
            informative[i],
            totals,
            bins,
            scores[i],
            scratch,
            error,
            golden_error,
            golden_away,
        )
        if not informative[i]:
            continue
        root = np.sqrt(systematic)
        trends[0, 0], trends[0, 1] = r * bias1, r * bias2
        trends[1, 0], trends[1, 1] = root * r * s1, root * r * s2
        trends[2, 2] = full_scale
        spreads[0], spreads[2] = (
            r * 2.0 * stored_sum * binade(s1),
            r * 2.0 * stored_sum * binade(s2),
        )
        add_columns(
            n,
            ones,
            False,
            ones,
            xhat,
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
            columns,
        )
