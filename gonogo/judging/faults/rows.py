"""The faults of whole rows of an output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults.fault import Fault, per_row
from gonogo.numerics.expectation import Array

WORST = 4
"""Rows with the largest errors that are compared with all others."""
SAME_FACTOR = 0.05
"""The spread of the rows' factors, relative to the common one, up to which they are one factor."""


def stale(exact: Array, error: Array) -> Iterator[Fault]:
    """Yield the rows that have the values of another row; exact, error: (rows, N)."""
    if len(exact) < 2:
        return
    size = (error**2).sum(axis=1)
    squares = (exact**2).sum(axis=1)
    for row in np.argsort(size)[::-1][:WORST]:
        output = exact[row] + error[row]
        distance = squares - 2.0 * (exact @ output)
        distance[row] = np.inf
        other = int(np.argmin(distance))
        effect = np.zeros_like(exact)
        effect[row] = exact[other] - exact[row]
        yield Fault(f"row {row} holds the values of row {other}", effect)


def common(exact: Array, error: Array, words: str = "a common factor") -> Iterator[Fault]:
    """Yield a common factor of `exact`, the output or a part of it."""
    if exact.any():
        factor = _common(exact, error)
        yield Fault(f"{words} of {1 + factor:.6g}", factor * exact, 1)


def factors(exact: Array, error: Array) -> Iterator[Fault]:
    """Yield factors of the rows, where they differ."""
    if not exact.any():
        return
    factor = _common(exact, error)
    by_row = per_row(error, exact)
    if len(exact) > 1 and np.std(by_row) > SAME_FACTOR * abs(factor):
        yield Fault(_words(by_row[:, 0]), by_row * exact, len(exact), is_coherent=False)


def _common(exact: Array, error: Array) -> float:
    return float((error * exact).sum() / (exact**2).sum())


def _words(by_row: Array) -> str:
    wrong = np.abs(by_row) > 0.5 * np.abs(by_row).max()
    rows = np.flatnonzero(wrong)
    if len(rows) == 1:
        return f"row {rows[0]} has a factor of {1 + by_row[rows[0]]:.6g}"
    low, high = 1 + by_row[wrong].min(), 1 + by_row[wrong].max()
    return f"{len(rows)} rows have factors of their own, from {low:.6g} to {high:.6g}"
