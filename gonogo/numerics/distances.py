"""Distances between two arrays that need no budget.

NumPy only: it runs in other people's interpreters, too (Python 3.10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEEDED_RTOLS = (0.0, 1e-5, 1e-3, 1e-2, 1.6e-2, 1e-1)
"""The rtols for which the needed atol is stored.

Any tolerance with one of them can be judged again.
"""
EXACT_ULPS = 4096
CANCELLED = 2.0**-44
"""The share of a difference of sums below which it is rounding, not a variance."""


def pcc_deficit(raw: Array, error: Array) -> float | None:
    """Return 1 - Pearson correlation of raw + error and raw, without losing digits.

    With b = raw and d = error, both centered, and a = b + d: 1 - rho = (|d|^2 - (|a| - |b|)^2) / (2
    |a| |b|), |a| - |b| = (2 b.d + |d|^2) / (|a| + |b|). None where undefined (constants).
    """
    b = raw - raw.flat[0]
    n = raw.size
    d1, b1 = error.sum(), b.sum()
    dd, bb, bd = (
        (error**2).sum() - d1**2 / n,
        (b**2).sum() - b1**2 / n,
        (b * error).sum() - b1 * d1 / n,
    )
    return pcc_from_sums(n, float(dd), float(bb), float(bd), float(np.abs(raw).max()))


def pcc_from_sums(n: int, dd: float, bb: float, bd: float, largest: float) -> float | None:
    """Return pcc_deficit from the centered sums |d|^2, |b|^2 and b.d.

    `largest` |raw| sets the floor below which b is constant.
    """
    floor = n * (largest * 2.0**-50) ** 2
    aa = bb + 2 * bd + dd
    if not bb > floor or not aa > max(floor, (bb + dd) * CANCELLED):
        return None
    a, b = aa**0.5, bb**0.5
    gap = (2 * bd + dd) / (a + b)
    return float(max(0.0, (dd - gap**2) / (2 * a * b)))


def percentile_99(distances: Array) -> float:
    """Return the smallest whole number of ulps that at least 99% of the distances do not exceed.

    From 4096 on it is rounded down as `coarse` does.
    """
    whole = np.ceil(np.sort(distances, axis=None))
    return coarse(float(whole[max(0, -(-99 * whole.size // 100) - 1)]))


def coarse(whole: float) -> float:
    """Return a distance as the histogram stores it.

    It is exact below 4096; above, it is the lower edge of one of 32 bins an octave.
    """
    if whole < EXACT_ULPS:
        return whole
    bits = np.float64(whole).view(np.int64) >> 47 << 47
    return float(np.int64(bits).view(np.float64))


def storable(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain Python numbers, ready for JSON.

    An infinite statistic becomes null, and its name is in `nonfinite_statistics`.
    """
    result: dict[str, Any] = {}
    infinite: dict[str, str] = {}
    for name, value in statistics.items():
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, float) and not math.isfinite(plain):
            infinite[name] = "nan" if math.isnan(plain) else "inf"
            plain = None
        result[name] = plain
    result["nonfinite_statistics"] = infinite or None
    return result
