"""Loops over the rows of a block: the comparison with any expectation, matrix by matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.compiled.elements import block_tops
from gonogo.numerics.compiled.keys import key_scratch, keyed_variance
from gonogo.numerics.compiled.loops import LANES, U, fold, project
from gonogo.numerics.compiled.rows import SHARED, compare_row, row_scratch
from gonogo.numerics.jit import jit
from gonogo.numerics.totals import DIRECTIONS


@jit
def of_row(matrix: Any, i: int) -> Any:
    """Return row i of a matrix, or the only row that stands for all."""
    return matrix[i if matrix.shape[0] > 1 else 0]


@jit
def project_rows(w0: Any, w1: Any, w2: Any, values: Any, used: Any, projections: Any) -> None:
    """Set projections (rows, 3) to those of the rows of `values` that are used."""
    n = values.shape[1]
    lanes = np.zeros(DIRECTIONS * LANES)
    for i in range(used.size):
        if not used[i]:
            continue
        project(
            of_row(w0, i), of_row(w1, i), of_row(w2, i), of_row(values, i), U(0), U(n), 0, lanes
        )
        for k in range(DIRECTIONS):
            projections[i, k] = fold(lanes[k * LANES :], LANES)
        lanes[:] = 0.0


@jit
def add_keyed(w0: Any, w1: Any, w2: Any, key: Any, amplitude: Any, used: Any, known: Any) -> None:
    """Add the variance of the errors that elements of a row with one key share."""
    n = key.shape[1]
    scratch = key_scratch(n)
    for i in range(used.size):
        if used[i]:
            keyed_variance(
                of_row(key, i),
                of_row(amplitude, i),
                of_row(w0, i),
                of_row(w1, i),
                of_row(w2, i),
                n,
                scratch,
                known[i, SHARED],
            )


@jit
def compare_rows(
    start: int,
    counted: bool,
    output: Any,
    raw: Any,
    ref: Any,
    bound: Any,
    noise: Any,
    variance: Any,
    truncated: Any,
    w0: Any,
    w1: Any,
    w2: Any,
    known: Any,
    keep: Any,
    informative: Any,
    unit: float,
    block_format: bool,
    rtol: float,
    atol: float,
    declared: bool,
    origin: float,
    totals: Any,
    bins: Any,
    scores: Any,
    error: Any,
    golden_error: Any,
    golden_away: Any,
) -> None:
    """Compare the rows of a block that are kept; row 0 is row `start` of the output.

    output: (rows, N) float32. truncated, w0, w1, w2: (rows, N), or (1, N) for all rows. known:
    (rows, KNOWN, 3). scores: (rows, 9). error, golden_error and golden_away are zeros (rows, N), or
    (1, N) where the caller needs none of them; see compare_row.
    """
    n = ref.shape[1]
    out, shared = np.empty(n), np.zeros(DIRECTIONS)
    raw_tops, ref_tops = np.empty(n), np.empty(n)
    scratch = row_scratch(n)
    for i in range(keep.size):
        if not keep[i]:
            continue
        for j in range(n):
            out[j] = np.float64(output[i, j])
        raw_row, ref_row = of_row(raw, i), ref[i]
        if block_format:
            block_tops(raw_row, n, raw_tops)
            block_tops(ref_row, n, ref_tops)
        compare_row(
            start + i,
            n,
            counted,
            out,
            raw_row,
            raw_tops if block_format else raw_row,
            ref_row,
            ref_tops if block_format else ref_row,
            bound[i],
            noise[i],
            variance[i],
            of_row(truncated, i),
            of_row(w0, i),
            of_row(w1, i),
            of_row(w2, i),
            shared,
            known[i],
            unit,
            rtol,
            atol,
            declared,
            origin,
            informative[i],
            totals,
            bins,
            scores[i],
            scratch,
            of_row(error, i),
            of_row(golden_error, i),
            of_row(golden_away, i),
        )
