"""One row of a matrix output (y, dx) against its expectation: every statistic, added to running totals."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.fused.loops import binade, dot, dot3, largest, largest_beyond, shared_keys, total
from gonogo.numerics.jit import jit

# Running totals of a block of rows: what each place holds.
TOTALS = 28
MAX_ABS, SUM_ABS, SUM_SQUARES, SUM_RAW_SQUARES, SUM_ERROR, SUM_RAW, SUM_RAW_CENTRED, SUM_RAW_ERROR, MAX_RAW, ULP_MAX = range(10)
NEEDED = 10  # six of them
TOLERANCE, TOLERANCE_QUANTISED, BUDGET, WORST_ROW, WORST_COLUMN, OVER, CHI, MISMATCH, OUTLIERS, USED = range(16, 26)
MAXIMA = (MAX_ABS, MAX_RAW, ULP_MAX, *range(NEEDED, NEEDED + 6), TOLERANCE, TOLERANCE_QUANTISED)

RTOLS = np.array([0.0, 1e-5, 1e-3, 1e-2, 1.6e-2, 1e-1])

# Scores of a row, for its three directions: numerator, variance, squared norm.
SCORES = 9

# Column totals, for each column direction w: sums of w e, w e0 (ties to even), w^2 s^2, three of w trend, four of |w| spread, w^2,
# w e0 (ties away), two of w pattern, three of w allowance.
COLUMNS = 17
COLUMN_ERROR, COLUMN_EVEN, COLUMN_VARIANCE, COLUMN_TREND, COLUMN_SPREAD = 0, 1, 2, 3, 6
COLUMN_NORM, COLUMN_AWAY, COLUMN_PATTERN, COLUMN_ALLOWANCE = 10, 11, 12, 14

EXACT_BINS = 4096
BINS = EXACT_BINS + 32 * 1024
"""ulp distances: whole numbers up to 4096, then 32 bins an octave (see percentile_99)."""

SMALLEST_NORMAL = 2.0**-126
COHERENT = 4.0
OUTLIER_BUDGETS = 3.0
OUTLIER_RATIO = 2.0**-6


@jit
def count_distances(distance: Any, n: int, bins: Any) -> None:
    """Add ceil(distance) to the histogram. Almost all are 0 to 3: those are counted by comparisons, which the compiler makes vectors of."""
    zero = one = two = three = 0
    for j in range(n):
        zero += distance[j] <= 0.0
        one += distance[j] <= 1.0
        two += distance[j] <= 2.0
        three += distance[j] <= 3.0
    bins[0] += zero
    bins[1] += one - zero
    bins[2] += two - one
    bins[3] += three - two
    if three == n:
        return
    for j in range(n):
        if distance[j] > 3.0:
            whole = np.ceil(distance[j])
            if whole <= EXACT_BINS - 1:
                bins[np.int64(whole)] += 1
            else:
                place = EXACT_BINS + (np.int64(np.float64(whole).view(np.int64)) >> 47) - ((1023 + 12) << 5)
                bins[min(place, BINS - 1)] += 1


@jit
def outside(projection: float, lowest: float, highest: float) -> Any:
    """How far the projection lies outside [lowest, highest], signed."""
    return max(projection - highest, 0.0) + min(projection - lowest, 0.0)


@jit
def compare_row(
    row: int,
    n: int,
    out: Any,
    raw: Any,
    ref: Any,
    bound: Any,
    noise: Any,
    w0: Any,
    w1: Any,
    shared: Any,
    unit: float,
    rtol: float,
    atol: float,
    declared: bool,
    origin: float,
    totals: Any,
    bins: Any,
    scores: Any,
    table: Any,
    sums: Any,
    work: Any,
    error: Any,
    golden_error: Any,
    golden_away: Any,
    variance: Any,
    informative: bool,
    lock: Any,
    own_noise: Any,
    allowance: Any,
    allowances: int,
) -> None:
    """Add one row. out, raw, ref, bound, noise: (n,) float64; the directions are w0, w1 and ref, and shared[k] is the variance of the
    row's error along the k-th; lock[k] is what keyed errors and patterns add to the variance of the k-th direction; a projection
    inside the hull of 0 and the first `allowances` rows of `allowance` is none. `own_noise` is what keyed errors add to s^2.
    Leaves e, e0 (ties to even, away) and s^2 in error, golden_error, golden_away and variance. `origin` shifts raw in the PCC's sums."""
    magic = 1.5 * 2.0**52 * 2.0 * unit
    size, raw_size = work[0], work[1]
    for j in range(n):
        difference = out[j] - raw[j]
        error[j] = difference
        size[j] = abs(difference)
        raw_size[j] = abs(raw[j])
    totals[MAX_ABS] = max(totals[MAX_ABS], largest(size, n))
    totals[MAX_RAW] = max(totals[MAX_RAW], largest(raw_size, n))
    totals[SUM_ABS] += total(size, n)
    totals[SUM_SQUARES] += dot(size, size, n)
    totals[SUM_RAW_SQUARES] += dot(raw, raw, n)
    totals[SUM_ERROR] += total(error, n)
    for k in range(6):
        totals[NEEDED + k] = max(totals[NEEDED + k], largest_beyond(size, raw_size, RTOLS[k], n))
    centred = work[2]
    for j in range(n):
        centred[j] = raw[j] - origin
    totals[SUM_RAW] += total(centred, n)
    totals[SUM_RAW_CENTRED] += dot(centred, centred, n)
    totals[SUM_RAW_ERROR] += dot(centred, error, n)
    if declared:
        for j in range(n):
            centred[j] = size[j] / (atol + rtol * raw_size[j]) if size[j] > 0.0 else 0.0
        totals[TOLERANCE] = max(totals[TOLERANCE], largest(centred, n))
    for j in range(n):
        step = binade(raw[j]) * magic
        golden = (raw[j] + step) - step
        grid = max(binade(golden), SMALLEST_NORMAL) * (2.0 * unit)
        centred[j] = abs(out[j] - golden) / grid
    totals[ULP_MAX] = max(totals[ULP_MAX], largest(centred, n))
    count_distances(centred, n, bins)

    for j in range(n):
        error[j] = out[j] - ref[j]
        size[j] = abs(error[j])
    if declared:
        for j in range(n):
            centred[j] = size[j] / (atol + rtol * abs(ref[j])) if size[j] > 0.0 else 0.0
        totals[TOLERANCE_QUANTISED] = max(totals[TOLERANCE_QUANTISED], largest(centred, n))
    for k in range(SCORES):
        scores[k] = 0.0
    if not informative:
        return
    totals[USED] += n
    for j in range(n):
        centred[j] = size[j] / bound[j] if size[j] > 0.0 else 0.0
    worst = largest(centred, n)
    if worst > totals[BUDGET] or totals[WORST_ROW] < 0.0:
        totals[BUDGET] = worst
        totals[WORST_ROW] = row
        for j in range(n):
            if centred[j] == worst:
                totals[WORST_COLUMN] = j
                break
    if worst > 1.0:
        for j in range(n):
            if centred[j] > 1.0:
                totals[OVER] += 1.0
                if centred[j] > OUTLIER_BUDGETS:
                    multiple = abs(out[j] / ref[j])
                    power = np.rint(np.log2(multiple))
                    if power != 0.0 and abs(multiple / 2.0**power - 1.0) < OUTLIER_RATIO:
                        totals[OUTLIERS] += 1.0
    for j in range(n):
        variance[j] = noise[j] + own_noise[j] + shared[0] * w0[j] * w0[j] + shared[1] * w1[j] * w1[j] + shared[2] * ref[j] * ref[j]
    for j in range(n):
        centred[j] = error[j] * error[j] / variance[j] if size[j] > 0.0 else 0.0
    totals[CHI] += total(centred, n)
    for j in range(n):
        step = binade(ref[j]) * magic
        golden = (ref[j] + step) - step
        rounding = golden - ref[j]
        half = binade(ref[j]) * unit
        golden_error[j] = rounding
        golden_away[j] = np.copysign(half, ref[j]) if abs(rounding) == half else rounding
        centred[j] = 1.0 if golden != out[j] else 0.0
    totals[MISMATCH] += total(centred, n)

    extra = work[3]
    shared_keys(ref, noise, w0, w1, n, table, sums, extra)
    g00, g01, g02 = dot(w0, w0, n), dot(w0, w1, n), dot(w0, ref, n)
    g11, g12, g22 = dot(w1, w1, n), dot(w1, ref, n), dot(ref, ref, n)
    own0 = dot3(w0, w0, noise, n) + extra[0]
    own1 = dot3(w1, w1, noise, n) + extra[1]
    own2 = dot3(ref, ref, noise, n) + extra[2]
    e0 = max(dot(w0, golden_error, n) ** 2, dot(w0, golden_away, n) ** 2)
    e1 = max(dot(w1, golden_error, n) ** 2, dot(w1, golden_away, n) ** 2)
    e2 = max(dot(ref, golden_error, n) ** 2, dot(ref, golden_away, n) ** 2)
    for k in range(3):
        weights = w0 if k == 0 else (w1 if k == 1 else ref)
        lowest, highest = 0.0, 0.0
        for a in range(allowances):
            projection = dot(weights, allowance[a], n)
            lowest, highest = min(lowest, projection), max(highest, projection)
        scores[3 * k] = outside(dot(weights, error, n), lowest, highest)
    scores[1] = own0 + lock[0] + max(e0 - COHERENT * own0, 0.0) + shared[0] * g00 * g00 + shared[1] * g01 * g01 + shared[2] * g02 * g02
    scores[4] = own1 + lock[1] + max(e1 - COHERENT * own1, 0.0) + shared[0] * g01 * g01 + shared[1] * g11 * g11 + shared[2] * g12 * g12
    scores[7] = own2 + lock[2] + max(e2 - COHERENT * own2, 0.0) + shared[0] * g02 * g02 + shared[1] * g12 * g12 + shared[2] * g22 * g22
    scores[2], scores[5], scores[8] = g00, g11, g22


@jit
def add_columns(
    n: int,
    w: Any,
    weighted: bool,
    w0: Any,
    w1: Any,
    ref: Any,
    error: Any,
    golden_error: Any,
    golden_away: Any,
    variance: Any,
    trends: Any,
    spreads: Any,
    allowance: Any,
    allowances: int,
    columns: Any,
) -> None:
    """Add one row to the column totals of one direction: w (or 1 where not `weighted`).

    trends[k] = (a, b, c): the trend a w0 + b w1 + c ref; spreads[k]: of |w0| (0, 1) and |w1| (2, 3)."""
    for k in range(allowances):
        for j in range(n):
            columns[COLUMN_ALLOWANCE + k, j] += (w[j] if weighted else 1.0) * allowance[k, j]
    if not weighted:
        for j in range(n):
            columns[COLUMN_ERROR, j] += error[j]
            columns[COLUMN_EVEN, j] += golden_error[j]
            columns[COLUMN_AWAY, j] += golden_away[j]
            columns[COLUMN_VARIANCE, j] += variance[j]
            columns[COLUMN_NORM, j] += 1.0
        for k in range(3):
            a, b, c = trends[k, 0], trends[k, 1], trends[k, 2]
            if a != 0.0 or b != 0.0 or c != 0.0:
                for j in range(n):
                    columns[COLUMN_TREND + k, j] += a * w0[j] + b * w1[j] + c * ref[j]
        for k in range(4):
            if spreads[k] != 0.0:
                base = w0 if k < 2 else w1
                for j in range(n):
                    columns[COLUMN_SPREAD + k, j] += spreads[k] * abs(base[j])
        return
    for j in range(n):
        columns[COLUMN_ERROR, j] += w[j] * error[j]
        columns[COLUMN_EVEN, j] += w[j] * golden_error[j]
        columns[COLUMN_AWAY, j] += w[j] * golden_away[j]
        columns[COLUMN_VARIANCE, j] += w[j] * w[j] * variance[j]
        columns[COLUMN_NORM, j] += w[j] * w[j]
    for k in range(3):
        a, b, c = trends[k, 0], trends[k, 1], trends[k, 2]
        if a != 0.0 or b != 0.0 or c != 0.0:
            for j in range(n):
                columns[COLUMN_TREND + k, j] += w[j] * (a * w0[j] + b * w1[j] + c * ref[j])
    for k in range(4):
        if spreads[k] != 0.0:
            base = w0 if k < 2 else w1
            for j in range(n):
                columns[COLUMN_SPREAD + k, j] += spreads[k] * abs(w[j] * base[j])
