"""One row of a matrix output (y, dx) against its expectation.

Every statistic is added to running totals. Three directions are measured at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.compiled.elements import (
    SUMS,
    add_chi,
    add_moments,
    against_budget,
    count_ulps,
    golden_errors,
    needed_atols,
    raise_allclose,
)
from gonogo.numerics.compiled.keys import key_scratch, shared_keys
from gonogo.numerics.compiled.loops import (
    BLOCK,
    CHUNK,
    LANES,
    U,
    fold,
    project,
    project_gram,
    project_squares,
)
from gonogo.numerics.expectation import COHERENT
from gonogo.numerics.jit import jit
from gonogo.numerics.totals import (
    DIRECTIONS,
    LEFT_OUT,
    TOLERANCE,
    TOLERANCE_QUANTIZED,
    USED,
)

SCORES = 3 * DIRECTIONS
"""Per row and direction: numerator, variance, squared norm."""

# Projections onto the row's three directions: the directions themselves, the noise (squared), e0
# (ties to even), what ties away add to e0, the error e.
GRAM, NOISE, EVEN, AWAY, ERROR = 0, 3, 4, 5, 6
PROJECTIONS = 7

KNOWN = 5
"""Facts of a row's projections on the three directions that its caller knows.

They are the variance of errors that elements share, the ends of the allowances' hull, the largest
squared projection of perfectly rounded outputs other than the reference's, and that of the
predicted bias.
"""
SHARED, LOWEST, HIGHEST, GOLDEN, BIAS = range(KNOWN)


@jit
def outside(projection: float, lowest: float, highest: float) -> Any:
    """Return how far the projection lies outside [lowest, highest], signed."""
    return max(projection - highest, 0.0) + min(projection - lowest, 0.0)


@jit
def score(scores: Any, projections: Any, extra: Any, shared: Any, known: Any) -> None:
    """Compute numerator, variance and squared norm of the three directions from projections."""
    for k in range(DIRECTIONS):
        independent = projections[NOISE, k] + extra[k]
        golden = max(
            projections[EVEN, k] ** 2,
            (projections[EVEN, k] + projections[AWAY, k]) ** 2,
            known[GOLDEN, k],
        )
        together = 0.0
        for other in range(DIRECTIONS):
            together += shared[other] * projections[GRAM + other, k] * projections[GRAM + other, k]
        scores[3 * k] = outside(projections[ERROR, k], known[LOWEST, k], known[HIGHEST, k])
        scores[3 * k + 1] = (
            independent
            + known[SHARED, k]
            + max(golden - COHERENT * independent, 0.0)
            + max(known[BIAS, k] - COHERENT * independent, 0.0)
            + together
        )
        scores[3 * k + 2] = projections[GRAM + k, k]


@jit
def row_scratch(n: int) -> Any:
    """Return the scratch memory of compare_row, for rows of n.

    It holds running totals of sums and of projections, distances, the projections, extra, and the
    scratch of the keys.
    """
    lanes, projected = np.zeros(SUMS * LANES), np.zeros(PROJECTIONS * DIRECTIONS * LANES)
    return (
        lanes,
        projected,
        np.empty(CHUNK),
        np.empty((PROJECTIONS, DIRECTIONS)),
        np.empty(DIRECTIONS),
        key_scratch(n),
    )


@jit
def fold_row(totals: Any, projections: Any, lanes: Any, projected: Any) -> None:
    """Fold the running totals of a row into the totals, and clear them for the next row."""
    for k in range(SUMS):
        totals[k] += fold(lanes[k * LANES :], LANES)
    for k in range(PROJECTIONS):
        for w in range(DIRECTIONS):
            projections[k, w] = fold(projected[(DIRECTIONS * k + w) * LANES :], LANES)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        projections[GRAM + second, first] = projections[GRAM + first, second]
    lanes[:] = 0.0
    projected[:] = 0.0


@jit
def add_allowances(
    w0: Any, w1: Any, w2: Any, n: int, allowance: Any, allowances: int, lanes: Any, known: Any
) -> None:
    """Set the ends of the hull of 0 and the projections of the first `allowances` rows.

    lanes: (3 LANES allowances,) zeros, which it leaves zero.
    """
    for start in range(0, n, BLOCK):
        first, last = U(start), U(min(start + BLOCK, n))
        for k in range(allowances):
            project(w0, w1, w2, allowance[k], first, last, DIRECTIONS * k, lanes)
    for w in range(DIRECTIONS):
        lowest = highest = 0.0
        for k in range(allowances):
            projection = fold(lanes[(DIRECTIONS * k + w) * LANES :], LANES)
            lowest, highest = min(lowest, projection), max(highest, projection)
        known[LOWEST, w], known[HIGHEST, w] = lowest, highest
    lanes[:] = 0.0


@jit
def compare_row(
    row: int,
    n: int,
    counted: bool,
    out: Any,
    raw: Any,
    raw_tops: Any,
    ref: Any,
    ref_tops: Any,
    bound: Any,
    noise: Any,
    variance: Any,
    truncated: Any,
    w0: Any,
    w1: Any,
    w2: Any,
    shared: Any,
    known: Any,
    unit: float,
    rtol: float,
    atol: float,
    declared: bool,
    origin: float,
    informative: bool,
    totals: Any,
    bins: Any,
    scores: Any,
    scratch: Any,
    error: Any,
    golden_error: Any,
    golden_away: Any,
) -> bool:
    """Add one row to the totals.

    Where not `counted`, only its directions are measured. out, raw, ref, bound, noise: (n,)
    float64; `variance` is s^2. raw_tops, ref_tops: see block_tops. chi counts errors beyond
    `truncated`. The directions are w0, w1 and w2. shared[k] is the variance of the row's error
    along the k-th. known: (KNOWN, 3). `origin` shifts raw in the PCC's sums.

    Leaves e in `error` and e0 (ties to even) in `golden_error`. Returns whether there were ties.
    What ties away add to e0 is then in `golden_away`.
    """
    lanes, projected, distance, projections, extra, keys = scratch
    tied = False
    for start in range(0, n, BLOCK):
        first, last = U(start), U(min(start + BLOCK, n))
        if counted:
            add_moments(out, raw, first, last, origin, lanes)
            needed_atols(out, raw, first, last, totals)
            count_ulps(out, raw, raw_tops, first, last, unit, totals, bins, distance)
            if declared:
                raise_allclose(out, raw, first, last, rtol, atol, totals, TOLERANCE)
                raise_allclose(out, ref, first, last, rtol, atol, totals, TOLERANCE_QUANTIZED)
        if not informative:
            continue
        for j in range(first, last):
            error[j] = out[j] - ref[j]
        if counted:
            against_budget(row, first, last, out, ref, bound, error, totals)
            add_chi(error, variance, truncated, first, last, lanes)
        project_gram(w0, w1, w2, first, last, DIRECTIONS * GRAM, projected)
        project_squares(w0, w1, w2, noise, first, last, DIRECTIONS * NOISE, projected)
        tied = golden_errors(
            out, ref, ref_tops, first, last, unit, golden_error, golden_away, tied, totals
        )
        if tied:
            project(w0, w1, w2, golden_away, first, last, DIRECTIONS * AWAY, projected)
        project(w0, w1, w2, golden_error, first, last, DIRECTIONS * EVEN, projected)
        project(w0, w1, w2, error, first, last, DIRECTIONS * ERROR, projected)
    fold_row(totals, projections, lanes, projected)
    if not informative:
        totals[LEFT_OUT] += 1.0
        scores[:] = 0.0
        return False
    totals[USED] += n
    shared_keys(ref, noise, w0, w1, w2, n, keys, extra)
    score(scores, projections, extra, shared, known)
    return tied
