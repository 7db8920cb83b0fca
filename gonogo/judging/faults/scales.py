"""Faults of all values of gamma or beta: a wrong index, or gamma read as another convention has it.

Some models store gamma - 1, which their kernels add to 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual
from gonogo.judging.faults.statistics import TILE
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array

CONVENTIONS = {"gamma - 1": -1.0, "1 + gamma": 1.0}
"""Values that stand in the place of gamma, and by how much they differ."""


def conventions(of_1: Array, scaled: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults of a gamma that is 1 less or more.

    of_1: what 1 more in all of gamma adds to the output. scaled: what gamma gives it (rows, N).
    """
    for words, more in CONVENTIONS.items():
        if residual.relates(scaled, more * of_1).all():
            yield Fault(f"{words} is in the place of gamma", more * of_1)


def faults(rows: Rows, normalized: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults of y's gamma and beta; normalized: x^ (rows, N)."""
    if rows.gamma is not None:
        yield from conventions(normalized, rows.gamma * normalized, residual)
    if rows.channel_width > 1:
        return
    count, features = normalized.shape
    if rows.gamma is not None:
        for shift in (shift for shift in (1, -1, TILE, -TILE) if abs(shift) < features):
            moved = normalized * (np.roll(rows.gamma, shift, axis=1) - rows.gamma)
            noun = "column" if abs(shift) == 1 else "columns"
            yield Fault(f"gamma is shifted by {shift} {noun}", moved)
    if count == 1:
        return
    index = (np.arange(count) if rows.place is None else rows.place.index) % features
    for name, value, pattern in (
        ("gamma", rows.gamma, normalized),
        ("beta", rows.beta, np.ones((1, 1))),
    ):
        if value is not None and len(value) == 1 and np.ptp(value) > 0.0:
            effect = (value[0, index][:, None] - value) * pattern
            yield Fault(f"{name} has the index of the row", effect)
