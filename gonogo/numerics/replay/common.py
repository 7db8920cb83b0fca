"""The common factor of all rows, which rounding doesn't make.

Each row rounds an rstd of its own, so the rows' errors are independent and their mean tends to 0.
A wrong epsilon under a large variance, or a small factor, is in all of them: it shows in the mean
even where no single row shows it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp
from gonogo.numerics.replay.cells import POOLED, Edges, SharedErrors, edges
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Quantity
from gonogo.numerics.tails import log_upper_tail

MIN_SCORE = 4.89
"""Standard deviations by which the mean must differ from 0; beyond them lies one in a million."""
MIN_DEVIATIONS = 1.5
"""The least mean, in standard deviations of a single row: rows that are alike round alike."""
MIN_SCATTER = 1 / 8
"""The least scatter of the rows about their mean, relative to a single row's standard deviation.
Rows that scatter less are alike, and share what their sums round to."""
MAX_ELEMENTS = 2**17
"""The part of an output in a narrow format from which a factor is estimated, in whole rows."""
REACH = 9.0
"""Standard deviations from the nearest edge of its cell within which an element says something."""
MAX_NOISE = 1 / 16
"""The largest noise of an element, in half steps of the format: one edge only is within reach."""
MIN_FLIPPED_ROWS = 6
"""Rows that must have elements outside their cells, one way."""
MIN_LARGE_ROWS = 2
LARGE = 8.0
"""The rows that must where the factor is beyond LARGE standard deviations of a single row's error:
one row alone would be unexplained by as much (ladder.LIMIT)."""
ROUNDS = 60
CONVERGED = 1e-3
FIRST_STEP = 3.0
"""Newton's iteration: the most rounds, and the step at which it ends and that it takes at most
first, in standard deviations of rstd's rounding. Far from the maximum few elements say anything and
a step may be much too long, so the longest one doubles, as long as the direction stays."""


def common_factor(
    graph: Graph,
    program: Program,
    output: NDArray[np.floating],
    form: str,
    errors: SharedErrors,
    least: float = MIN_SCORE,
) -> float:
    """Return |f| of the factor 1 + f that all rows share; 0 where it may be chance.

    Args:
        graph: the output's formula with the kernel's inputs.
        program: a program that explains each element and each row.
        output: (rows, N).
        form: its format.
        errors: the rows' shared errors, which outputs in fp32 show by themselves.
        least: the standard deviations by which the factor must differ from 0.
    """
    last = graph.last(program)
    if last is not None and program.stored.get(last) == form:
        # to store the output before it is rounded is to round it: that hides no factor
        others = {name: stored for name, stored in program.stored.items() if name != last}
        program = replace(program, stored=others)
    rounding = graph.rstd_rounding(program)
    if rounding is None:
        return 0.0
    _, distinct = np.unique(rounding, return_index=True)
    distinct = distinct[rounding[distinct] > 0.0]  # some rows only may store rstd
    if len(distinct) < 2:
        return 0.0
    if form == "fp32":
        return _of_rows(
            errors.estimates[distinct], errors.spreads[distinct], rounding[distinct], least
        )
    count = max(1, min(len(distinct), MAX_ELEMENTS // graph.shape[1]))
    rows = np.sort(distinct)[np.linspace(0, len(distinct) - 1, count).astype(np.intp)]
    replay = graph.some(rows).replay(program)
    y = np.asarray(output[rows], np.float64)
    near = edges(y, replay.values, form, program.output_rounding)
    return _of_cells(near, half_ulp(y, form), replay, rounding[rows], least)


def _of_rows(estimates: Array, spreads: Array, rounding: Array, least: float) -> float:
    """Return the common factor from the estimate of each row (rows,)."""
    says = spreads > 0.0
    if says.sum() < 2:
        return 0.0
    factors = estimates[says] / spreads[says] * rounding[says]
    weights = spreads[says] / rounding[says] ** 2
    mean = float((weights * factors).sum() / weights.sum())
    freedom = len(weights) - 1
    scatter = math.sqrt(float((weights * (factors - mean) ** 2).sum()) / freedom)
    deviations = abs(mean) * math.sqrt(float(weights.mean()))
    if scatter < MIN_SCATTER or deviations < MIN_DEVIATIONS:
        return 0.0
    t = abs(mean) * math.sqrt(float(weights.sum())) / scatter
    return abs(mean) if score(t, freedom) >= least else 0.0


def score(t: float, freedom: int) -> float:
    """Return the normal deviate that is as unlikely as Student's t.

    Source: Wallace, "Bounds on normal approximations to Student's and the chi-square
    distributions", Annals of Mathematical Statistics 30 (1959), whose error is below .1 here.
    """
    wallace = (8 * freedom + 1) / (8 * freedom + 3)
    return wallace * math.sqrt(freedom * math.log1p(t * t / freedom))


def _of_cells(near: Edges, half: Array, replay: Quantity, rounding: Array, least: float) -> float:
    """Return the common factor that makes the elements' cells most likely.

    Only the elements near an edge of their cell say something: with z their distance beyond it in
    standard deviations, their likelihood is Q(z), the upper tail of the normal distribution. A
    factor moves z.

    near: the nearest edges of the cells (rows, N). half: half steps of the format (rows, N).
    """
    if POOLED not in replay.shared:
        return 0.0
    shape = half.shape
    pattern = np.broadcast_to(replay.shared[POOLED], shape)
    deviation = np.sqrt(np.broadcast_to(replay.variance, shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = near.outside / deviation
        slope = -near.inward * pattern / deviation
    says = (np.abs(z) < REACH) & (deviation < MAX_NOISE * half) & (replay.slack == 0.0)
    if not says.any():
        return 0.0
    # the pattern is that of one rounding: a factor of all rows is more of them where they are small
    usual = float(np.median(rounding))
    slope = slope * (usual / rounding)[:, None]
    z, slope, rows = z[says], slope[says], np.nonzero(says)[0]
    size = _most_likely(z, slope)
    of_row = _row_deviation(replay, pattern)
    flipped = np.unique(rows[(z > 0) & (slope * size < 0)])
    if len(flipped) < (MIN_LARGE_ROWS if abs(size) >= LARGE * of_row else MIN_FLIPPED_ROWS):
        return 0.0
    if 2.0 * (_log_likelihood(z + size * slope) - _log_likelihood(z)) < least**2:
        return 0.0
    if abs(size) < MIN_DEVIATIONS * of_row:
        return 0.0
    return abs(size) * usual


def _most_likely(z: Array, slope: Array) -> float:
    """Return the factor of largest likelihood, by Newton's iteration: log Q is concave."""
    size = last = 0.0
    longest = FIRST_STEP
    for _ in range(ROUNDS):
        moved = z + size * slope
        hazard = _hazard(moved)
        information = float((hazard * (hazard - moved) * slope**2).sum())
        if not information > 0.0:
            return 0.0
        step = -float((hazard * slope).sum()) / information
        longest = 2.0 * longest if step * last > 0.0 else FIRST_STEP
        last = step
        size += min(longest, max(-longest, step))
        if abs(step) < CONVERGED:
            break
    return size


def _log_likelihood(z: Array) -> float:
    return float(log_upper_tail(z).sum())


def _hazard(z: Array) -> Array:
    """Return the normal density over the upper tail, at z."""
    return np.asarray(np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_upper_tail(z)))


def _row_deviation(replay: Quantity, pattern: Array) -> float:
    """Return the deviation of a row's error along the pattern of rstd's rounding, in its units."""
    norm = np.maximum((pattern**2).sum(axis=1), 1e-300)
    along = [(error * pattern).sum(axis=1) / norm for error in replay.shared.values()]
    return math.sqrt(float(np.mean(np.square(along).sum(axis=0))))
