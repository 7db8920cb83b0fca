"""Rows of wide integers whose sum of squares is exact: RMSNorm's vernier, which has no beta.

With x = S c and sum c^2 = 4^m N, x^ = c / 2^m is exact, and gamma x^ is a product of two integers:
rounded once. In bf16 both have 8 bits, so its distance from a tie is at least 1 of up to 2^16,
which is 1.5e-5. In fp16 gamma has 11 bits.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws
from gonogo.exact.integers import Integers
from gonogo.exact.vernier import TIE_MARGIN

LARGEST = 255
"""The largest |c|: 8 bits, which every 16-bit format holds."""

NEAR = 5e-5
"""The largest distance from a tie, relative to the product, that a large value is chosen for."""

MIN_FEATURES = 16
"""Shorter rows have no room for a value near 255 beside the four that complete the sum."""


def exponent(features: int) -> int:
    """Return m: the root of the mean square is 2^m, at most 128, and 4^m N <= 2^24."""
    return max(1, min(7, ((2**24 // features).bit_length() - 1) // 2))


def near_ties(numerators: Integers, bits: int) -> NDArray[np.bool_]:
    """Return which |c| give a product near a tie, but not on it: (numerators, LARGEST + 1).

    numerators: integers, (numerators,). bits: those of the output format's significand. A product
    of b bits has its ties at odd multiples of 2^(b - bits - 1). Near means a distance of
    TIE_MARGIN to NEAR of the product.
    """
    c = np.arange(LARGEST + 1)
    product = numerators[:, None] * c[None, :]
    width = np.frexp(product.astype(np.float64))[1].astype(np.int64)
    half = 2 ** np.maximum(width - bits - 1, 0)
    distance = np.abs(product % (2 * half) - half) / np.maximum(product, 1)
    near = (distance >= TIE_MARGIN) & (distance <= NEAR)
    result: NDArray[np.bool_] = near & (c[None, :] >= 128)
    return result


def patterns(seed: int, rows: int, numerators: Integers, bits: int) -> Integers:
    """Return c, (rows, N), with sum c^2 = 4^m N in each row. Three in four are positive.

    numerators: the integers of gamma's columns, (N,); large values are chosen near a tie of the
    product. bits: those of the output format's significand.
    """
    features = numerators.size
    total = 4 ** exponent(features) * features
    order = draws.orders(seed, "squares", rows, features)
    different, line = np.unique(numerators, return_inverse=True)
    options = [np.flatnonzero(near) for near in near_ties(different, bits)]
    lots = draws.words(seed, "near ties", (rows, features)).astype(np.float64) / 2.0**64
    result = np.empty((rows, features), dtype=np.int64)
    for row in range(rows):
        result[row] = _row(order[row], options, line, lots[row], total)
    negative = draws.choices(seed, "square signs", (rows, features), 4) == 0
    return np.where(negative, -result, result)


def _row(
    order: NDArray[np.intp],
    options: list[NDArray[np.intp]],
    line: NDArray[np.intp],
    lots: NDArray[np.float64],
    total: int,
) -> Integers:
    """Return one row: ones, then values near ties while there is room, then four that complete."""
    values = np.ones(order.size, dtype=np.int64)
    rest = total - (order.size - 4)
    for column in order[4:]:
        near = options[line[column]]
        if near.size == 0:
            continue
        value = int(near[int(lots[column] * near.size)])
        if rest < value * value - 1:
            break
        values[column] = value
        rest -= value * value - 1
    for column in order[4:]:  # only where few columns have a value near a tie
        if rest <= LARGEST**2:
            break
        if values[column] == 1:
            values[column] = 128
            rest -= 128**2 - 1
    values[order[:4]] = four_squares(rest)
    return values


def four_squares(total: int) -> tuple[int, int, int, int]:
    """Return four integers from 0 to 255 whose squares sum to `total`, 0 to 4 * 255^2 - 255.

    Lagrange's theorem says that they exist; the search starts from equal ones, so that none is
    large. Raises ValueError where one would be above 255.
    """
    for first in range(min(isqrt(total), LARGEST), -1, -1):
        two = total - first * first
        for second in range(min(isqrt(two), LARGEST), -1, -1):
            rest = two - second * second
            if rest > 2 * LARGEST**2:
                break
            third = isqrt(rest)
            while third >= 0 and 2 * third * third >= rest:
                last = isqrt(rest - third * third)
                if last * last == rest - third * third and max(third, last) <= LARGEST:
                    return first, second, third, last
                third -= 1
    raise ValueError(f"{total} is not a sum of four squares of integers up to {LARGEST}")
