"""One row of a matrix output (y, dx) against its expectation: every statistic, added to running
totals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.kernels.layernorm.fused.keys import key_scratch, shared_keys
from gonogo.kernels.layernorm.fused.loops import (
    BLOCK,
    CHUNK,
    LANES,
    U,
    binade,
    bits,
    fold,
    number,
    project,
    project_gram,
    project_squares,
)
from gonogo.numerics.jit import jit

# Running totals of a block of rows: what each place holds.
TOTALS = 28
(
    SUM_ERROR,
    SUM_ABS,
    SUM_SQUARES,
    SUM_RAW,
    SUM_RAW_CENTRED,
    SUM_RAW_ERROR,
    SUM_RAW_SQUARES,
    CHI,
    MAX_ABS,
    MAX_RAW,
    ULP_MAX,
) = range(11)
NEEDED = 11  # six of them
TOLERANCE, TOLERANCE_QUANTISED, BUDGET, WORST_ROW, WORST_COLUMN, OVER, MISMATCH, OUTLIERS, USED = (
    range(17, 26)
)
MAXIMA = (MAX_ABS, MAX_RAW, ULP_MAX, *range(NEEDED, NEEDED + 6), TOLERANCE, TOLERANCE_QUANTISED)

R1, R2, R3, R4, R5 = 1e-5, 1e-3, 1e-2, 1.6e-2, 1e-1
"""The rtols of needed_atol after 0 (compare.NEEDED_RTOLS)."""

# Scores of a row, for its three directions: numerator, variance, squared norm.
SCORES = 9

# Projections of a row onto its three directions: of the directions themselves, of the squares, e0
# (ties to even; what ties away add to it), e, allowances.
GRAM, OWN, EVEN, AWAY, ERROR, ALLOWED = 0, 3, 4, 5, 6, 7
ALLOWANCES = 7
"""At most so many."""
PROJECTIONS = ALLOWED + ALLOWANCES

SUMS = 8
"""The first totals are sums over all columns, with running totals of their own."""

EXACT_BINS = 4096
BINS = EXACT_BINS + 32 * 300
"""ulp distances: whole numbers up to 4096, then 32 bins an octave (see percentile_99)."""

SMALLEST_NORMAL = 2.0**-126
MAGIC = 1.5 * 2.0**52 * 2.0
"""Times the unit roundoff and a value's binade: adding and subtracting it rounds the value to
nearest even."""
RECIPROCAL = np.int64(2046 << 52)
"""Minus the bits of a power of two: the bits of its reciprocal."""
COHERENT = 4.0
ALMOST = 1.0 - 2.0**-40
"""What is not larger than the largest so far by this much, product for quotient, isn't larger when
rounded either."""
OUTLIER_BUDGETS = 3.0
OUTLIER_RATIO = 2.0**-6


BIN_SHIFT = 47
FIRST_OCTAVE = (1023 + 12) << 5


@jit
def count_far(distance: Any, n: Any, bins: Any) -> None:
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
def raise_allclose(
    out: Any,
    reference: Any,
    first: Any,
    last: Any,
    rtol: float,
    atol: float,
    totals: Any,
    place: int,
) -> None:
    """Raise a total to the largest |out - reference| / (atol + rtol |reference|). Divisions are
    slow: only where one may be larger.
    """
    before = totals[place] * ALMOST
    larger = 0
    for j in range(first, last):
        larger += abs(out[j] - reference[j]) > before * (atol + rtol * abs(reference[j]))
    if larger == 0:
        return
    worst = np.int64(0)
    for j in range(first, last):
        size = abs(out[j] - reference[j])
        worst = max(worst, bits(size / (atol + rtol * abs(reference[j])) if size > 0.0 else 0.0))
    raise_to(totals, place, worst)


@jit
def needed_atols(out: Any, raw: Any, first: Any, last: Any, totals: Any) -> None:
    """The largest errors: by themselves, and beside each rtol."""
    size_max = raw_max = n1 = n2 = n3 = n4 = n5 = np.int64(0)
    for j in range(first, last):
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
def count_ulps(
    out: Any, raw: Any, first: Any, last: Any, unit: float, totals: Any, bins: Any, distance: Any
) -> None:
    """Distances in ulps of the rounded raw reference. Almost all are 0 to 3: comparisons count
    those (as vectors).
    """
    magic = MAGIC * unit
    farthest = np.int64(0)
    for start in range(first, last, U(CHUNK)):
        stop = min(start + U(CHUNK), last)
        zero = one = two = three = 0
        for j in range(start, stop):
            step = binade(raw[j]) * magic
            golden = (raw[j] + step) - step
            grid = max(binade(golden), SMALLEST_NORMAL) * (2.0 * unit)
            far = abs(out[j] - golden) * number(RECIPROCAL - bits(grid))
            distance[j - start] = far
            farthest = max(farthest, bits(far))
            zero += far <= 0.0
            one += far <= 1.0
            two += far <= 2.0
            three += far <= 3.0
        bins[0] += zero
        bins[1] += one - zero
        bins[2] += two - one
        bins[3] += three - two
        if U(three) < stop - start:
            count_far(distance, np.int64(stop - start), bins)
    raise_to(totals, ULP_MAX, farthest)


@jit
def add_moments(out: Any, raw: Any, first: Any, last: Any, origin: float, lanes: Any) -> None:
    """The sums of errors and of the raw reference of a chunk, as running totals; a whole chunk is
    folded first (see loops.project).
    """
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i = start + U(j)
            k = i + U(LANES)
            q = k + U(LANES)
            m = q + U(LANES)
            e0, e1, e2, e3 = out[i] - raw[i], out[k] - raw[k], out[q] - raw[q], out[m] - raw[m]
            c0, c1, c2, c3 = raw[i] - origin, raw[k] - origin, raw[q] - origin, raw[m] - origin
            lanes[SUM_ERROR * LANES + j] += (e0 + e1) + (e2 + e3)
            lanes[SUM_ABS * LANES + j] += (abs(e0) + abs(e1)) + (abs(e2) + abs(e3))
            lanes[SUM_SQUARES * LANES + j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3)
            lanes[SUM_RAW * LANES + j] += (c0 + c1) + (c2 + c3)
            lanes[SUM_RAW_CENTRED * LANES + j] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
            lanes[SUM_RAW_ERROR * LANES + j] += (c0 * e0 + c1 * e1) + (c2 * e2 + c3 * e3)
            lanes[SUM_RAW_SQUARES * LANES + j] += (raw[i] * raw[i] + raw[k] * raw[k]) + (
                raw[q] * raw[q] + raw[m] * raw[m]
            )
    for j in range(np.int64(last - full)):
        i, lane = full + U(j), j % LANES
        error, centred = out[i] - raw[i], raw[i] - origin
        lanes[SUM_ERROR * LANES + lane] += error
        lanes[SUM_ABS * LANES + lane] += abs(error)
        lanes[SUM_SQUARES * LANES + lane] += error * error
        lanes[SUM_RAW * LANES + lane] += centred
        lanes[SUM_RAW_CENTRED * LANES + lane] += centred * centred
        lanes[SUM_RAW_ERROR * LANES + lane] += centred * error
        lanes[SUM_RAW_SQUARES * LANES + lane] += raw[i] * raw[i]


@jit
def against_budget(
    row: int, first: Any, last: Any, out: Any, ref: Any, bound: Any, error: Any, totals: Any
) -> None:
    """Some columns against their bound: the worst multiple, where it is, how many are over 1, the
    outliers.
    """
    largest = np.int64(0)
    over = 0
    for j in range(first, last):
        size = abs(error[j])
        ratio = size / bound[j] if size > 0.0 else 0.0
        largest = max(largest, bits(ratio))
        over += ratio > 1.0
    worst = number(largest)
    if worst > totals[BUDGET] or totals[WORST_ROW] < 0.0:
        totals[BUDGET] = worst
        totals[WORST_ROW] = row
        for j in range(first, last):
            if (abs(error[j]) / bound[j] if error[j] != 0.0 else 0.0) == worst:
                totals[WORST_COLUMN] = j
                break
    totals[OVER] += over
    if worst > OUTLIER_BUDGETS:
        for j in range(first, last):
            if error[j] != 0.0 and abs(error[j]) / bound[j] > OUTLIER_BUDGETS:
                multiple = abs(out[j] / ref[j])
                power = np.rint(np.log2(multiple))
                if power != 0.0 and abs(multiple / 2.0**power - 1.0) < OUTLIER_RATIO:
                    totals[OUTLIERS] += 1.0


@jit
def add_variance(
    ref: Any,
    noise: Any,
    own_noise: Any,
    w0: Any,
    w1: Any,
    shared: Any,
    first: Any,
    last: Any,
    variance: Any,
) -> None:
    """s^2 of some columns."""
    k0, k1, k2 = shared[0], shared[1], shared[2]
    for j in range(first, last):
        variance[j] = (
            noise[j] + own_noise[j] + k0 * w0[j] * w0[j] + k1 * w1[j] * w1[j] + k2 * ref[j] * ref[j]
        )


@jit
def beyond(error: float, truncated: float) -> Any:
    """The part of an error outside 0 and `truncated`."""
    return max(error - max(truncated, 0.0), 0.0) + min(error - min(truncated, 0.0), 0.0)


@jit
def deviations(error: float, truncated: float, variance: float) -> Any:
    """The error beyond `truncated` in standard deviations, squared."""
    far = beyond(error, truncated)
    return far * far / variance if far != 0.0 else 0.0


@jit
def add_chi(error: Any, variance: Any, truncated: Any, first: Any, last: Any, lanes: Any) -> None:
    """Errors beyond `truncated` in standard deviations, squared (see
    budgets.expectation.beyond_truncation).
    """
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i = start + U(j)
            k = i + U(LANES)
            q = k + U(LANES)
            m = q + U(LANES)
            first_half = deviations(error[i], truncated[i], variance[i]) + deviations(
                error[k], truncated[k], variance[k]
            )
            second_half = deviations(error[q], truncated[q], variance[q]) + deviations(
                error[m], truncated[m], variance[m]
            )
            lanes[CHI * LANES + j] += first_half + second_half
    for j in range(np.int64(last - full)):
        i = full + U(j)
        lanes[CHI * LANES + j % LANES] += deviations(error[i], truncated[i], variance[i])


@jit
def golden_errors(
    out: Any,
    ref: Any,
    first: Any,
    last: Any,
    unit: float,
    golden_error: Any,
    golden_away: Any,
    tied: bool,
    totals: Any,
) -> bool:
    """e0 of some columns, ties to even, and what ties away add to it; and how many outputs aren't
    the golden value.

    Whether there were ties (or zeros) in this row so far: while there are none, nothing is written
    to golden_away.
    """
    magic = MAGIC * unit
    mismatch = ties = 0
    for j in range(first, last):
        power = binade(ref[j])
        step = power * magic
        golden = (ref[j] + step) - step
        rounding = golden - ref[j]
        golden_error[j] = rounding
        ties += abs(rounding) == power * unit
        mismatch += golden != out[j]
    totals[MISMATCH] += mismatch
    if ties > 0 and not tied:
        golden_away[: np.int64(first)] = 0.0
        tied = True
    if tied:
        for j in range(first, last):
            half = binade(ref[j]) * unit
            golden_away[j] = (
                np.copysign(half, ref[j]) - golden_error[j] if abs(golden_error[j]) == half else 0.0
            )
    return tied


@jit
def score(scores: Any, found: Any, extra: Any, shared: Any, lock: Any, allowances: int) -> None:
    """Numerator, variance and squared norm of the three directions, from their projections."""
    for k in range(3):
        lowest = highest = 0.0
        for a in range(ALLOWED, ALLOWED + allowances):
            lowest, highest = min(lowest, found[a, k]), max(highest, found[a, k])
        own = found[OWN, k] + extra[k]
        golden = max(found[EVEN, k] ** 2, (found[EVEN, k] + found[AWAY, k]) ** 2)
        together = 0.0
        for other in range(3):
            together += shared[other] * found[GRAM + other, k] * found[GRAM + other, k]
        scores[3 * k] = outside(found[ERROR, k], lowest, highest)
        scores[3 * k + 1] = own + lock[k] + max(golden - COHERENT * own, 0.0) + together
        scores[3 * k + 2] = found[GRAM + k, k]


@jit
def row_scratch(n: int) -> Any:
    """What compare_row works with, for rows of n: running totals of sums and of projections,
    distances, what is found of the projections, extra, and the scratch of the keys.
    """
    lanes, projected = np.zeros(SUMS * LANES), np.zeros(PROJECTIONS * 3 * LANES)
    return (
        lanes,
        projected,
        np.empty(CHUNK),
        np.empty((PROJECTIONS, 3)),
        np.empty(3),
        key_scratch(n),
    )


@jit
def fold_row(totals: Any, found: Any, lanes: Any, projected: Any) -> None:
    """Take the running totals of a row, and clear them for the next."""
    for k in range(SUMS):
        totals[k] += fold(lanes[k * LANES :], LANES)
    for k in range(PROJECTIONS):
        for w in range(3):
            found[k, w] = fold(projected[(3 * k + w) * LANES :], LANES)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        found[GRAM + second, first] = found[GRAM + first, second]
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
    truncated: Any,
) -> bool:
    """Add one row. out, raw, ref, bound, noise: (n,) float64; the directions are w0, w1 and ref,
    and shared[k] is the variance of the row's error along the k-th; lock[k] is what keyed errors
    and patterns add to the variance of the k-th direction; a projection inside the hull of 0 and
    the first `allowances` rows of `allowance` is none. `own_noise` is what keyed errors add to s^2;
    chi counts errors beyond `truncated`. Leaves e, e0 (ties to even), s^2 and, where it returns
    True, what ties away add to e0 in error, golden_error, variance and golden_away. `origin` shifts
    raw in the PCC's sums.
    """
    lanes, projected, distance, found, extra, keys = scratch
    tied = False
    for start in range(0, n, BLOCK):
        first, last = U(start), U(min(start + BLOCK, n))
        add_moments(out, raw, first, last, origin, lanes)
        needed_atols(out, raw, first, last, totals)
        count_ulps(out, raw, first, last, unit, totals, bins, distance)
        if declared:
            raise_allclose(out, raw, first, last, rtol, atol, totals, TOLERANCE)
            raise_allclose(out, ref, first, last, rtol, atol, totals, TOLERANCE_QUANTISED)
        if not informative:
            continue
        for j in range(first, last):
            error[j] = out[j] - ref[j]
        against_budget(row, first, last, out, ref, bound, error, totals)
        add_variance(ref, noise, own_noise, w0, w1, shared, first, last, variance)
        add_chi(error, variance, truncated, first, last, lanes)
        project_gram(w0, w1, ref, first, last, 3 * GRAM, projected)
        project_squares(w0, w1, ref, noise, first, last, 3 * OWN, projected)
        tied = golden_errors(out, ref, first, last, unit, golden_error, golden_away, tied, totals)
        if tied:
            project(w0, w1, ref, golden_away, first, last, 3 * AWAY, projected)
        project(w0, w1, ref, golden_error, first, last, 3 * EVEN, projected)
        project(w0, w1, ref, error, first, last, 3 * ERROR, projected)
        for k in range(allowances):
            project(w0, w1, ref, allowance[k], first, last, 3 * (ALLOWED + k), projected)
    fold_row(totals, found, lanes, projected)
    if not informative:
        scores[:] = 0.0
        return False
    totals[USED] += n
    shared_keys(ref, noise, w0, w1, n, keys, extra)
    score(scores, found, extra, shared, lock, allowances)
    return tied
