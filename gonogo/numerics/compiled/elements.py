"""Every element of a row against its reference and its bound, added to running totals."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.compare import OUTLIER_BUDGETS, OUTLIER_RATIO, SMALLEST_NORMAL
from gonogo.numerics.compiled.loops import (
    CHUNK,
    LANES,
    U,
    binade,
    bits,
    number,
)
from gonogo.numerics.distances import NEEDED_RTOLS
from gonogo.numerics.jit import jit
from gonogo.numerics.totals import (
    BIN_SHIFT,
    BINS,
    BUDGET,
    CHI,
    EXACT_BINS,
    FIRST_OCTAVE,
    MAX_ABS,
    MAX_RAW,
    MISMATCH,
    NEEDED,
    OUTLIERS,
    OVER,
    SUM_ABS,
    SUM_ERROR,
    SUM_RAW,
    SUM_RAW_CENTRED,
    SUM_RAW_ERROR,
    SUM_RAW_SQUARES,
    SUM_SQUARES,
    ULP_MAX,
    WORST_COLUMN,
    WORST_ROW,
)

_, R1, R2, R3, R4, R5 = NEEDED_RTOLS

SUMS = 8
"""The number of totals that are sums over all columns. They come first, with lanes of their own."""

MAGIC = 1.5 * 2.0**52 * 2.0
"""A factor for the unit roundoff and a value's binade.

Adding and subtracting the product rounds the value to nearest even.
"""
RECIPROCAL = np.int64(2046 << 52)
"""Minus the bits of a power of two: the bits of its reciprocal."""
BLOCK_SIZE = 16
"""The elements of a block format that share an exponent."""
ALMOST = 1.0 - 2.0**-40
"""A margin for a product in place of a quotient.

What is not larger than the largest so far by this much isn't larger after rounding either.
"""


@jit
def count_far(distance: Any, n: Any, bins: Any) -> None:
    """Add each ceil(distance) above 3 to the histogram."""
    for j in range(n):
        if distance[j] > 3.0:
            whole = np.ceil(distance[j])
            if whole <= EXACT_BINS - 1:
                bins[np.int64(whole)] += 1
            else:
                place = EXACT_BINS + (bits(whole) >> BIN_SHIFT) - FIRST_OCTAVE
                bins[min(place, BINS - 1)] += 1


@jit
def raise_to(totals: Any, place: int, pattern: Any) -> None:
    """Raise a total to a maximum that is given as bits."""
    totals[place] = max(totals[place], number(pattern))


@jit
def block_tops(values: Any, n: int, tops: Any) -> None:
    """Set `tops` to the largest |v| of each aligned group of 16, whose binade a block format has.

    In other formats each value has its own: `values` are their tops.
    """
    for start in range(0, n, BLOCK_SIZE):
        stop = min(start + BLOCK_SIZE, n)
        most = 0.0
        for j in range(start, stop):
            most = max(most, abs(values[j]))
        for j in range(start, stop):
            tops[j] = most


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
    """Raise a total to the largest |out - reference| / (atol + rtol |reference|).

    Divisions are slow, so they run only where one may be larger.
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
    """Raise the totals of the largest errors: by themselves, and beyond each rtol."""
    size_max = raw_max = needed1 = needed2 = needed3 = needed4 = needed5 = np.int64(0)
    for j in range(first, last):
        size, reference = abs(out[j] - raw[j]), abs(raw[j])
        size_max = max(size_max, bits(size))
        raw_max = max(raw_max, bits(reference))
        needed1 = max(needed1, bits(size - R1 * reference))
        needed2 = max(needed2, bits(size - R2 * reference))
        needed3 = max(needed3, bits(size - R3 * reference))
        needed4 = max(needed4, bits(size - R4 * reference))
        needed5 = max(needed5, bits(size - R5 * reference))
    raise_to(totals, MAX_ABS, size_max)
    raise_to(totals, MAX_RAW, raw_max)
    raise_to(totals, NEEDED, size_max)
    raise_to(totals, NEEDED + 1, needed1)
    raise_to(totals, NEEDED + 2, needed2)
    raise_to(totals, NEEDED + 3, needed3)
    raise_to(totals, NEEDED + 4, needed4)
    raise_to(totals, NEEDED + 5, needed5)


@jit
def count_ulps(
    out: Any,
    raw: Any,
    tops: Any,
    first: Any,
    last: Any,
    unit: float,
    totals: Any,
    bins: Any,
    distance: Any,
) -> None:
    """Count the distances in ulps of the rounded raw reference.

    Almost all are 0 to 3; comparisons count those (as vectors). tops: see block_tops.
    """
    magic = MAGIC * unit
    farthest = np.int64(0)
    for start in range(first, last, U(CHUNK)):
        stop = min(start + U(CHUNK), last)
        zero = one = two = three = 0
        for j in range(start, stop):
            step = binade(tops[j]) * magic
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
    """Add a chunk's errors and raw reference to the sums, as running totals.

    A whole chunk is folded first (see loops.project).
    """
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i0 = start + U(j)
            i1 = i0 + U(LANES)
            i2 = i1 + U(LANES)
            i3 = i2 + U(LANES)
            e0, e1, e2, e3 = (
                out[i0] - raw[i0],
                out[i1] - raw[i1],
                out[i2] - raw[i2],
                out[i3] - raw[i3],
            )
            c0, c1, c2, c3 = raw[i0] - origin, raw[i1] - origin, raw[i2] - origin, raw[i3] - origin
            lanes[SUM_ERROR * LANES + j] += (e0 + e1) + (e2 + e3)
            lanes[SUM_ABS * LANES + j] += (abs(e0) + abs(e1)) + (abs(e2) + abs(e3))
            lanes[SUM_SQUARES * LANES + j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3)
            lanes[SUM_RAW * LANES + j] += (c0 + c1) + (c2 + c3)
            lanes[SUM_RAW_CENTRED * LANES + j] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
            lanes[SUM_RAW_ERROR * LANES + j] += (c0 * e0 + c1 * e1) + (c2 * e2 + c3 * e3)
            lanes[SUM_RAW_SQUARES * LANES + j] += (raw[i0] * raw[i0] + raw[i1] * raw[i1]) + (
                raw[i2] * raw[i2] + raw[i3] * raw[i3]
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
    """Compare some columns with their bound.

    The totals get the worst multiple and its place, the number over 1, and the outliers.
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
def beyond(error: float, truncated: float) -> Any:
    """Return the part of an error outside 0 and `truncated`."""
    return max(error - max(truncated, 0.0), 0.0) + min(error - min(truncated, 0.0), 0.0)


@jit
def deviations(error: float, truncated: float, variance: float) -> Any:
    """Return the error beyond `truncated` in standard deviations, squared."""
    far = beyond(error, truncated)
    return far * far / variance if far != 0.0 else 0.0


@jit
def add_chi(error: Any, variance: Any, truncated: Any, first: Any, last: Any, lanes: Any) -> None:
    """Add the errors beyond `truncated` in standard deviations, squared.

    See expectation.beyond_truncation.
    """
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i0 = start + U(j)
            i1 = i0 + U(LANES)
            i2 = i1 + U(LANES)
            i3 = i2 + U(LANES)
            first_half = deviations(error[i0], truncated[i0], variance[i0]) + deviations(
                error[i1], truncated[i1], variance[i1]
            )
            second_half = deviations(error[i2], truncated[i2], variance[i2]) + deviations(
                error[i3], truncated[i3], variance[i3]
            )
            lanes[CHI * LANES + j] += first_half + second_half
    for j in range(np.int64(last - full)):
        i = full + U(j)
        lanes[CHI * LANES + j % LANES] += deviations(error[i], truncated[i], variance[i])


@jit
def golden_errors(
    out: Any,
    ref: Any,
    tops: Any,
    first: Any,
    last: Any,
    unit: float,
    golden_error: Any,
    golden_away: Any,
    tied: bool,
    totals: Any,
) -> bool:
    """Compute e0 of some columns with ties to even, and what ties away add to it.

    Also count the outputs that aren't the golden value. Returns whether there were ties (or zeros)
    in this row so far. While there are none, nothing is written to golden_away. tops: see
    block_tops.
    """
    magic = MAGIC * unit
    mismatch = ties = 0
    for j in range(first, last):
        power = binade(tops[j])
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
            half = binade(tops[j]) * unit
            golden_away[j] = (
                np.copysign(half, ref[j]) - golden_error[j] if abs(golden_error[j]) == half else 0.0
            )
    return tied
