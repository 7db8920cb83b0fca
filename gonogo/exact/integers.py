"""Rows of small integers c with sum c = 0 and sum c^2 = 4 N: the mean and the rstd are exact.

With x = S (c + M), the mean is S M, the variance 4 S^2, and x^ = c / 2. Every sum of a right
kernel is a sum of integers below 2^24, so it is exact in fp32 in every order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws
from gonogo.spec.regimes import TILE

Integers = NDArray[np.int64]

MAX_PATTERNS = 64
"""Different rows of c. A taller matrix repeats them; its scales and means have other periods."""

GROUP = 8
"""Columns that are balanced together."""

_GROUPS = np.array(
    [
        (2, -2, 2, -2, 2, -2, 2, -2),
        (4, -4, 0, 0, 0, 0, 0, 0),
        (4, -4, 0, 0, 0, 0, 0, 0),
        (3, -3, 2, -2, 2, -1, -1, 0),
        (-3, 3, -2, 2, -2, 1, 1, 0),
        (3, -3, 1, -1, 3, -1, -1, -1),
        (-3, 3, -1, 1, -3, 1, 1, 1),
        (2, -2, 2, -2, 2, -2, 2, -2),
    ],
    dtype=np.int64,
)
"""Eight integers each, with sum 0 and sum of squares 4 * 8. Equal lines are likelier."""

_FIVE = (3, -3, 1, -1, 0)
"""The shortest odd row: sum 0, sum of squares 4 * 5."""


def exists(features: int) -> bool:
    """Return whether integers with sum 0 and sum of squares 4 N exist: not for N = 1 and N = 3."""
    return features not in (1, 3)


def tail(count: int) -> Integers:
    """Return `count` integers with sum 0 and sum of squares 4 * count.

    count: even, or odd and at least 5.
    """
    first = _FIVE if count % 2 else ()
    pairs = (count - len(first)) // 2
    return np.array([*first, *(2, -2) * pairs], dtype=np.int64)


def lanes_balanced(features: int) -> bool:
    """Return whether the 32 lanes of a tile are balanced one by one.

    Then the sums of a lane over the tiles of a row, which Wormhole stores in bf16, are exact, too:
    tiles * M and 4 * tiles. Rows of fewer than 8 tiles don't need it: sums of 8 bits are exact.
    """
    return features % (TILE * GROUP) == 0


def patterns(seed: int, rows: int, features: int) -> Integers:
    """Return c, (min(rows, MAX_PATTERNS), N). N = 1 gives 0, N = 3 gives 2, 0, -2."""
    count = min(rows, MAX_PATTERNS)
    if not exists(features):
        line = np.array([2, 0, -2] if features == 3 else [0], dtype=np.int64)
        return np.tile(line, (count, 1))
    rest = features % GROUP
    if rest in (1, 3):
        rest += GROUP
    groups = (features - rest) // GROUP
    chosen = _GROUPS[draws.choices(seed, "groups", (count, groups), len(_GROUPS))]
    ends = np.tile(tail(rest), (count, 1))
    values = np.concatenate([chosen.reshape(count, groups * GROUP), ends], axis=1)
    result = np.empty_like(values)
    np.put_along_axis(result, _columns(seed, count, features), values, axis=1)
    for row in range(count):
        _spotlight(result[row], spot(row, features))
    return result


def uncentered(seed: int, rows: int, features: int) -> Integers:
    """Return c, (min(rows, MAX_PATTERNS), N), with sum c^2 = 4 N: three in four are positive.

    Without a mean, N = 1 and N = 3 are exact, too: c is 2 or -2.
    """
    c = patterns(seed, rows, features)
    keep_sign = draws.choices(seed, "signs", c.shape, 4) == 0
    if not exists(features):
        return np.where(keep_sign, -2, 2)
    return np.where(keep_sign, c, np.abs(c))


def spot(row: int, features: int) -> int:
    """Return the tile, from 0, in which a row's largest values lie.

    The last tile first, then the first one, then the others, spread by the golden ratio.
    """
    tiles = -(-features // TILE)
    return (tiles - 1, 0)[row] if row < 2 else int(row * 0.6180339887498949 % 1.0 * tiles)


def _columns(seed: int, count: int, features: int) -> NDArray[np.intp]:
    """Return the column of each value: a permutation of all columns, or of each lane's tiles."""
    if not lanes_balanced(features):
        return draws.orders(seed, "columns", count, features)
    tiles = features // TILE
    order = draws.orders(seed, "columns", count * TILE, tiles).reshape(count, TILE, tiles)
    lanes = np.arange(TILE)[None, :, None]
    return (order * TILE + lanes).reshape(count, features)


def _spotlight(row: Integers, tile: int) -> None:
    """Move values of 4 into a tile, so that a sum without that tile is off by much."""
    start, stop = tile * TILE, min((tile + 1) * TILE, row.size)
    step = TILE if lanes_balanced(row.size) else 1
    outside = np.flatnonzero(row == 4)
    outside = outside[(outside < start) | (outside >= stop)]
    heavy = [iter(outside[outside % step == lane].tolist()) for lane in range(step)]
    for column in range(start, stop):
        if row[column] != 4:
            other = next(heavy[column % step], None)
            if other is not None:
                row[column], row[other] = row[other], row[column]
