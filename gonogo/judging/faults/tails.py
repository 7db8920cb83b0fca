"""Columns at the end of the rows that a kernel doesn't write, or takes from another row.

Vectors and tiles rarely divide a row's length. What a kernel does with the rest is code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual
from gonogo.numerics.expectation import Array

FEW = 2
"""Rows that may be right although others aren't: the first or the last has no row to be like."""
SHOWS = 2.0
"""The least energy of the fault in a row that must show it, over what rounding adds there."""


def unwritten(exact: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the last columns that are 0, or hold the values of another row; exact: (rows, N).

    Their number is the one that explains most.
    """
    before = residual.weight * np.square(residual.error)
    for words, content in _contents(exact):
        effect = content - exact
        gained = before - residual.weight * np.square(residual.error - effect)
        by_start = _from(gained)  # what the fault explains of each row, by its first column
        start = int(np.argmax(np.maximum(by_start, 0.0).sum(axis=0)))
        is_wrong = 2.0 * by_start[:, start] > _from(before)[:, start]
        size = _from(residual.weight * np.square(effect))[:, start]
        is_right = ~is_wrong & (size > SHOWS * _from(residual.weight * residual.variance)[:, start])
        if start > 0 and is_wrong.any() and is_right.sum() <= FEW:
            part = np.zeros_like(exact)
            part[is_wrong, start:] = effect[is_wrong, start:]
            if residual.relates(np.where(part != 0.0, exact, 0.0), part, near=np.inf).all():
                width = exact.shape[1] - start
                noun = f"last {width} columns" if width > 1 else "last column"
                yield Fault(f"the values of the {noun} are {words}", part)


def _contents(exact: Array) -> Iterator[tuple[str, Array]]:
    yield "0", np.zeros_like(exact)
    if len(exact) > 1:
        for shift, place in ((1, "before"), (-1, "after")):
            yield f"those of the row {place}", np.roll(exact, shift, axis=0)
        yield "those of row 0", np.broadcast_to(exact[:1], exact.shape)


def _from(values: Array) -> Array:
    """Return the sum of each row from a column on, by that column (rows, N)."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
