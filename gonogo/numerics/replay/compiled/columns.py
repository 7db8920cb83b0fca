"""Sums of dy and of dy x^ down the columns, in the orders of `gonogo.numerics.replay.orders`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.compiled.elements import FORM, first_part, second_part
from gonogo.numerics.replay.compiled.gradient import rounded
from gonogo.numerics.replay.compiled.sums import (
    BLOCKED,
    COMPUTED,
    EXACT,
    LARGEST,
    NOISE,
    SIZE,
    VALUE,
)

WIDTH = 64
"""Columns that are summed together: their running totals stay in the first-level cache."""

# The numbers of a row.
MEAN, RSTD, SHARED = range(3)
NUMBERS = SHARED + FORM
"""At SHARED is the FORM of the errors of x^ that the row shares."""

EXACT_LANES = 8


@jit
def fold(lanes: Any, count: int) -> None:
    """Add the first `count` lanes (a power of two) in pairs, into the first."""
    size = count
    while size > 1:
        size //= 2
        for k in range(size):
            for j in range(lanes.shape[1]):
                lanes[k, j] += lanes[size + k, j]


@jit
def raise_errors(total: Any, count: int, width: int, facts: Any) -> None:
    """Raise the largest error of each column's mean to that of `total` (width,)."""
    for j in range(width):
        error = abs(np.float64(total[j]) / count - facts[j, EXACT])
        facts[j, LARGEST] = max(facts[j, LARGEST], error)


@jit
def sum_in_orders(narrow: Any, count: int, width: int, order: int, facts: Any) -> None:
    """Put the means of narrow (count, width) in the program's order, errors and sizes in `facts`.

    Only blocked and running sums. Overwrites `narrow`.
    """
    lanes = np.empty((32, width), np.float32)
    for size in (4, 8, 32):
        lanes[:] = 0.0
        for i in range(count):
            lane, row = lanes[i % size], narrow[i]
            for j in range(width):
                lane[j] += row[j]
        fold(lanes, size)
        raise_errors(lanes[0], count, width, facts)
    lanes[:] = 0.0
    for i in range(count):
        lane, row = lanes[i % 32], narrow[i]
        for j in range(width):
            lane[j] += abs(row[j])
    fold(lanes, 32)
    for j in range(width):
        facts[j, SIZE] = np.float64(lanes[0, j]) / count
    lanes[0] = 0.0
    if order == BLOCKED:
        facts[:, COMPUTED] = facts[:, EXACT]
    else:
        total = lanes[0]
        for i in range(count):
            row = narrow[i]
            for j in range(width):
                total[j] += row[j]
        for j in range(width):
            facts[j, COMPUTED] = np.float64(total[j]) / count
    size = count
    while size > 1:
        half = (size + 1) // 2
        for i in range(size - half):
            row, other = narrow[i], narrow[half + i]
            for j in range(width):
                row[j] += other[j]
        size = half
    raise_errors(narrow[0], count, width, facts)


@jit
def add_columns(
    first: int, last: int, weighted: bool, centered: bool, given: bool, x: Any, dy: Any,
    numbers: Any, order: int, facts: Any,
) -> None:  # fmt: skip
    """Put the means of columns first..last into `facts` (N, FACTS).

    x, dy: (rows, N). weighted: of dy x^, not of dy. centered: whether a mean is subtracted from x.
    given: whether mean and rstd are inputs, and so without error. numbers: (rows, NUMBERS). The
    noise is the sum of the terms' variances.
    """
    count, width = dy.shape[0], last - first
    narrow = np.empty((count, width), np.float32)
    wide = np.zeros((EXACT_LANES, width))
    wide_narrow = np.zeros((EXACT_LANES, width))
    terms, variance = np.empty(width), np.zeros(width)
    for i in range(count):
        gradient, row = dy[i, first:last], x[i, first:last]
        for j in range(width):
            terms[j] = gradient[j]
        if weighted:
            mean, rstd, form = numbers[i, MEAN], numbers[i, RSTD], numbers[i, SHARED:]
            for j in range(width):
                d = np.float64(gradient[j])
                difference = row[j] - mean
                normalized = difference * rstd
                noise = rounded(difference, 0.0, given) * rstd * rstd if centered else 0.0
                noise = rounded(normalized, noise, given)
                terms[j] = d * normalized
                u0, u1 = first_part(form, difference, 0.0), second_part(form, difference, 0.0)
                shared = d * d * (u0 * u0 + u1 * u1)
                variance[j] += rounded(terms[j], noise * d * d, given) + shared
        lane, narrow_lane, narrow_row = wide[i % 8], wide_narrow[i % 8], narrow[i]
        for j in range(width):
            lane[j] += terms[j]
            narrow_row[j] = terms[j]
            narrow_lane[j] += narrow_row[j]
    fold(wide, EXACT_LANES)
    fold(wide_narrow, EXACT_LANES)
    some = facts[first:last]
    for j in range(width):
        some[j, VALUE] = wide[0, j] / count
        some[j, EXACT] = wide_narrow[0, j] / count
        some[j, NOISE] = variance[j]
    sum_in_orders(narrow, count, width, order, some)
