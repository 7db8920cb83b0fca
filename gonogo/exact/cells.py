"""The distance of the exact value from the cell of values that an output stands for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.formats import half_ulp, round_to

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def bounds(output: Floats, fmt: str) -> tuple[Doubles, Doubles]:
    """Return the lower and upper end of each output's cell: half a spacing to each side.

    Toward zero from a power of two the spacing is half as large.
    """
    value = output.astype(np.float64)
    half = half_ulp(output, fmt)
    inner = np.where(np.abs(np.frexp(value)[0]) == 0.5, half_ulp(value * 0.75, fmt), half)
    positive = value >= 0
    with np.errstate(invalid="ignore"):  # inf - inf is NaN: an infinity has no cell
        low = value - np.where(positive, inner, half)
        high = value + np.where(positive, half, inner)
    zero = value == 0
    return np.where(zero, -half, low), np.where(zero, half, high)


def distance(output: Floats, exact: Doubles, fmt: str) -> Doubles:
    """Return how far `exact` lies outside of the cell of `output`; 0 inside, inf for NaN and inf.

    Both have the same shape. A value off the format's grid stands for nothing but itself.
    """
    with np.errstate(invalid="ignore"):
        low, high = bounds(output, fmt)
        outside = np.maximum(np.maximum(low - exact, exact - high), 0.0)
        off_grid = round_to(output, fmt) != output
        result = np.where(off_grid, np.abs(output.astype(np.float64) - exact), outside)
    return np.where(np.isfinite(output), result, np.inf)
