"""The faults of whole rows of an output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual, places
from gonogo.numerics.expectation import Array

WORST = 4
"""Rows with the largest errors that are compared with all others."""
SAME_FACTOR = 0.05
"""The spread of the rows' factors, relative to the common one, up to which they are one factor."""

NONE = 1e-6
"""A smaller factor is 0: it is fitted to an output that has none of the right values."""


def stale(exact: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the rows that have the values of another row; exact: (rows, N)."""
    if len(exact) < 2:
        return
    error = residual.error
    size = (residual.weight * error**2).sum(axis=1)
    squares = (exact**2).sum(axis=1)
    for row in np.argsort(size)[::-1][:WORST]:
        output = exact[row] + error[row]
        distance = squares - 2.0 * (exact @ output)
        distance[row] = np.inf
        other = int(np.argmin(distance))
        effect = np.zeros_like(exact)
        effect[row] = exact[other] - exact[row]
        # any row of small values is near to one that is nearly 0
        if residual.relates(exact * (effect != 0.0), effect, near=np.inf).all():
            yield Fault(f"row {row} holds the values of row {other}", effect)


def in_rows(fault: Fault, residual: Residual) -> Iterator[Fault]:
    """Yield a whole fault in those rows alone whose error it more than halves, if some have none.

    The last block of rows may take another path than the others.
    """
    of_right = (residual.weight * residual.variance).sum(axis=1)
    before = (residual.weight * residual.error**2).sum(axis=1)
    after = (residual.weight * (residual.error - fault.effect) ** 2).sum(axis=1)
    chosen = (after < before / 2) & (before > 2 * of_right)
    if chosen.any() and not chosen.all():
        words = f"{fault.words} in {places('row', chosen.astype(np.float64))}"
        yield Fault(words, np.where(chosen[:, None], fault.effect, 0.0))


class Fitting(Protocol):
    """An error to which a factor can be fitted."""

    def common(self, pattern: Array, /) -> float:
        """Return the factor of a pattern (rows, N) that fits all elements best."""
        ...

    def relates(self, pattern: Array, effect: Array, /) -> Array:
        """Return whether an effect on a pattern explains the output."""
        ...


def common(exact: Array, error: Fitting, words: str = "a common factor") -> Iterator[Fault]:
    """Yield a common factor of `exact`, the output or a part of it."""
    if exact.any():
        factor = error.common(exact)
        if error.relates(exact, factor * exact).all():
            yield Fault(f"{words} of {_factor(factor)}", factor * exact, 1)


def factors(exact: Array, residual: Residual) -> Iterator[Fault]:
    """Yield factors of the rows, where they differ."""
    if not exact.any():
        return
    by_row = residual.per_row(exact)
    by_row = np.where(residual.relates(exact, by_row * exact, 1), by_row, 0.0)
    if len(exact) > 1 and np.std(by_row) > SAME_FACTOR * abs(residual.common(exact)):
        count = residual.rows
        yield Fault(_words(by_row[:, 0]), by_row * exact, count, is_coherent=False)


def _words(by_row: Array) -> str:
    wrong = np.abs(by_row) > 0.5 * np.abs(by_row).max()
    rows = np.flatnonzero(wrong)
    if len(rows) == 1:
        return f"row {rows[0]} has a factor of {_factor(by_row[rows[0]])}"
    low, high = _factor(by_row[wrong].min()), _factor(by_row[wrong].max())
    return f"{len(rows)} rows have factors of their own, from {low} to {high}"


def _factor(off: float) -> str:
    """Return 1 + off with as many digits as `off` needs to show."""
    if abs(1.0 + off) < NONE:
        return "0"
    digits = 5 if abs(off) >= 1e-4 else min(9, 2 - math.floor(math.log10(max(abs(off), 1e-9))))
    return f"{1 + off:.{digits + 1}g}"
