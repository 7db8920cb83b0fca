"""Isolated wrong values: found by standing far out of their row, left out of its sums, and looked
at for powers of two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.sums import TILE, Array
from gonogo.numerics.diagnosis import Term

Places = Mapping[int, NDArray[np.int64]]
"""Columns per row."""

OUTLIER = 12.0
"""Left-over of an element, in robust standard deviations of its row, from which it is an isolated
outlier."""
RELATIVE = 0.1
"""Left-over of an element, relative to it, below which it is rounding however small the rest of its
row is."""
FEW = 0.02
"""Share of a row's elements up to which outliers count as isolated."""
FEW_IN_TILE = 4
"""Outliers of a row within one tile up to which they count as isolated: a wrong factor takes most
of a tile."""
SUSPECT = 6.0
"""A row whose largest left-over is beyond this many of its standard deviations is searched for
outliers."""
KEPT_ROWS = 64
"""No more rows than this are listed in a term."""


def isolated(
    error: Array, size_of: Array, sigma: Array, start: int
) -> dict[int, NDArray[np.int64]]:
    """The outliers in the left-overs `error` (rows, N) of values of size `size_of`, rows start,
    start + 1, ...; `sigma` (rows,).

    None in a row where they are many or together in a tile.
    """
    found = {}
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
            found[start + row] = columns
    return found


def counted(values: Array, outliers: Places, start: int) -> NDArray[np.bool_] | None:
    """The elements of rows start, start + 1, ... that count: finite and no outliers; None where all
    do.
    """
    stop = start + len(values)
    if np.isfinite(values.sum()) and not (
        outliers and any(row in outliers for row in range(start, stop))
    ):
        return None
    keep = np.isfinite(values)
    for row in range(start, stop):
        if row in outliers:
            keep[row - start, outliers[row]] = False
    return None if keep.all() else keep


def term(output: str, count: int, powers: int, rows: list[int]) -> Term:
    """The finding of `count` outliers in `rows` (from 0), of which `powers` are off by a power of
    two.
    """
    how = "off by a power of two" if powers > 0.6 * count else "off"
    words = f"{count} isolated value{'s' if count > 1 else ''} of {output} {'are' if count > 1 else 'is'} {how}"
    return Term(
        output,
        "outliers",
        0,
        (),
        (),
        words,
        wrong=True,
        rows=tuple(row + 1 for row in rows[:KEPT_ROWS]),
    )


def powers_of_two(actual: Array, expected: Array) -> int:
    """How many values are a power of two times (not once) what is expected."""
    with np.errstate(all="ignore"):
        exponent = np.log2(np.abs(actual / expected))
        return int(
            np.sum((np.abs(exponent - np.round(exponent)) < 0.1) & (np.round(exponent) != 0))
        )
