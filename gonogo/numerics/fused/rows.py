"""One row of a matrix output (y, dx) against its expectation: every statistic, added to running totals."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.fused.keys import key_scratch, shared_keys
from gonogo.numerics.fused.loops import CHUNK, LANES, binade, bits, fold, number, project, project_squares
from gonogo.numerics.jit import jit

# Running totals of a block of rows: what each place holds.
TOTALS = 28
SUM_ERROR, SUM_ABS, SUM_SQUARES, SUM_RAW, SUM_RAW_CENTRED, SUM_RAW_ERROR, SUM_RAW_SQUARES, CHI, MAX_ABS, MAX_RAW, ULP_MAX = range(11)
NEEDED = 11  # six of them
TOLERANCE, TOLERANCE_QUANTISED, BUDGET, WORST_ROW, WORST_COLUMN, OVER, MISMATCH, OUTLIERS, USED = range(17, 26)
MAXIMA = (MAX_ABS, MAX_RAW, ULP_MAX, *range(NEEDED, NEEDED + 6), TOLERANCE, TOLERANCE_QUANTISED)

R1, R2, R3, R4, R5 = 1e-5, 1e-3, 1e-2, 1.6e-2, 1e-1
"""The rtols of needed_atol after 0 (compare.NEEDED_RTOLS)."""

# Scores of a row, for its three directions: numerator, variance, squared norm.
SCORES = 9

# Projections of a row onto its three directions: of the directions themselves, of the squares, e0 (ties to even, away), e, allowances.
GRAM, OWN, EVEN, AWAY, ERROR, ALLOWED = 0, 3, 4, 5, 6, 7
PROJECTIONS = ALLOWED + 3

SUMS = 8
"""The first totals are sums over all columns, with running totals of their own."""

# Column totals, for each column direction w: sums of w e, w e0 (ties to even), w^2 s^2, three of w trend, four of |w| spread, w^2,
# w e0 (ties away), three of w pattern, three of w allowance.
COLUMNS = 18
COLUMN_ERROR, COLUMN_EVEN, COLUMN_VARIANCE, COLUMN_TREND, COLUMN_SPREAD = 0, 1, 2, 3, 6
COLUMN_NORM, COLUMN_AWAY, COLUMN_PATTERN, COLUMN_ALLOWANCE = 10, 11, 12, 15

EXACT_BINS = 4096
BINS = EXACT_BINS + 32 * 300
"""ulp distances: whole numbers up to 4096, then 32 bins an octave (see percentile_99)."""

SMALLEST_NORMAL = 2.0**-126
MAGIC = 1.5 * 2.0**52 * 2.0
"""Times the unit roundoff and a value's binade: adding and subtracting it rounds the value to nearest even."""
RECIPROCAL = np.int64(2046 << 52)
"""Minus the bits of a power of two: the bits of its reciprocal."""
COHERENT = 4.0
OUTLIER_BUDGETS = 3.0
OUTLIER_RATIO = 2.0**-6


BIN_SHIFT = 47
FIRST_OCTAVE = (1023 + 12) << 5


@jit
def count_far(distance: Any, n: int, bins: Any) -> None:
    """Add those of ceil(distance) that are above 3 to the histogram."""
    for j in range(n):
        if distance[j] > 3.0:
            whole = np.ceil(distance[j])
            if whole <= EXACT_BINS - 1:
                bins[np.int64(whole)] += 1
            else:
                place = EXACT_BINS + (bits(whole) >> BIN_SHIFT) - FIRST_OCTAVE
                bins[min(place, BINS - 1)] += 1


@jit
def outside(projection: float, lowest: float, highest: float) -> Any:
    """How far the projection lies outside [lowest, highest], signed."""
    return max(projection - highest, 0.0) + min(projection - lowest, 0.0)


@jit
def raise_to(totals: Any, place: int, pattern: Any) -> None:
    """Put a maximum, given as bits, into its total."""
    totals[place] = max(totals[place], number(pattern))


@jit
def allclose_ratio(out: Any, reference: Any, rtol: float, atol: float) -> Any:
    """The largest |out - reference| / (atol + rtol |reference|), as bits."""
    worst = np.int64(0)
    for j in range(out.size):
        size = abs(out[j] - reference[j])
        worst = max(worst, bits(size / (atol + rtol * abs(reference[j])) if size > 0.0 else 0.0))
    return worst


@jit
def needed_atols(out: Any, raw: Any, totals: Any) -> None:
    """The largest errors: by themselves, and beside each rtol."""
    size_max = raw_max = n1 = n2 = n3 = n4 = n5 = np.int64(0)
    for j in range(out.size):
        size, reference = abs(out[j] - raw[j]), abs(raw[j])
        size_max = max(size_max, bits(size))
        raw_max = max(raw_max, bits(reference))
        n1 = max(n1, bits(size - R1 * reference))
        n2 = max(n2, bits(size - R2 * reference))
        n3 = max(n3, bits(size - R3 * reference))
        n4 = max(n4, bits(size - R4 * reference))
        n5 = max(n5, bits(size - R5 * reference))
    raise_to(totals, MAX_ABS, size_max)
    raise_to(totals, MAX_RAW, raw_max)
    raise_to(totals, NEEDED, size_max)
    raise_to(totals, NEEDED + 1, n1)
    raise_to(totals, NEEDED + 2, n2)
    raise_to(totals, NEEDED + 3, n3)
    raise_to(totals, NEEDED + 4, n4)
    raise_to(totals, NEEDED + 5, n5)


@jit
def count_ulps(out: Any, raw: Any, unit: float, totals: Any, bins: Any, distance: Any) -> None:
    """Distances in ulps of the rounded raw reference. Almost all are 0 to 3: comparisons count those (as vectors)."""
    magic = MAGIC * unit
    farthest = np.int64(0)
    zero = one = two = three = 0
    for j in range(out.size):
        step = binade(raw[j]) * magic
        golden = (raw[j] + step) - step
        grid = max(binade(golden), SMALLEST_NORMAL) * (2.0 * unit)
        far = abs(out[j] - golden) * number(RECIPROCAL - bits(grid))
        distance[j] = far
        farthest = max(farthest, bits(far))
        zero += far <= 0.0
        one += far <= 1.0
        two += far <= 2.0
        three += far <= 3.0
    raise_to(totals, ULP_MAX, farthest)
    bins[0] += zero
    bins[1] += one - zero
    bins[2] += two - one
    bins[3] += three - two
    if three < out.size:
        count_far(distance, out.size, bins)


@jit
def add_moments(out: Any, raw: Any, origin: float, lanes: Any) -> None:
    """The sums of errors and of the raw reference of at most LANES columns, as running totals."""
    for j in range(out.size):
        error, centred = out[j] - raw[j], raw[j] - origin
        lanes[SUM_ERROR * LANES + j] += error
        lanes[SUM_ABS * LANES + j] += abs(error)
        lanes[SUM_SQUARES * LANES + j] += error * error
        lanes[SUM_RAW * LANES + j] += centred
        lanes[SUM_RAW_CENTRED * LANES + j] += centred * centred
        lanes[SUM_RAW_ERROR * LANES + j] += centred * error
        lanes[SUM_RAW_SQUARES * LANES + j] += raw[j] * raw[j]


@jit
def against_budget(row: int, first: int, out: Any, ref: Any, bound: Any, error: Any, totals: Any) -> None:
    """Some columns, from `first` on, against their bound: the worst multiple, where it is, how many are over 1, the outliers."""
    n = out.size
    largest = np.int64(0)
    over = 0
    for j in range(n):
        size = abs(error[j])
        ratio = size / bound[j] if size > 0.0 else 0.0
        largest = max(largest, bits(ratio))
        over += ratio > 1.0
    worst = number(largest)
    if worst > totals[BUDGET] or totals[WORST_ROW] < 0.0:
        totals[BUDGET] = worst
        totals[WORST_ROW] = row
        for j in range(n):
            if (abs(error[j]) / bound[j] if error[j] != 0.0 else 0.0) == worst:
                totals[WORST_COLUMN] = first + j
                break
    totals[OVER] += over
    if worst > OUTLIER_BUDGETS:
        for j in range(n):
            if error[j] != 0.0 and abs(error[j]) / bound[j] > OUTLIER_BUDGETS:
                multiple = abs(out[j] / ref[j])
                power = np.rint(np.log2(multiple))
                if power != 0.0 and abs(multiple / 2.0**power - 1.0) < OUTLIER_RATIO:
                    totals[OUTLIERS] += 1.0


@jit
def add_chi(error: Any, variance: Any, lane: Any) -> None:
    """Errors in standard deviations, squared."""
    for j in range(error.size):
        lane[j] += error[j] * error[j] / variance[j] if error[j] != 0.0 else 0.0


@jit
def add_variance(ref: Any, noise: Any, own_noise: Any, w0: Any, w1: Any, shared: Any, variance: Any) -> None:
    """s^2 of some columns."""
    k0, k1, k2 = shared[0], shared[1], shared[2]
    for j in range(ref.size):
        variance[j] = noise[j] + own_noise[j] + k0 * w0[j] * w0[j] + k1 * w1[j] * w1[j] + k2 * ref[j] * ref[j]


@jit
def golden_errors(out: Any, ref: Any, unit: float, golden_error: Any, golden_away: Any, totals: Any) -> None:
    """e0 of some columns, ties to even and ties away, and how many outputs aren't the golden value."""
    magic = MAGIC * unit
    mismatch = 0
    for j in range(out.size):
        power = binade(ref[j])
        step, half = power * magic, power * unit
        golden = (ref[j] + step) - step
        rounding = golden - ref[j]
        golden_error[j] = rounding
        golden_away[j] = np.copysign(half, ref[j]) if abs(rounding) == half else rounding
        mismatch += golden != out[j]
    totals[MISMATCH] += mismatch


@jit
def score(scores: Any, found: Any, extra: Any, shared: Any, lock: Any, allowances: int) -> None:
    """Numerator, variance and squared norm of the three directions, from their projections."""
    for k in range(3):
        lowest = highest = 0.0
        for a in range(ALLOWED, ALLOWED + allowances):
            lowest, highest = min(lowest, found[a, k]), max(highest, found[a, k])
        own = found[OWN, k] + extra[k]
        golden = max(found[EVEN, k] ** 2, found[AWAY, k] ** 2)
        together = 0.0
        for other in range(3):
            together += shared[other] * found[GRAM + other, k] * found[GRAM + other, k]
        scores[3 * k] = outside(found[ERROR, k], lowest, highest)
        scores[3 * k + 1] = own + lock[k] + max(golden - COHERENT * own, 0.0) + together
        scores[3 * k + 2] = found[GRAM + k, k]


@jit
def row_scratch(n: int) -> Any:
    """What compare_row works with, for rows of n: running totals of sums and of projections, distances, what is found of the
    projections, extra, and the scratch of the keys."""
    lanes, projected = np.zeros(SUMS * LANES), np.zeros(PROJECTIONS * 3 * LANES)
    return lanes, projected, np.empty(CHUNK), np.empty((PROJECTIONS, 3)), np.empty(3), key_scratch(n)


@jit
def fold_row(totals: Any, found: Any, lanes: Any, projected: Any) -> None:
    """Take the running totals of a row, and clear them for the next."""
    for k in range(SUMS):
        totals[k] += fold(lanes[k * LANES :], LANES)
    for k in range(PROJECTIONS):
        for w in range(3):
            found[k, w] = fold(projected[(3 * k + w) * LANES :], LANES)
    lanes[:] = 0.0
    projected[:] = 0.0


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
    scratch: Any,
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
    lanes, projected, distance, found, extra, keys = scratch
    triple = 3 * LANES
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        o, r, f = out[first:last], raw[first:last], ref[first:last]
        for part in range(first, last, LANES):
            end = min(part + LANES, last)
            add_moments(out[part:end], raw[part:end], origin, lanes)
        needed_atols(o, r, totals)
        count_ulps(o, r, unit, totals, bins, distance)
        if declared:
            raise_to(totals, TOLERANCE, allclose_ratio(o, r, rtol, atol))
            raise_to(totals, TOLERANCE_QUANTISED, allclose_ratio(o, f, rtol, atol))
        if not informative:
            continue
        a, b, s2, e, v = w0[first:last], w1[first:last], noise[first:last], error[first:last], variance[first:last]
        even, away = golden_error[first:last], golden_away[first:last]
        for j in range(e.size):
            e[j] = o[j] - f[j]
        against_budget(row, first, o, f, bound[first:last], e, totals)
        add_variance(f, s2, own_noise[first:last], a, b, shared, v)
        for part in range(first, last, LANES):
            end = min(part + LANES, last)
            add_chi(error[part:end], variance[part:end], lanes[CHI * LANES :])
        golden_errors(o, f, unit, even, away, totals)
        project(a, b, f, a, projected[GRAM * triple :])
        project(a, b, f, b, projected[(GRAM + 1) * triple :])
        project(a, b, f, f, projected[(GRAM + 2) * triple :])
        project_squares(a, b, f, s2, projected[OWN * triple :])
        project(a, b, f, even, projected[EVEN * triple :])
        project(a, b, f, away, projected[AWAY * triple :])
        project(a, b, f, e, projected[ERROR * triple :])
        for k in range(allowances):
            project(a, b, f, allowance[k, first:last], projected[(ALLOWED + k) * triple :])
    fold_row(totals, found, lanes, projected)
    if not informative:
        scores[:] = 0.0
        return
    totals[USED] += n
    shared_keys(ref, noise, w0, w1, n, keys, extra)
    score(scores, found, extra, shared, lock, allowances)


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
