"""One pass over the tensors: sums per row, per tile and per column.

Everything else is solved from these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import over_rows

Array = NDArray[np.float64]
Single = NDArray[np.floating]

TILE = 32
PRIOR = 10.0
"""The weight of the middle row's residual against a row's own, in elements."""
TIGHT = 2.0
"""The standard deviation of an element over its output's rounding, where nothing shows it."""
BLOCK_ELEMENTS = 2**17
"""Elements of a block (1 MiB in float64): the dozen operations on it then stay in cache."""


def tile_starts(extent: int) -> NDArray[np.int64]:
    """Return the first index of every tile along a dimension."""
    return np.arange(0, extent, TILE)


def tile_sums(values: Array, starts: NDArray[np.int64]) -> Array:
    """Sum (rows, N) over the tiles of the last dimension: (rows, tiles)."""
    rows, features = values.shape
    whole = features // TILE
    out = np.empty((rows, len(starts)))
    if whole:
        # a matrix product with ones is several times faster than reduceat on short runs
        np.matmul(
            values[:, : whole * TILE].reshape(rows, whole, TILE), np.ones(TILE), out=out[:, :whole]
        )
    if whole < len(starts):
        out[:, whole] = values[:, whole * TILE :].sum(axis=1)
    return out


def row_blocks(rows: int, features: int, visit: Callable[[int, int, int], None]) -> None:
    """Call `visit(row tile or -1, start, stop)` for blocks of rows on all cores.

    No block crosses a border of 32-row tiles. The blocks of one row tile run in order in one
    thread, so that `visit` may add to data of the row tile.
    """
    step = max(1, min(TILE, BLOCK_ELEMENTS // max(1, features)))
    tiles_per_task = max(1, BLOCK_ELEMENTS // max(1, features * TILE))

    def task(first: int, last: int) -> None:
        if tiles_per_task > 1:
            visit(first // TILE, first, last)
            return
        for start in range(first, last, step):
            visit(first // TILE, start, min(start + step, last))

    over_rows(task, rows, TILE * tiles_per_task)


def row_dot(left: Array, right: Array) -> Array:
    """Return the inner products of the rows of two (rows, N) arrays."""
    return np.asarray(np.vecdot(left, right))


def column_dot(left: Array, right: Array) -> Array:
    """Return the inner products of the columns of two (rows, N) arrays."""
    return np.asarray(np.einsum("ij,ij->j", left, right))


def padding_columns(features: int) -> NDArray[np.int64]:
    """Return the columns that an unmasked last tile would hold again in its padding.

    They are a row's first ones; empty without padding.
    """
    return np.arange(min(-features % TILE, features))


@dataclass(frozen=True)
class RowFit:
    """Least squares per row on two known terms: all (rows,). NaN where a row can't tell."""

    constant: Array
    constant_error: Array
    slope: Array
    slope_error: Array
    sigma: Array
    """The standard deviation of one element's residual."""


def solve_rows(
    vv: Array,
    vu: Array,
    uu: Array,
    tv: Array,
    tu: Array,
    tt: Array,
    floor: Array,
    spent: int,
    elements: Array | None = None,
) -> RowFit:
    """Fit t = a v + b u in every row from its inner products, all (rows,).

    `constant` is a, `slope` is b. With v = 1 the inputs are count, sum u, sum u^2, sum t, sum t u,
    sum t^2. floor: the smallest standard deviation of an element (its output's rounding). spent:
    the number of parameters fitted so far, these two included. elements: how many there are (None:
    vv). Where u is proportional to v within a row, b is unknown (NaN) and counts as 0.
    """
    count = vv if elements is None else elements
    with np.errstate(all="ignore"):
        apart = uu - vu * vu / vv
        flat = ~(apart > 1e-12 * np.maximum(uu, 1e-300))
        safe = np.where(flat, 1.0, apart)
        slope = np.where(flat, np.nan, (tu - vu * tv / vv) / safe)
        used = np.where(flat, 0.0, slope)
        constant = (tv - used * vu) / vv
        left = np.maximum(tt - constant * tv - used * tu, 0.0)
        freedom = count - spent
        sigma = _shrunk(np.maximum(np.sqrt(left / np.maximum(freedom, 1.0)), floor), floor, freedom)
        constant_error = sigma * np.where(flat, 1.0 / np.sqrt(vv), np.sqrt(uu / (safe * vv)))
        slope_error = np.where(flat, np.nan, sigma / np.sqrt(safe))
        silent = ~((count > 0) & (vv > 0))
    for values in (constant, constant_error, slope, slope_error, sigma):
        values[silent] = np.nan
    return RowFit(constant, constant_error, slope, slope_error, sigma)


def _shrunk(sigma: Array, floor: Array, freedom: Array) -> Array:
    """Draw standard deviations toward the middle row's where a row has few spare elements.

    All are in units of the row's floor. Without spare elements anywhere it is TIGHT times the
    floor: the output's rounding is not the only one.
    """
    usable = (floor > 0) & np.isfinite(sigma) & np.isfinite(floor)
    square = np.where(usable, (sigma / np.where(usable, floor, 1.0)) ** 2, 1.0)
    showing = usable & (freedom > 0)
    middle = float(np.median(square[showing])) if showing.any() else TIGHT**2
    spare = np.maximum(freedom, 0.0)
    return np.where(
        usable, floor * np.sqrt((spare * square + PRIOR * middle) / (spare + PRIOR)), sigma
    )


def row_moments(x: Single, epsilon: float) -> tuple[Array, Array]:
    """Return mean and rstd of each row of x (rows, N) in float64, block by block.

    The variance is the biased one.
    """
    rows, features = x.shape
    mean, rstd = np.empty(rows), np.empty(rows)

    def visit(_: int, start: int, stop: int) -> None:
        with np.errstate(all="ignore"):
            wide = x[start:stop].astype(np.float64)
            mean[start:stop] = wide.mean(axis=1)
            wide -= mean[start:stop, None]
            rstd[start:stop] = 1.0 / np.sqrt(row_dot(wide, wide) / features + epsilon)

    row_blocks(rows, features, visit)
    return mean, rstd
