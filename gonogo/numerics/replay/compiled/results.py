"""Quantities and measurements from the numbers of the compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import MAX_SERIAL, over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import format_named
from gonogo.numerics.jit import plain
from gonogo.numerics.replay import orders, spans
from gonogo.numerics.replay.cells import Measurement, SharedErrors, shared_errors
from gonogo.numerics.replay.compiled import elements, sums
from gonogo.numerics.replay.quantity import Quantity

ROWS = 16
"""Rows that one thread works on at a time."""
UPPER = np.triu_indices(3)
"""The places of the upper triangle of a 3 x 3 matrix, row by row."""


def singles(array: NDArray[np.floating]) -> NDArray[np.float32] | None:
    """Return an output as compiled code reads it; None where fp32 doesn't hold its values."""
    narrow = np.asarray(array, np.float32)
    if array.dtype != np.float32 and not np.array_equal(narrow, array):
        return None
    return plain(narrow)


def rows_at_once(rows: int, width: int) -> int:
    """Return the rows that one thread works on, of a loop over rows that are independent."""
    return max(1, rows) if rows * width <= MAX_SERIAL else ROWS


def as_input(array: NDArray[np.floating]) -> Array:
    """Return an input (rows, N) as the graphs have it.

    It is float64. One that is larger than a block of rows stays as it is given, in spite of its
    type here: to widen it would cost as much as to replay it. The compiled loops read it, and
    blocks of it are widened (Quantity, and `some` of the graphs).
    """
    return cast(Array, array) if array.size > spans.ELEMENTS else np.asarray(array, np.float64)


def mean(facts: Array, source: str, width: int, errors: dict[str, Array] | None = None) -> Quantity:
    """Return the means of rows (rows, 1) from their `facts` (rows, FACTS), as Machine.mean does.

    width: the number of terms. errors: the means of the errors that the rows share.
    """
    value, exact, largest, computed, noise = facts[:, : sums.NOISE + 1].T
    size = facts[:, sums.SIZE]
    average = spans.averages(orders.relative(largest, size), spans.even(len(facts), width)) * size
    deviation = orders.deviation(largest, exact, computed, average)
    shared = {**(errors or {}), source: deviation[:, None]}
    return Quantity((value + (computed - exact))[:, None], noise[:, None], shared)


def column(rows: int, quantity: Array) -> Array:
    """Return a value per row, or one for all, as (rows,)."""
    if quantity.shape != (rows, 1):
        quantity = np.broadcast_to(quantity, (rows, 1))
    return quantity[:, 0]


@dataclass(frozen=True)
class RowPatterns:
    """The errors that the elements of a row share: for each source, a sum of a few patterns.

    The coefficients (sources, patterns) of each row are the product of two factors. The compiled
    loops combine the patterns by the second one: the variances of the results add up.

    Attributes:
        names: the sources' names.
        sources: (rows, sources, patterns), orthonormal columns.
        triangle: (rows, patterns, patterns), upper triangles.
    """

    names: tuple[str, ...]
    sources: Array
    triangle: Array

    @classmethod
    def of(cls, rows: int, patterns: Sequence[dict[str, Array]]) -> RowPatterns:
        """Return the factors of patterns, given as the sources' coefficients (rows, 1)."""
        names = sorted({source for pattern in patterns for source in pattern})
        coefficients = np.zeros((rows, max(len(names), len(patterns)), len(patterns)))
        for place, pattern in enumerate(patterns):
            for source, coefficient in pattern.items():
                coefficients[:, names.index(source), place] = column(rows, coefficient)
        return cls(tuple(names), *np.linalg.qr(coefficients))

    def form(self) -> Array:
        """Return the triangles as compiled loops read them (rows, FORM)."""
        count = self.triangle.shape[1]
        whole = np.zeros((len(self.triangle), 3, 3))
        whole[:, :count, :count] = self.triangle
        return whole[:, *UPPER]

    def errors(self, grams: Array) -> SharedErrors:
        """Return the shared errors of each row.

        grams: (rows, patterns, patterns + 1), the weighted products of the combined patterns (the
        upper triangle), and those with the output's errors.
        """
        count = grams.shape[1]
        upper = grams[:, :, :count]
        symmetric = np.triu(upper) + np.triu(upper, 1).transpose(0, 2, 1)
        matrix = self.sources @ symmetric @ self.sources.transpose(0, 2, 1)
        projections = (self.sources @ grams[:, :, count:])[:, :, 0]
        return shared_errors(self.names, matrix, projections)


@dataclass(frozen=True)
class Output:
    """An output as the compiled loops read it."""

    values: NDArray[np.float32]
    form: str
    limit: float

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Return the format's unit roundoff and smallest normal number, and the squared limit."""
        declared = format_named(self.form)
        return declared.unit_roundoff, 2.0**declared.min_exponent, self.limit**2

    def measured(
        self, rows: int, patterns: RowPatterns, count: int, loop: Callable[..., None]
    ) -> Measurement:
        """Return the measurement of all rows.

        count: the number of patterns. loop(start, stop, unit, smallest, limit, weighted, results,
        grams) measures some rows.
        """
        results, grams = np.zeros((rows, elements.RESULTS)), np.zeros((rows, count, count + 1))
        weighted = self.form == "fp32"

        def block(start: int, stop: int) -> None:
            loop(start, stop, *self.numbers, weighted, results, grams)

        over_rows(block, rows, rows_at_once(*self.values.shape))
        return Measurement(
            np.sqrt(results[:, elements.RATIO]),
            results[:, elements.COLUMN].astype(np.intp),
            results[:, elements.BEYOND].astype(np.intp),
            patterns.errors(grams) if weighted else SharedErrors.none(rows),
            self.values.shape[1],
        )
