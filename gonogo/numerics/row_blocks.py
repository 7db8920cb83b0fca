"""The comparison of some rows of an output with their expectation in plain NumPy.

gonogo.numerics.compare defines the statistics with whole arrays; this adds up the same in the
memory of a block. gonogo.numerics.compiled does it faster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import compare, directions
from gonogo.numerics import totals as places
from gonogo.numerics.expectation import Array, Expectation, Mask, binade
from gonogo.numerics.totals import Column, Totals


def compare_block(
    output: NDArray[np.float32],
    raw: Array | None,
    expected: Expectation,
    keep: Mask,
    *,
    start: int = 0,
    allclose: tuple[float, float] | None = None,
    origin: float = 0.0,
    groups: NDArray[np.int64] | None = None,
) -> Totals:
    """Return the totals of a block of rows; see gonogo.numerics.compiled.comparison."""
    totals = Totals.empty()
    out = np.asarray(output if keep.all() else output[keep], np.float64)
    if raw is not None and out.size:
        _add_distances(totals, out, raw if keep.all() else raw[keep], expected, origin)
        if allclose is not None:
            _raise_allclose(totals, out, raw[keep], expected.reference[keep], allclose)
    used = keep if expected.informative is None else keep & expected.informative
    totals.sums[places.LEFT_OUT] = keep.sum() - used.sum()
    if not used.any():
        return totals
    usable = compare.restrict(expected, used)
    out = out if used.sum() == len(out) else np.asarray(output[used], np.float64)
    error = out - usable.reference
    goldens = compare.golden_of(usable)
    if raw is not None:
        _add_budget(totals, out, error, goldens[0], usable, start + np.flatnonzero(used))
    numbers = (np.full(keep.size, -1) if groups is None else groups)[used]
    for direction in usable.directions:
        if direction.axis == "column":
            totals.columns[direction.name] = Column.of(usable, direction, error, goldens, numbers)
            continue
        ruler = directions.Ruler.of(usable, direction, goldens)
        scores = np.stack([ruler.numerator(error), ruler.variance, ruler.valid], axis=1)
        totals.rows[direction.name] = [scores]
    return totals


def _add_distances(
    totals: Totals, out: Array, raw: Array, expected: Expectation, origin: float
) -> None:
    """Add the distances from the raw reference (rows, N)."""
    error, centered, size = out - raw, raw - origin, np.abs(raw)
    distance = np.abs(error)
    sums = totals.sums
    sums[places.SUM_ERROR] = error.sum()
    sums[places.SUM_ABS] = distance.sum()
    sums[places.SUM_SQUARES] = (error * error).sum()
    sums[places.SUM_RAW] = centered.sum()
    sums[places.SUM_RAW_CENTRED] = (centered * centered).sum()
    sums[places.SUM_RAW_ERROR] = (centered * error).sum()
    sums[places.SUM_RAW_SQUARES] = (size * size).sum()
    sums[places.MAX_ABS] = distance.max()
    sums[places.MAX_RAW] = size.max()
    for k, rtol in enumerate(compare.NEEDED_RTOLS):
        sums[places.NEEDED + k] = max(float((distance - rtol * size).max()), 0.0)
    golden = compare.rounded(raw, expected.out, expected.out_block)
    steps = 2 * expected.out * np.maximum(binade(golden), compare.SMALLEST_NORMAL)
    ulps = np.abs(out - golden) / steps
    sums[places.ULP_MAX] = ulps.max()
    totals.bins += np.bincount(places.bins_of(np.ceil(ulps).ravel()), minlength=places.BINS)


def _raise_allclose(
    totals: Totals, out: Array, raw: Array, reference: Array, allclose: tuple[float, float]
) -> None:
    rtol, atol = allclose
    for place, values in (
        (places.TOLERANCE, raw),
        (places.TOLERANCE_QUANTIZED, reference),
    ):
        allowed = atol + rtol * np.abs(values)
        totals.sums[place] = compare.largest_ratio(np.abs(out - values), allowed)


def _add_budget(
    totals: Totals,
    out: Array,
    error: Array,
    golden_error: Array,
    expected: Expectation,
    rows: NDArray[np.intp],
) -> None:
    """Add the errors of informative rows in budgets and in standard deviations.

    golden_error: what a perfectly rounded output errs by. rows: the rows' numbers.
    """
    sums = totals.sums
    ratio = compare.shares_of_budget(expected, error)
    row, column = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    sums[list(places.WORST)] = ratio[row, column], rows[row], column
    sums[places.OVER] = (ratio > 1.0).sum()
    sums[places.CHI] = compare.standardized_squares(expected, error).sum()
    sums[places.MISMATCH] = (golden_error != error).sum()
    sums[places.USED] = out.size
    far = ratio > compare.OUTLIER_BUDGETS
    if far.any():
        sums[places.OUTLIERS] = compare.near_powers(out[far], expected.reference[far]).sum()
