"""The totals of each column direction, filled row by row."""

from __future__ import annotations

from typing import Any

from gonogo.numerics.compiled.loops import BLOCK, U
from gonogo.numerics.jit import jit

ALLOWANCES = 7
"""The largest number of allowances."""

# Column totals for each column direction w: the sums of w e; w e0 (ties to even); w^2 s^2; three of
# w trend; four of |w| spread; w^2 (where w is 1: only whether there was a row); what ties away add
# to w e0; three of w pattern; ALLOWANCES of w allowance.
COLUMNS = 15 + ALLOWANCES
COLUMN_ERROR, COLUMN_EVEN, COLUMN_VARIANCE, COLUMN_TREND, COLUMN_SPREAD = 0, 1, 2, 3, 6
COLUMN_NORM, COLUMN_AWAY, COLUMN_PATTERN, COLUMN_ALLOWANCE = 10, 11, 12, 15


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
    tied: bool,
    variance: Any,
    trends: Any,
    spreads: Any,
    allowance: Any,
    allowances: int,
    columns: Any,
) -> None:
    """Add one row to the column totals of one direction: w, or 1 where not `weighted`.

    `tied` is what compare_row returned. trends[k] = (a, b, c) stands for the trend a w0 + b w1 + c
    ref. spreads[k] belongs to |w0| (k = 0, 1) or |w1| (k = 2, 3).
    """
    if not weighted and columns[COLUMN_NORM, 0] == 0.0:
        columns[COLUMN_NORM, :] = 1.0
    for start in range(0, n, BLOCK):
        first, last = U(start), U(min(start + BLOCK, n))
        add_squares(w, weighted, variance, first, last, columns)
        add_one(w, weighted, 1.0, error, first, last, columns, COLUMN_ERROR)
        add_one(w, weighted, 1.0, golden_error, first, last, columns, COLUMN_EVEN)
        if tied:
            add_one(w, weighted, 1.0, golden_away, first, last, columns, COLUMN_AWAY)
        for k in range(allowances):
            add_one(w, weighted, 1.0, allowance[k], first, last, columns, COLUMN_ALLOWANCE + k)
        for k in range(3):
            if trends[k, 0] != 0.0:
                add_one(w, weighted, trends[k, 0], w0, first, last, columns, COLUMN_TREND + k)
            if trends[k, 1] != 0.0:
                add_one(w, weighted, trends[k, 1], w1, first, last, columns, COLUMN_TREND + k)
            if trends[k, 2] != 0.0:
                add_one(w, weighted, trends[k, 2], ref, first, last, columns, COLUMN_TREND + k)
        for k in range(4):
            if spreads[k] != 0.0:
                add_size(
                    w,
                    weighted,
                    spreads[k],
                    w0 if k < 2 else w1,
                    first,
                    last,
                    columns,
                    COLUMN_SPREAD + k,
                )


@jit
def add_squares(w: Any, weighted: bool, variance: Any, first: Any, last: Any, columns: Any) -> None:
    """Add w^2 s^2 and w^2 of some columns (s^2 where not `weighted`)."""
    if weighted:
        for j in range(first, last):
            columns[COLUMN_VARIANCE, j] += w[j] * w[j] * variance[j]
            columns[COLUMN_NORM, j] += w[j] * w[j]
    else:
        for j in range(first, last):
            columns[COLUMN_VARIANCE, j] += variance[j]


@jit
def add_one(
    w: Any,
    weighted: bool,
    factor: float,
    values: Any,
    first: Any,
    last: Any,
    columns: Any,
    place: int,
) -> None:
    """Add w factor values of some columns to the totals at `place`.

    Where not `weighted`, add factor values.
    """
    if weighted:
        for j in range(first, last):
            columns[place, j] += w[j] * (factor * values[j])
    else:
        for j in range(first, last):
            columns[place, j] += factor * values[j]


@jit
def add_size(
    w: Any,
    weighted: bool,
    factor: float,
    values: Any,
    first: Any,
    last: Any,
    columns: Any,
    place: int,
) -> None:
    """Add factor |w values| of some columns to the totals at `place`.

    Where not `weighted`, add factor |values|.
    """
    if weighted:
        for j in range(first, last):
            columns[place, j] += factor * abs(w[j] * values[j])
    else:
        for j in range(first, last):
            columns[place, j] += factor * abs(values[j])
