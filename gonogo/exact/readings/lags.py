"""Other rows, from which a stale statistic or a copied row may come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]

LAGS = (1, 2, 3, 4, 8, 16, 32, -1)
"""Rows back: neighbors, blocks, a tile of rows; and the row after, for an index that is off."""


def named(lag: int) -> str:
    """Return the row so many rows back in words."""
    return {1: "the previous row", -1: "the next row"}.get(lag, f"the row {lag} before")


def sources(rows: Indices, lag: int, count: int) -> tuple[Indices, NDArray[np.bool_]]:
    """Return the row that each of `rows` reads instead, and whether it exists among `count` rows.

    Where it doesn't, the index is that of the first or last row.
    """
    other = rows - lag
    return np.clip(other, 0, count - 1), (other >= 0) & (other < count)
