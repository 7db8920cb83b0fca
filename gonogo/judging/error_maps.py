"""The error map: where in a matrix the errors are, per 32x32 tile.

It is small enough to store and to draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import step

TILE = 32
MAX_TILE_ROWS = 128
MAX_TILE_COLUMNS = 512


@dataclass(frozen=True)
class ErrorMap:
    """Errors e = actual - reference of a (rows, features) matrix in cells.

    A cell is a block of `group` (rows, columns) of 32x32 tiles. `max_abs` is the largest |e| and
    `signed_mean` the mean e of a cell's finite errors (NaN where it has none); `nonfinite` counts
    the others. The last row and column of cells may be narrower than the rest. `max_ulp`: max_abs
    in units in the last place that `format` has at the cell's largest |reference|, so that it means
    the same in every cell; None without a format.
    """

    rows: int
    features: int
    group: tuple[int, int]
    max_abs: NDArray[np.float64]
    signed_mean: NDArray[np.float64]
    nonfinite: NDArray[np.int64]
    max_ulp: NDArray[np.float64] | None = None
    format: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: numbers of six digits, null for a cell without finite errors."""
        ulps = (
            {}
            if self.max_ulp is None
            else {"format": self.format, "max_ulp": _numbers(self.max_ulp)}
        )
        return {
            "rows": self.rows,
            "features": self.features,
            "tile": TILE,
            "group": list(self.group),
            "cells": list(self.max_abs.shape),
            "max_abs": _numbers(self.max_abs),
            "signed_mean": _numbers(self.signed_mean),
            "nonfinite": self.nonfinite.tolist(),
            **ulps,
        }


def _numbers(cells: NDArray[np.float64]) -> list[list[float | None]]:
    return [
        [float(f"{value:.6g}") if math.isfinite(value) else None for value in line]
        for line in cells.tolist()
    ]


def error_map(
    actual: NDArray[np.floating], reference: NDArray[np.floating], output_format: str | None = None
) -> ErrorMap:
    """Return the map of `actual` (rows, features) against `reference`.

    Vectors (features,) count as one row. output_format: for max_ulp. More than 128 x 512 tiles are
    grouped, by whole tiles, until they fit. Raises ValueError where the shapes differ.
    """
    actual, reference = np.atleast_2d(actual), np.atleast_2d(reference)
    if actual.shape != reference.shape or actual.ndim != 2:
        raise ValueError(
            f"actual {actual.shape} and reference {reference.shape} "
            "must be equal shapes of (rows, features)"
        )
    rows, features = actual.shape
    group = (_group(rows, MAX_TILE_ROWS), _group(features, MAX_TILE_COLUMNS))
    height, width = group[0] * TILE, group[1] * TILE
    columns = np.arange(0, features, width)
    shape = (-(-rows // height), len(columns))
    max_abs, signed_mean = np.full(shape, np.nan), np.full(shape, np.nan)
    nonfinite = np.zeros(shape, np.int64)
    scale = np.zeros(shape)
    for cell in range(shape[0] if features else 0):
        lines = slice(cell * height, (cell + 1) * height)
        with np.errstate(invalid="ignore", over="ignore"):
            error = actual[lines].astype(np.float64) - reference[lines]
        finite = np.isfinite(error)
        error[~finite] = 0.0
        count = np.add.reduceat(finite.sum(axis=0), columns)
        nonfinite[cell] = np.add.reduceat((~finite).sum(axis=0), columns)
        total = np.add.reduceat(error.sum(axis=0), columns)
        largest = np.maximum.reduceat(np.abs(error).max(axis=0), columns)
        counted = count > 0
        max_abs[cell, counted] = largest[counted]
        signed_mean[cell, counted] = total[counted] / count[counted]
        size = np.fmax.reduce(np.abs(reference[lines]), axis=0, initial=0.0)
        scale[cell] = np.fmax.reduceat(size, columns)
    max_ulp = None
    if output_format is not None and scale.size:
        # an axis of one: in formats whose values share exponents each cell is a block of its own
        with np.errstate(invalid="ignore", over="ignore"):
            max_ulp = max_abs / step(scale[..., None], output_format)[..., 0]
    return ErrorMap(rows, features, group, max_abs, signed_mean, nonfinite, max_ulp, output_format)


def _group(extent: int, limit: int) -> int:
    """Return how many tiles one cell must hold so that there are at most `limit` cells."""
    tiles = -(-extent // TILE)
    return max(1, -(-tiles // limit))
