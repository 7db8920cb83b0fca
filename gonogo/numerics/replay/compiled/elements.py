"""Elements of an output beside their replay: distances from cells, and sums for a row's errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import bits, half_cell, number
from gonogo.numerics.replay.cells import FLOOR

BLOCK = 1024
"""Columns that one loop after another works on: their data stays in a second-level cache."""

# The numbers of a row's result.
RATIO, COLUMN, BEYOND = range(3)
RESULTS = 3
"""The largest squared distance, its column, and the number of elements beyond the limit."""

FORM = 6
"""The triangle r of a row's shared errors, row by row, for the patterns 1, c and t.

The variance that they add is u0^2 + u1^2 + u2^2, with u0 = r00 + r01 c + r02 t, u1 = r11 c + r12 t
and u2 = r22 t. Multiplied out it would lose what cancels between the patterns.
"""

U = np.uint64
"""The type of indices in sums: of signed ones, which might be negative, no vectors are made."""
LANES = 64
"""Running totals of a sum: so many that none waits for its last addition."""


@jit
def add_cells(
    width: int,
    first: int,
    output: Any,
    value: Any,
    variance: Any,
    unit: float,
    smallest: float,
    limit: float,
    ratio: Any,
    result: Any,
) -> None:
    """Add columns first..first + width of a row to its `result`.

    output, value, variance: the outputs, their replay and its variance (width,). limit: of squared
    distances. ratio: scratch. Maxima are those of bits, so that NaN is the largest.
    """
    largest = np.int64(0)
    beyond = 0
    for j in range(width):
        y = np.float64(output[j])
        v = value[j]
        outside = abs(y - v) - half_cell(y, v, unit, smallest)
        outside = 0.0 if outside < 0.0 else outside
        floor = FLOOR * max(abs(v), abs(y))
        squared = outside * outside / (variance[j] + floor * floor)
        squared = 0.0 if outside == 0.0 else abs(squared)
        ratio[j] = squared
        largest = max(largest, bits(squared))
        beyond += squared > limit
    result[BEYOND] += beyond
    if largest > bits(result[RATIO]):
        result[RATIO] = number(largest)
        for j in range(width):
            if bits(ratio[j]) == largest:
                result[COLUMN] = first + j
                break


@jit
def first_part(form: Any, c: float, t: float) -> Any:
    """Return u0 of FORM."""
    return form[0] + form[1] * c + form[2] * t


@jit
def second_part(form: Any, c: float, t: float) -> Any:
    """Return u1 of FORM."""
    return form[3] * c + form[4] * t


@jit
def add_products(weight: Any, a: Any, b: Any, width: int, lanes: Any) -> None:
    """Add weight a b to the lanes of a sum."""
    full = width - width % LANES
    for start in range(0, full, LANES):
        for j in range(LANES):
            place = U(start) + U(j)
            lanes[j] += weight[place] * a[place] * b[place]
    for j in range(full, width):
        lanes[j - full] += weight[j] * a[j] * b[j]


@jit
def add_gram(patterns: Any, count: int, error: Any, weight: Any, width: int, gram: Any) -> None:
    """Add the weighted products of patterns (count, width) with one another and with the error.

    gram: (count or more, one more, LANES); the upper triangle, and the error in the last column.
    """
    for k in range(count):
        for other in range(k, count):
            add_products(weight, patterns[k], patterns[other], width, gram[k, other])
        add_products(weight, patterns[k], error, width, gram[k, -1])


@jit
def weigh(
    width: int,
    output: Any,
    value: Any,
    noise: Any,
    unit: float,
    smallest: float,
    error: Any,
    weight: Any,
) -> None:
    """Compute the errors of an output, and their weights: 1 / (noise + half^2 / 3)."""
    for j in range(width):
        y = np.float64(output[j])
        half = half_cell(y, y, unit, smallest)
        error[j] = y - value[j]
        weight[j] = 1.0 / (noise[j] + half * half / 3.0)
