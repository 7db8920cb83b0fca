"""Blocks of rows, or of columns, that are replayed together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gonogo.numerics.expectation import Array

ELEMENTS = 2**19
"""The largest number of elements of a block: some 4 MiB for each float64 array of a replay.

The deviation of a sum is at least its average over a block, so the blocks are part of the
definition: they depend on the shape only.
"""


def even(count: int, width: int) -> list[tuple[int, int]]:
    """Return (start, stop) of blocks of `count` rows of `width` elements, of nearly equal size."""
    blocks = max(1, min(count, -(-count * width // ELEMENTS)))
    return list(pairwise(count * k // blocks for k in range(blocks + 1)))


def averages(values: Array, spans: list[tuple[int, int]]) -> Array:
    """Return, for each row, the average of `values` (rows,) over its block."""
    return np.concatenate([np.full(b - a, values[a:b].mean()) for a, b in spans])
