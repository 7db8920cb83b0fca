"""A fault, and the error that faults explain, to which the size of some is fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array

LISTED = 3
"""Rows or columns that words name one by one."""
SMALL = 1e-300
MIN_EVIDENCE = 25.0
"""By how much chi squared must be lower for one fault to be likelier than another, or than none.

One number fitted to noise lowers it so far in 6 of 10 million cases, and some hundred are tried.
"""
ALIKE = 0.2
"""The difference, in standard deviations, up to which rows have the same errors. Those of rows with
errors of their own differ by 1.4."""
NEAR_1 = 0.5
"""Factors from here on are nearer to 1 than to 0."""
RELATED = 0.9
"""The share of an output that a factor nearer to 0 than to 1 must explain to be a fault's.

Any output v lets a factor f of the right values y explain some of the error v - y. If v has nothing
to do with y, f is near 0, and explains |y|^2 of |v|^2 + |y|^2: half of it, more where v is small.
What f leaves of v itself tells them apart: all of it, or rounding where v is f y.
"""
UNIFORM = 0.8
"""The variance of the square of a uniform error of unit variance."""


@dataclass(frozen=True)
class Fault:
    """A fault and its effect.

    Attributes:
        words: the fault in words, such as "gamma is missing".
        effect: what it adds to the output (rows, N).
        fitted: how many numbers of the effect are fitted to the output's error; one that is fitted
            within narrow limits counts in part, and so do the numbers of rows that are alike.
        is_coherent: False for rows with means or factors of their own: a stored mean or rstd
            makes them, too.
        cost: how much less likely the numbers are than 0, as energy.
    """

    words: str
    effect: Array
    fitted: float = 0
    is_coherent: bool = True
    cost: float = 0.0


@dataclass(frozen=True)
class Residual:
    """The error of an output that faults are to explain, and how much each element says of it.

    Attributes:
        error: the output minus the function (rows, N).
        variance: that of the error of a right kernel's element (rows, N).
        weight: one over that variance and the usual one of its row (rows, N), so that a few values
            near 0, whose rounding is next to nothing, don't decide alone; divided by `copies`.
        copies: how many rows have the errors of a row, itself included (rows, 1).
    """

    error: Array
    variance: Array
    weight: Array
    copies: Array

    @classmethod
    def of(cls, error: Array, variance: Array) -> Residual:
        """Return an error with its weights."""
        usual = np.median(variance, axis=1, keepdims=True)
        copies = _copies(error, variance)
        weight = 1.0 / np.maximum(variance + usual, SMALL) / copies
        return cls(error, variance, weight, copies)

    @property
    def energy(self) -> float:
        """Return the weighted sum of squares."""
        return float((self.weight * self.error**2).sum())

    @property
    def expected(self) -> float:
        """Return the energy of a right kernel's error."""
        return float((self.weight * self.variance).sum())

    @property
    def deviation(self) -> float:
        """Return the standard deviation of that energy; errors are uniform over a step."""
        squares = (self.weight * self.variance) ** 2 * self.copies
        return float(np.sqrt(UNIFORM * squares.sum()))

    @property
    def rows(self) -> int:
        """Return the number of rows, of which those with the same errors count as one."""
        return round(float((1.0 / self.copies).sum()))

    @property
    def size(self) -> int:
        """Return the number of elements in these rows."""
        return self.rows * int(self.error.shape[1])

    @property
    def unit(self) -> float:
        """Return what one more in chi squared is in energy: weights are near half of 1/variance."""
        return self.expected / self.size

    def evidence(self, energy: float, left: float) -> float:
        """Return by how much chi squared is lower where `left` is left of the error, not `energy`.

        Other roundings of the kernel may add to the output's, and equal elements round alike.
        """
        noise = max(1.0, left / max(self.expected, SMALL)) * self.size / self.distinct
        return (energy - left) / max(noise * self.unit, SMALL)

    @cached_property
    def distinct(self) -> int:
        """Return the number of different errors, row by row.

        Beside an offset, x has few values in 16 bits. Elements of a row that are computed from the
        same values share one rounding error.
        """
        ordered = np.sort(self.error, axis=1)
        by_row = 1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)
        return round(float((by_row / self.copies[:, 0]).sum()))

    def without(self, effect: Array) -> Residual:
        """Return what is left when an effect (rows, N) is explained."""
        return replace(self, error=self.error - effect)

    def reshaped(self, shape: tuple[int, int]) -> Residual:
        """Return the same elements as a matrix of another shape."""
        error, variance, weight = (
            a.reshape(shape) for a in (self.error, self.variance, self.weight)
        )
        return Residual(error, variance, weight, np.ones((shape[0], 1)))

    def common(self, pattern: Array) -> float:
        """Return the factor of a pattern (rows, N) that fits all elements best."""
        weighted = self.weight * pattern
        return float((self.error * weighted).sum() / max((pattern * weighted).sum(), SMALL))

    def relates(
        self, pattern: Array, effect: Array, axis: int | None = None, near: float = NEAR_1
    ) -> Array:
        """Return whether effects on a pattern (rows, N) explain the output (see RELATED).

        Both have the form of the output's right values; what isn't in the pattern counts for
        nothing. axis: 1 for each row, (rows, 1); 0 for each column, (1, N); None for all, (1, 1).
        near: factors from here on need explain nothing; many numbers that are fitted to an output
        make any part of it, so that they always must.
        """
        used = self.weight * (pattern != 0.0)
        right, left, rest, output, expected = (
            (used * part).sum(axis=axis, keepdims=True)
            for part in (
                pattern**2,
                (pattern + effect) ** 2,
                (self.error - effect) ** 2,
                (self.error + pattern) ** 2,
                self.variance,
            )
        )
        is_near_1 = (left >= near**2 * right) if np.isfinite(near) else np.False_
        return np.asarray(is_near_1 | (rest <= (1.0 - RELATED) * output + expected))

    def per_row(self, pattern: Array) -> Array:
        """Return the factor of a pattern that fits each row best, (rows, 1)."""
        return self._fit(pattern, 1)

    def per_column(self, pattern: Array) -> Array:
        """Return the factor of a pattern that fits each column best, (1, N)."""
        return self._fit(pattern, 0)

    def _fit(self, pattern: Array, axis: int) -> Array:
        weighted = self.weight * pattern
        norm = (pattern * weighted).sum(axis=axis, keepdims=True)
        along = (self.error * weighted).sum(axis=axis, keepdims=True)
        return np.asarray(along / np.maximum(norm, SMALL))

    def two_per_row(self, first: Array, second: Array) -> Array:
        """Return the effect (rows, N) of both patterns with the factors that fit each row best."""
        of_first, of_second = self.two_factors(first, second)
        return np.asarray(of_first * first + of_second * second)

    def two_factors(self, first: Array, second: Array) -> tuple[Array, Array]:
        """Return the factors (rows, 1) of two patterns (rows, N) that fit each row best."""
        u, v = self.weight * first, self.weight * second
        a, b, c = (f.sum(axis=1) for f in (u * first, u * second, v * second))
        p, q = (self.error * u).sum(axis=1), (self.error * v).sum(axis=1)
        determinant = a * c - b * b
        usable = determinant > 1e-12 * a * c
        with np.errstate(divide="ignore", invalid="ignore"):
            of_first = np.where(usable, (c * p - b * q) / determinant, p / np.maximum(a, SMALL))
            of_second = np.where(usable, (a * q - b * p) / determinant, 0.0)
        return of_first[:, None], of_second[:, None]

    def per_label(self, pattern: Array, labels: NDArray[np.intp]) -> Array:
        """Return the factor of a pattern that fits each label's elements best, one per element.

        labels: (rows, N), from 0 on.
        """
        shape = self.error.shape
        full = np.broadcast_to(labels, shape).ravel()
        weighted = self.weight * pattern
        norm = np.bincount(full, np.broadcast_to(weighted * pattern, shape).ravel())
        along = np.bincount(full, (self.error * weighted).ravel())
        return np.asarray((along / np.maximum(norm, SMALL))[full].reshape(shape))

    def per_label_energy(self, labels: NDArray[np.intp]) -> Array:
        """Return the energy of each label's elements in units of what rounding adds (labels,)."""
        shape = self.error.shape
        full = np.broadcast_to(labels, shape).ravel()
        energy = np.bincount(full, (self.weight * self.error**2).ravel())
        count = np.bincount(full, np.broadcast_to(1.0 / self.copies, shape).ravel())
        return np.asarray(energy / np.maximum(count * self.unit, SMALL))


def _copies(error: Array, variance: Array) -> Array:
    """Return how many rows have the errors of each row, itself included (rows, 1).

    Rows of equal inputs, up to a power of two, are computed alike. They say as much as one of them,
    and a number that is fitted to each of them, or to a column of theirs, is fitted to one row.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a variance may be next to nothing
        scaled = error / np.sqrt(np.maximum(variance, SMALL))
        # alike rows are neighbors in the order of any sum of theirs
        order = np.argsort(scaled @ np.cos(np.arange(scaled.shape[1])), kind="stable")
        apart = ~(np.square(np.diff(scaled[order], axis=0)).mean(axis=1) <= ALIKE**2)
    kind = np.empty(len(error), np.intp)
    kind[order] = np.cumsum(np.concatenate([[0], apart]))
    return np.asarray(np.bincount(kind)[kind][:, None], np.float64)


def places(noun: str, values: Array) -> str:
    """Return where the values matter, such as "column 5", "columns 3, 9", "most columns"."""
    size = np.abs(values.ravel())
    matter = np.flatnonzero(size > 0.1 * size.max(initial=0.0))
    if len(matter) == 0 or 2 * len(matter) > len(size):
        return f"most {noun}s" if len(size) > 1 else f"{noun} 0"
    if len(matter) == 1:
        return f"{noun} {matter[0]}"
    if len(matter) <= LISTED:
        return f"{noun}s {', '.join(map(str, matter))}"
    return f"{len(matter)} {noun}s from {matter[0]} to {matter[-1]}"
