"""Distances from cells, as `gonogo.numerics.replay.cells` defines them, to the bit.

NumPy takes some forty passes over the elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import half_cell


@jit
def add_half_cells(output: Any, toward: Any, unit: float, smallest: float, half: Any) -> None:
    """Put the half width of each output's cell on the side of `toward` into `half`, all (N,).

    unit, smallest: unit roundoff and smallest normal number of the outputs' format.
    """
    for j in range(len(output)):
        y = output[j]
        half[j] = half_cell(y, toward[j], unit, smallest) if y == y else y


@jit
def add_distances(
    output: Any,
    values: Any,
    variance: Any,
    slack: Any,
    unit: float,
    smallest: float,
    floor: float,
    distance: Any,
) -> None:
    """Put how far each output (N,) lies outside the cell of its replay into `distance` (N,).

    slack: (N,), or (1,) for all. floor: the accuracy of the replay, relative to a value.
    """
    step = 1 if len(slack) > 1 else 0
    for j in range(len(output)):
        y, value = output[j], values[j]
        beyond = abs(y - value) - half_cell(y, value, unit, smallest) - slack[step * j]
        size = max(abs(value), abs(y)) * floor
        deviation = np.sqrt(variance[j] + size * size)
        outside = beyond / deviation
        distance[j] = outside if not beyond <= 0.0 else 0.0
