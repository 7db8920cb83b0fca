"""One seed of a kernel that normalizes rows: its sums per row and tile, and y fitted row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import outliers
from gonogo.kernels.layernorm.forensics.forward_sums import Forward, Rows
from gonogo.kernels.layernorm.forensics.precision import Precision
from gonogo.kernels.layernorm.forensics.sums import (
    TILE,
    Array,
    RowFit,
    solve_rows,
    tile_starts,
    tile_sums,
)
from gonogo.numerics.blocks import over_rows

ELEMENTS = 2**18
"""Elements of a block of rows. Its few float64 matrices fit the processor's cache."""


@dataclass
class Model:
    """The data of one seed.

    x and y are rows; y is None where it wasn't produced. gamma and beta have one value per channel;
    beta is None where the kernel has none.

    Row i belongs to group i % groups. Its elements are the group's channels, `width` of each.
    centred: the kernel subtracts a mean.
    """

    x: NDArray[Any]
    y: NDArray[Any] | None
    gamma: Array
    beta: Array | None
    epsilon: float
    precision: Precision
    groups: int
    width: int
    centred: bool
    noun: str
    """The name of the sum of squares: variance, or mean square."""
    channel: str
    """The unit that has one value of gamma: column, or channel."""
    outliers: outliers.Places

    def __post_init__(self) -> None:
        seed = Forward(self.x, self.gamma, self.gamma, self.epsilon, None, self.precision)
        self.seed = seed
        self.rows = _sums(self)

    def spread(self, vector: Array, start: int, stop: int) -> Array:
        """Return a vector as the matrix of rows start..stop."""
        one = np.repeat(vector.reshape(self.groups, -1), self.width, axis=1)
        return one[np.arange(start, stop) % self.groups] if self.groups > 1 else one

    def blocks(self) -> tuple[int, int]:
        """Return (rows, rows of a block)."""
        return len(self.x), max(1, ELEMENTS // self.x.shape[1])


def _sums(model: Model) -> Rows:
    """Return the sums of x per row and tile.

    They are those of gonogo.kernels.layernorm.forensics.forward_sums. The mean is 0 where the
    kernel has none.
    """
    x = model.x
    features = x.shape[1]
    starts = tile_starts(features)
    out = Rows.empty(len(x), len(starts))
    padding = np.arange(min(-features % TILE, features))

    def block(start: int, stop: int) -> None:
        here = slice(start, stop)
        with np.errstate(all="ignore"):
            z = x[here].astype(np.float64)
            if model.centred:
                out.mean[here] = z.mean(axis=1)
                z -= out.mean[here, None]
            out.first[here] = tile_sums(z, starts) / features
            square = z * z
            out.second[here] = tile_sums(square, starts) / features
            if len(padding):
                out.padding[here, 0] = z[:, padding].sum(axis=1) / features
                out.padding[here, 1] = square[:, padding].sum(axis=1) / features
            out.rstd[here] = 1.0 / np.sqrt(out.second[here].sum(axis=1) + model.epsilon)

    rows, step = model.blocks()
    over_rows(block, rows, step)
    return out


@dataclass(frozen=True)
class Fitted:
    """y fitted row by row with one gamma and beta.

    `energy` is what the fit leaves over, `unit` y's rounding; both are sums of squares.
    """

    fit: RowFit
    energy: float
    unit: float
    terms: float
    """The part of the error that the fitted factor and constant remove."""

    @property
    def noise(self) -> float:
        """The rest of the fit, in units of y's rounding."""
        return float(np.sqrt(self.energy / self.unit)) if self.unit > 0 else np.nan


def fitted(model: Model, gamma: Array, beta: Array | None) -> Fitted:
    """Fit y - beta on {gamma x^, gamma} in each row."""
    assert model.y is not None
    y_of, rows = model.y, model.rows

    def block(start: int, stop: int) -> Array:
        here = slice(start, stop)
        with np.errstate(all="ignore"):
            v = np.broadcast_to(model.spread(gamma, start, stop), (stop - start, model.x.shape[1]))
            u = v * (
                (model.x[here].astype(np.float64) - rows.mean[here, None]) * rows.rstd[here, None]
            )
            y = y_of[here].astype(np.float64)
            t = y - (0.0 if beta is None else model.spread(beta, start, stop))
            keep = outliers.counted(y, model.outliers, start)
            count = np.full(len(y), float(y.shape[1]))
            if keep is not None:
                count = keep.sum(axis=1).astype(np.float64)
                u, v, t, y = (np.where(keep, values, 0.0) for values in (u, v, t, y))
            pairs = ((v, v), (v, u), (u, u), (t, v), (t, u), (t, t), (y, y))
            return np.array([*(np.vecdot(a, b) for a, b in pairs), count])

    count, step = model.blocks()
    vv, vu, uu, tv, tu, tt, yy, elements = np.concatenate(over_rows(block, count, step), axis=1)
    with np.errstate(all="ignore"):
        floor = model.precision.rounding * np.sqrt(yy / elements)
        fit = solve_rows(vv, vu, uu, tv, tu, tt, floor, 2, elements)
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        left = np.maximum(tt - slope * tu - fit.constant * tv, 0.0)
        moved = (
            (slope - 1.0) ** 2 * uu + fit.constant**2 * vv + 2 * (slope - 1.0) * fit.constant * vu
        )
        usable = np.isfinite(left) & (yy > 0)
        unit = float((model.precision.rounding**2 * yy)[usable].sum())
        return Fitted(
            fit, float(left[usable].sum()), unit, float(np.nansum(np.maximum(moved, 0.0)[usable]))
        )
