"""Two samples of a number against each other: Welch's test, which sees what red and green can't."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.special import student_tail

Array = NDArray[np.float64]
_CONSTANT, _EQUAL = 1e-30, 1e-12
"""The variance and the difference that are rounding, of numbers in units of the largest."""


@dataclass(frozen=True)
class Contrast:
    """The second sample's mean minus the first's, with Welch's t and two-sided p.

    Where there is too little data, difference and t are None, and `words` says why.
    """

    counts: tuple[int, int]
    difference: float | None
    t: float | None
    p: float
    words: str


def finite(values: Iterable[float] | Array) -> Array:
    """Return the finite numbers, as float64."""
    array = np.asarray(
        values if isinstance(values, np.ndarray) else list(values), dtype=np.float64
    ).ravel()
    return array[np.isfinite(array)]


def welch(first: Iterable[float] | Array, second: Iterable[float] | Array) -> Contrast:
    """Welch's t-test with Satterthwaite's degrees of freedom (B. L. Welch, Biometrika 34, 1947).

    Two constants that differ have t = inf and p = 0, two that don't t = 0 and p = 1. NaN and Inf
    are left out. Fewer than 2 on a side: p = 1, in words.
    """
    one, two = finite(first), finite(second)
    counts = (len(one), len(two))
    if min(counts) < 2:
        return Contrast(counts, None, None, 1.0, f"not enough seeds: {min(counts)} of 2")
    scale = max(float(np.abs(one).max()), float(np.abs(two).max()))
    if scale > 0:  # squares of huge or tiny numbers stay finite
        one, two = one / scale, two / scale
    difference = float(two.mean() - one.mean())
    parts = float(one.var(ddof=1)) / counts[0], float(two.var(ddof=1)) / counts[1]
    variance = sum(parts)
    if variance <= _CONSTANT:
        same = abs(difference) <= _EQUAL
        t, p = (0.0, 1.0) if same else (math.copysign(math.inf, difference), 0.0)
    else:
        t = difference / math.sqrt(variance)
        freedom = variance**2 / (parts[0] ** 2 / (counts[0] - 1) + parts[1] ** 2 / (counts[1] - 1))
        p = student_tail(t, freedom)
    return Contrast(
        counts,
        difference * scale if scale > 0 else 0.0,
        t,
        p,
        f"t = {t:.3g}, p = {p:.2g} ({counts[0]} + {counts[1]} seeds)",
    )
