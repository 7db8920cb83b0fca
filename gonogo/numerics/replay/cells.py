"""Cells: how far a replay lies outside the values that an output stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import Mode, format_named, half_ulp, round_to, ulp
from gonogo.numerics.replay import distances
from gonogo.numerics.replay.quantity import Quantity

FLOOR = 2.0**-46
"""The accuracy of the replay's own float64, relative to a value."""
LOW_HALF = np.uint32(0xFFFF)
"""The bits of an fp32 value that bf16 lacks."""
NEAREST: tuple[Mode, ...] = ("even", "away")
"""The ways to round to the nearest value, whose cells are the same."""
MIN_EIGENVALUE = 1e-11
"""The least eigenvalue of M, of its largest one: float64's sums and eigenvectors leave 1e-14."""
MIN_SPREAD = 1e-9
"""The least variance of a shared error's estimate, of 1, at which it says something: a source that
shows nowhere has no quotient."""
POOLED = "rstd"
"""The source whose errors are compared over the rows: a wrong epsilon or factor is in all of them,
the rounding of rstd is not."""
MEAN = "mean"
"""Another such source: a shift of the mean may be in all rows, its rounding is not."""


@dataclass(frozen=True)
class Cells:
    """An output beside its replay, in standard deviations of the noise that isn't stored.

    Attributes:
        distance: how far each element (rows, N) lies outside its cell; 0 inside.
        compute_shared: computes `shared`, which isn't needed where an element is far outside.
    """

    distance: Array
    compute_shared: Callable[[], SharedErrors]

    @cached_property
    def shared(self) -> SharedErrors:
        """Return the errors that each row's elements share."""
        return self.compute_shared()

    @property
    def largest(self) -> float:
        """Return the largest distance of an element."""
        return float(self.distance.max(initial=0.0))

    @property
    def largest_row(self) -> float:
        """Return the largest error that a row shares."""
        return float(self.shared.largest.max(initial=0.0))

    def is_within(self, limit: float) -> bool:
        """Return whether no element and no row is beyond a limit; elements first."""
        return self.largest <= limit and not self.largest_row > limit

    def measurement(self, limit: float) -> Measurement:
        """Return the largest numbers of each row, and how many elements are beyond `limit`."""
        column = np.argmax(self.distance, axis=1)
        return Measurement(
            np.take_along_axis(self.distance, column[:, None], axis=1)[:, 0],
            column,
            (self.distance > limit).sum(axis=1),
            self.shared,
            self.distance.shape[1],
        )


@dataclass(frozen=True)
class SharedErrors:
    """The errors that the elements of each row share.

    Attributes:
        largest: (rows,) the largest of all sources, in its own standard deviations.
        estimates: (rows,) the estimated error of the source POOLED, of unit variance; 0 where there
            is none.
        spreads: (rows,) the variance of that estimate, of 1: an error of all of POOLED's standard
            deviations is the estimate over its spread.
        of_mean: (2, rows) the estimates and the spreads of the source MEAN.
    """

    largest: Array
    estimates: Array
    spreads: Array
    of_mean: Array

    @staticmethod
    def none(rows: int) -> SharedErrors:
        """Return what an output says that shows no shared error."""
        return SharedErrors(np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros((2, rows)))

    @staticmethod
    def joined(parts: Sequence[SharedErrors]) -> SharedErrors:
        """Return the errors of several blocks of rows."""
        return SharedErrors(
            np.concatenate([part.largest for part in parts]),
            np.concatenate([part.estimates for part in parts]),
            np.concatenate([part.spreads for part in parts]),
            np.concatenate([part.of_mean for part in parts], axis=1),
        )


@dataclass(frozen=True)
class Measurement:
    """How near each row of an output is to its replay.

    Attributes:
        distances: (rows,) the largest distance of each row.
        columns: (rows,) its column.
        beyond: (rows,) the number of elements beyond the limit.
        shared: the errors that each row's elements share.
        width: N.
    """

    distances: Array
    columns: NDArray[np.intp]
    beyond: NDArray[np.intp]
    shared: SharedErrors
    width: int

    @staticmethod
    def joined(parts: Sequence[Measurement]) -> Measurement:
        """Return the measurement of several blocks of rows."""
        return Measurement(
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.beyond for part in parts]),
            SharedErrors.joined([part.shared for part in parts]),
            parts[0].width,
        )

    @property
    def largest(self) -> float:
        """Return the largest distance of an element."""
        return float(self.distances.max(initial=0.0))

    @property
    def largest_row(self) -> float:
        """Return the largest error that a row shares."""
        return float(self.shared.largest.max(initial=0.0))

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
        return np.maximum(self.distances, self.shared.largest)


def on_grid(output: NDArray[np.float32], form: str) -> bool:
    """Return whether a format holds every value of an output (rows, N)."""
    if form == "fp32":
        return True

    def block(start: int, stop: int) -> bool:
        part = output[start:stop]
        if form == "bf16":
            return not (part.view(np.uint32) & LOW_HALF).any()
        return np.array_equal(round_to(part, form), part)

    return all(over_rows(block, len(output)))


def half_cell(output: Array, toward: Array, form: str) -> Array:
    """Return the half width of each output's cell on the side of `toward`.

    Below a power of two the format's steps are half as wide as above it.
    """
    if jit.is_loaded() and output.shape == toward.shape:
        half = np.empty(output.shape)
        y, value = (jit.plain(a).reshape(-1) for a in (output, toward))
        distances.add_half_cells(y, value, *_steps(form), half.reshape(-1))
        return half
    half = half_ulp(output, form)
    size = np.abs(output)
    below = half_ulp(np.nextafter(size, 0.0), form)
    return np.where(np.abs(toward) < size, np.minimum(half, below), half)


@dataclass(frozen=True)
class Edges:
    """The edge of each output's cell that is nearest to a value.

    Attributes:
        outside: how far the value lies beyond it (rows, N); negative inside.
        inward: the sign of the change that brings the value back (rows, N).
    """

    outside: Array
    inward: Array


def edges(output: Array, values: Array, form: str, mode: Mode = "even") -> Edges:
    """Return the edges of an output's cells (rows, N) that are nearest to values.

    An output that rounds to nearest stands for what lies within half a step, and one that rounds at
    random for a step to either side. One that truncates stands for its own value and larger ones,
    up to a step; 0 stands for a step of either sign.
    """
    if mode == "random":
        error = output - values
        size = np.minimum(np.abs(output), np.abs(values))
        return Edges(np.abs(error) - ulp(size, form), np.sign(error))
    if mode != "zero":
        error = output - values
        return Edges(np.abs(error) - half_cell(output, values, form), np.sign(error))
    sign = np.where(output == 0.0, np.sign(values), np.sign(output))
    beyond = sign * values - np.abs(output)
    above = beyond - ulp(output, form)
    return Edges(np.maximum(-beyond, above), np.where(-beyond > above, sign, -sign))


def cells(output: NDArray[np.floating], replay: Quantity, form: str, mode: Mode = "even") -> Cells:
    """Return an output (rows, N) in its format beside its replay.

    mode: how the kernel rounds its output.
    """
    y = np.asarray(output, np.float64)
    if form != "fp32" or not replay.shared:
        return Cells(_distance(y, replay, form, mode), lambda: SharedErrors.none(len(y)))
    return Cells(
        _distance(y, replay, form, mode),
        lambda: _shared_errors(y - replay.values, replay, half_ulp(y, form)),
    )


def _distance(y: Array, replay: Quantity, form: str, mode: Mode) -> Array:
    """Return how far each output (rows, N) lies outside its cell, in standard deviations."""
    if mode in NEAREST and jit.is_loaded() and y.shape == replay.values.shape:
        return _compiled_distance(y, replay, form)
    beyond = np.maximum(edges(y, replay.values, form, mode).outside - replay.slack, 0.0)
    deviation = np.sqrt(
        replay.variance + (FLOOR * np.maximum(np.abs(replay.values), np.abs(y))) ** 2
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(beyond == 0, 0.0, beyond / deviation)


def _compiled_distance(y: Array, replay: Quantity, form: str) -> Array:
    distance = np.empty(y.shape)
    variance, slack = replay.variance, replay.slack
    if variance.shape != y.shape:
        variance = np.broadcast_to(variance, y.shape)
    if slack.shape != y.shape and slack.size != 1:
        slack = np.broadcast_to(slack, y.shape)
    unit, smallest = _steps(form)
    distances.add_distances(
        jit.plain(y).reshape(-1),
        jit.plain(replay.values).reshape(-1),
        jit.plain(variance).reshape(-1),
        jit.plain(slack).reshape(-1),
        unit,
        smallest,
        FLOOR,
        distance.reshape(-1),
    )
    return distance


def _steps(form: str) -> tuple[float, float]:
    """Return a format's unit roundoff and smallest normal number."""
    declared = format_named(form)
    return declared.unit_roundoff, 2.0**declared.min_exponent


def _shared_errors(error: Array, replay: Quantity, half: Array) -> SharedErrors:
    """Return the errors that the elements of each row share.

    The sources' errors a have unit variance, and error = P a + noise. Their best estimate is
    a = (I + M)^-1 P'W e with M = P'W P, whose covariance under the model is I - (I + M)^-1. Only an
    output whose rounding is no larger than the noise says something: in a narrow format the
    rounding is a function of the values, not a random error.
    """
    weights = 1.0 / (replay.noise + half**2 / 3 + replay.slack**2)
    patterns = np.stack([np.broadcast_to(p, error.shape) for p in replay.shared.values()], axis=1)
    weighted = patterns * weights[:, None, :]
    matrix = weighted @ patterns.transpose(0, 2, 1)
    projections = np.einsum("rjn,rn->rj", weighted, error)
    return shared_errors(list(replay.shared), matrix, projections)


def shared_errors(sources: Sequence[str], matrix: Array, projections: Array) -> SharedErrors:
    """Return the shared errors of each row from M (rows, K, K) and P'We (rows, K).

    sources: the names of the first sources; further ones show nowhere. With M = V L V', the
    estimate is V (I + L)^-1 V'P'We, and its covariance V L (I + L)^-1 V'. What float64 can't tell
    from zero says nothing: an L below MIN_EIGENVALUE, a variance below MIN_SPREAD. Where M isn't
    finite, the largest error is NaN.
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
    largest = np.where(defined, z.max(axis=1), np.nan)

    def of(source: str) -> Array:
        if source not in sources:
            return np.zeros((2, len(largest)))
        place = sources.index(source)
        says = defined & (spread[:, place] > MIN_SPREAD)
        return np.where(says, np.stack([estimate[:, place], spread[:, place]]), 0.0)

    estimates, spreads = of(POOLED)
    return SharedErrors(largest, estimates, spreads, of(MEAN))
