"""Cells: how far a replay lies outside the values that an output stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import Mode, half_ulp, round_to, ulp
from gonogo.numerics.replay.quantity import Quantity

FLOOR = 2.0**-46
"""The accuracy of the replay's own float64, relative to a value."""
MIN_EIGENVALUE = 1e-11
"""The least eigenvalue of M, of its largest one: float64's sums and eigenvectors leave 1e-14."""
MIN_SPREAD = 1e-9
"""The least variance of a shared error's estimate, of 1, at which it says something: a source that
shows nowhere has no quotient."""


@dataclass(frozen=True)
class Cells:
    """An output beside its replay, in standard deviations of the noise that isn't stored.

    Attributes:
        distance: how far each element (rows, N) lies outside its cell; 0 inside.
        rows: the largest error that each row's elements share (rows,).
    """

    distance: Array
    rows: Array

    @property
    def largest(self) -> float:
        """Return the largest distance of an element."""
        return float(self.distance.max(initial=0.0))

    @property
    def largest_row(self) -> float:
        """Return the largest error that a row shares."""
        return float(self.rows.max(initial=0.0))

    def measurement(self, limit: float) -> Measurement:
        """Return the largest numbers of each row, and how many elements are beyond `limit`."""
        column = np.argmax(self.distance, axis=1)
        return Measurement(
            np.take_along_axis(self.distance, column[:, None], axis=1)[:, 0],
            column,
            (self.distance > limit).sum(axis=1),
            self.rows,
            self.distance.shape[1],
        )


@dataclass(frozen=True)
class Measurement:
    """How near each row of an output is to its replay.

    Attributes:
        distances: (rows,) the largest distance of each row.
        columns: (rows,) its column.
        beyond: (rows,) the number of elements beyond the limit.
        rows: (rows,) the largest error that each row's elements share.
        width: N.
    """

    distances: Array
    columns: NDArray[np.intp]
    beyond: NDArray[np.intp]
    rows: Array
    width: int

    @staticmethod
    def joined(parts: Sequence[Measurement]) -> Measurement:
        """Return the measurement of several blocks of rows."""
        return Measurement(
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.beyond for part in parts]),
            np.concatenate([part.rows for part in parts]),
            parts[0].width,
        )

    @property
    def largest(self) -> float:
        """Return the largest distance of an element."""
        return float(self.distances.max(initial=0.0))

    @property
    def largest_row(self) -> float:
        """Return the largest error that a row shares."""
        return float(self.rows.max(initial=0.0))

    @property
    def worst(self) -> tuple[int, int]:
        """Return (row, column) of the largest distance."""
        row = int(np.argmax(self.distances))
        return row, int(self.columns[row])

    @property
    def mismatch(self) -> float:
        """Return the share of elements beyond the limit."""
        return float(self.beyond.sum() / (len(self.distances) * self.width))

    @property
    def per_row(self) -> Array:
        """Return the larger of both numbers of each row."""
        return np.maximum(self.distances, self.rows)


def on_grid(output: NDArray[np.float32], form: str) -> bool:
    """Return whether a format holds every value of an output (rows, N)."""
    if form == "fp32":
        return True

    def block(start: int, stop: int) -> bool:
        part = output[start:stop]
        return np.array_equal(round_to(part, form), part)

    return all(over_rows(block, len(output)))


def half_cell(output: Array, toward: Array, form: str) -> Array:
    """Return the half width of each output's cell on the side of `toward`.

    Below a power of two the format's steps are half as wide as above it.
    """
    half = half_ulp(output, form)
    size = np.abs(output)
    below = half_ulp(np.nextafter(size, 0.0), form)
    return np.where(np.abs(toward) < size, np.minimum(half, below), half)


def _outside_truncated(output: Array, values: Array, form: str) -> Array:
    """Return how far values lie outside what an output stands for whose format truncates.

    It stands for its own value and larger ones, up to a step; 0 stands for a step of either sign.
    """
    size = np.abs(output)
    along = np.where(output == 0.0, np.abs(values), np.sign(output) * values)
    return np.asarray(np.maximum(size - along, along - size - ulp(output, form)))


def cells(output: NDArray[np.floating], replay: Quantity, form: str, mode: Mode = "even") -> Cells:
    """Return an output (rows, N) in its format beside its replay.

    mode: how the kernel rounds its output.
    """
    y = np.asarray(output, np.float64)
    error = y - replay.values
    if mode == "zero":
        outside = _outside_truncated(y, replay.values, form)
    else:
        outside = np.abs(error) - half_cell(y, replay.values, form)
    beyond = np.maximum(outside - replay.slack, 0.0)
    deviation = np.sqrt(
        replay.variance + (FLOOR * np.maximum(np.abs(replay.values), np.abs(y))) ** 2
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(beyond == 0, 0.0, beyond / deviation)
    rows = _row_errors(error, replay, half_ulp(y, form)) if form == "fp32" else None
    return Cells(distance, np.zeros(len(y)) if rows is None else rows)


def _row_errors(error: Array, replay: Quantity, half: Array) -> Array:
    """Return the largest shared error of each row, in its own standard deviations.

    The sources' errors a have unit variance, and error = P a + noise. Their best estimate is
    a = (I + M)^-1 P'W e with M = P'W P, whose covariance under the model is I - (I + M)^-1. Only an
    output whose rounding is no larger than the noise says something: in a narrow format the
    rounding is a function of the values, not a random error.
    """
    if not replay.shared:
        return np.zeros(len(error))
    weights = 1.0 / (replay.noise + half**2 / 3 + replay.slack**2)
    patterns = np.stack([np.broadcast_to(p, error.shape) for p in replay.shared.values()], axis=1)
    weighted = patterns * weights[:, None, :]
    matrix = weighted @ patterns.transpose(0, 2, 1)
    return row_errors(matrix, np.einsum("rjn,rn->rj", weighted, error))


def row_errors(matrix: Array, projections: Array) -> Array:
    """Return the largest shared error of each row from M (rows, K, K) and P'We (rows, K).

    With M = V L V', the estimate is V (I + L)^-1 V'P'We, and its covariance V L (I + L)^-1 V'. What
    float64 can't tell from zero says nothing: an L below MIN_EIGENVALUE, a variance below
    MIN_SPREAD. Where M isn't finite, the error is NaN.
    """
    defined = np.asarray(np.isfinite(matrix).all(axis=(1, 2)))
    sizes, vectors = np.linalg.eigh(np.where(defined[:, None, None], matrix, 0.0))
    sizes = np.where(sizes > MIN_EIGENVALUE * sizes[:, -1:], sizes, 0.0)
    along = np.einsum("rji,rj->ri", vectors, projections) / (1.0 + sizes)
    along = np.where(sizes > 0.0, along, 0.0)
    estimate = np.einsum("rji,ri->rj", vectors, along)
    spread = np.einsum("rji,ri->rj", vectors**2, sizes / (1.0 + sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(spread > MIN_SPREAD, np.abs(estimate) / np.sqrt(spread), 0.0)
    return np.where(defined, z.max(axis=1), np.nan)
