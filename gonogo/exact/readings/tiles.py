"""Sums over tiles of 32 columns, and the sets of tiles that a wrong sum may leave out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.exact.readings.reading import named
from gonogo.spec.regimes import TILE

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Missing:
    """A set of tiles or columns that a sum leaves out, and what each row's sum loses: (rows,).

    Without tiles, they are the last columns.
    """

    tiles: tuple[int, ...]
    words: str
    lost: Doubles


def count(features: int) -> int:
    """Return the number of tiles of a row; the last one may be narrower."""
    return -(-features // TILE)


def sums(values: Doubles) -> Doubles:
    """Return the sums over tiles of `values` (rows, N): (rows, tiles)."""
    result: Doubles = np.add.reduceat(values, np.arange(0, values.shape[1], TILE), axis=1)
    return result


def left_out(terms: Doubles) -> list[Missing]:
    """Return what a sum of terms (rows, N) is likely to leave out: tiles, or its last columns."""
    return [*missing(sums(terms)), *last_columns(terms)]


def last_columns(terms: Doubles) -> list[Missing]:
    """Return the last columns that a wrong sum of terms (rows, N) may leave out, from one on.

    A loop that counts in vectors or blocks loses less than two tiles. Whole tiles are in `missing`.
    """
    features = terms.shape[1]
    most = min(features, 2 * TILE) - 1
    lost = np.cumsum(terms[:, ::-1][:, :most], axis=1)
    result = []
    for size in range(1, most + 1):
        if (features - size) % TILE:
            words = "the last column" if size == 1 else f"the last {size} columns"
            result.append(Missing((), f"leaves out {words}", lost[:, size - 1]))
    return result


def missing(partial: Doubles) -> list[Missing]:
    """Return the sets that a wrong sum is likely to leave out, from tile sums (rows, tiles).

    One tile; the first or last few; all but one, and all but the first or last few. One tile comes
    first, so that it wins where two sets explain the same.
    """
    total = partial.shape[1]
    lines: list[tuple[int, ...]] = [(tile,) for tile in range(total)]
    few = range(2, min(4, total))
    lines += [tuple(range(total - size, total)) for size in few]
    lines += [tuple(range(size)) for size in few]
    if total > 2:
        everything = tuple(range(total))
        lines += [everything[:tile] + everything[tile + 1 :] for tile in range(total)]
        lines += [everything[:-size] for size in few if size < total - 1]
        lines += [everything[size:] for size in few if size < total - 1]
    whole = partial.sum(axis=1)
    result = []
    for line in lines:
        rest: list[int] = []
        if len(line) > 3:
            left_out = set(line)
            rest = [tile for tile in range(total) if tile not in left_out]
        lost = whole - partial[:, rest].sum(axis=1) if rest else partial[:, list(line)].sum(axis=1)
        words = f"sums only {named(rest, total)}" if rest else f"leaves out {named(line, total)}"
        result.append(Missing(line, words, lost))
    return result
