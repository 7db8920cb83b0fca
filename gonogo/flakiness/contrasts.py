"""Two samples of a number against each other: Welch's test, which sees what red and green can't."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.special import student_tail

Array = NDArray[np.float64]
_CONSTANT, _EQUAL = 1e-30, 1e-12
"""The variance and the difference that are rounding, of numbers in units of the largest."""


class Contrast(NamedTuple):
    """Welch's t of the second sample's mean less the first's, and its two-sided p."""

    t: float
    p: float


def welch(first: Iterable[float] | Array, second: Iterable[float] | Array) -> Contrast:
    """Welch's t-test with Satterthwaite's degrees of freedom (B. L. Welch, Biometrika 34, 1947).

    Two constants that differ have t = inf and p = 0, two that don't t = 0 and p = 1, as have fewer
    than 2 numbers on a side. NaN and Inf are left out.
    """
    one, two = (np.asarray([*sample], np.float64) for sample in (first, second))
    one, two = one[np.isfinite(one)], two[np.isfinite(two)]
    if min(len(one), len(two)) < 2:
        return Contrast(0.0, 1.0)
    # in units of the largest, squares of huge or tiny numbers stay finite
    scale = max(float(np.abs(one).max()), float(np.abs(two).max())) or 1.0
    one, two = one / scale, two / scale
    difference = float(two.mean() - one.mean())
    parts = [float(side.var(ddof=1)) / len(side) for side in (one, two)]
    variance = sum(parts)
    if variance <= _CONSTANT:
        same = abs(difference) <= _EQUAL
        return Contrast(0.0, 1.0) if same else Contrast(math.copysign(math.inf, difference), 0.0)
    t = difference / math.sqrt(variance)
    freedom = variance**2 / (parts[0] ** 2 / (len(one) - 1) + parts[1] ** 2 / (len(two) - 1))
    return Contrast(t, student_tail(t, freedom))
