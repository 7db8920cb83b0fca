"""Isolated wrong values: found far out of their row, and left out of its sums.

They are checked for powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.sums import TILE, Array
from gonogo.numerics.diagnosis import Term

Places = Mapping[int, NDArray[np.int64]]
"""Columns per row."""

OUTLIER = 12.0
"""Residual of an element from which it is an isolated outlier.

The unit is robust standard deviations of its row.
"""
RELATIVE = 0.1
"""Residual of an element, relative to it, below which it is rounding.

This holds however small the rest of its row is.
"""
FEW = 0.02
"""Share of a row's elements up to which outliers count as isolated."""
FEW_IN_TILE = 4
"""Outliers of a row within one tile up to which they count as isolated.

A wrong factor affects most of a tile.
"""
SUSPECT = 6.0
"""A row is searched when its largest residual is beyond this many standard deviations."""
MAX_ROWS = 64
"""The most rows that a term lists."""


def isolated(
    error: Array, size_of: Array, sigma: Array, start: int
) -> dict[int, NDArray[np.int64]]:
    """Return the outliers in the residuals `error` (rows, N) of rows start, start + 1, ...

    size_of: the size of the values. sigma: (rows,). A row has none where they are many, or together
    in a tile.
    """
    places = {}
    largest = np.maximum(error.max(axis=1), -error.min(axis=1))
    for row in np.flatnonzero(largest > SUSPECT * sigma).tolist():
        size = np.abs(error[row])
        columns = np.flatnonzero(
            (size > OUTLIER * 1.4826 * np.median(size)) & (size > RELATIVE * np.abs(size_of[row]))
        )
        if (
            0 < len(columns) <= max(1.0, FEW * len(size))
            and np.bincount(columns // TILE).max() <= FEW_IN_TILE
        ):
            places[start + row] = columns
    return places


def counted(values: Array, outliers: Places, start: int) -> NDArray[np.bool_] | None:
    """Return the elements of rows start, start + 1, ... that count; None where all do.

    They are finite and no outliers.
    """
    stop = start + len(values)
    if np.isfinite(values.sum()) and outliers.keys().isdisjoint(range(start, stop)):
        return None
    keep = np.isfinite(values)
    for row in range(start, stop):
        if row in outliers:
            keep[row - start, outliers[row]] = False
    return None if keep.all() else keep


def term(
    output: str,
    values: NDArray[np.floating] | None,
    places: Places,
    expected: Callable[[int, NDArray[np.int64]], Array],
) -> Term:
    """Return the finding of outliers of `values` (rows, N), with their rows counted from 1.

    expected: from a row and some of its columns to what they should be.
    """
    count = sum(map(len, places.values()))
    powers = sum(
        powers_of_two(np.asarray(values[row, columns], np.float64), expected(row, columns))
        for row, columns in places.items()
        if values is not None
    )
    how = "off by a power of two" if powers > 0.6 * count else "off"
    noun = "values" if count > 1 else "value"
    words = f"{count} isolated {noun} of {output} {'are' if count > 1 else 'is'} {how}"
    rows = tuple(row + 1 for row in sorted(places)[:MAX_ROWS])
    return Term(output, "outliers", 0, (), (), words, wrong=True, rows=rows)


def powers_of_two(actual: Array, expected: Array) -> int:
    """Return how many values are a power of two times (not once) what is expected."""
    with np.errstate(all="ignore"):
        exponent = np.log2(np.abs(actual / expected))
        return int(
            np.sum((np.abs(exponent - np.round(exponent)) < 0.1) & (np.round(exponent) != 0))
        )
