"""The error function and its kin, which NumPy lacks: erf, erfc and log_ndtr.

W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), with
the coefficients of his routine CALERF. Relative errors are a few 1e-16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SMALL, LARGE = 0.46875, 4.0
"""Sizes where one approximation of Cody's ends and the next begins."""
LAST = 40.0
"""Beyond it exp(-x^2 / 2) is 0 in float64; the square of a larger size would only overflow."""
# numerators and denominators, the highest power first
# fmt: off
_ERF = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3),
)
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)
_TAIL = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)
# fmt: on


def erf(x: ArrayLike) -> Array:
    """Return 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    value = np.asarray(x, np.float64)
    outside = np.copysign(1.0 - _erfc_of_size(np.abs(value)), value)
    return np.where(np.abs(value) <= SMALL, _erf_near_zero(value), outside)


def erfc(x: ArrayLike) -> Array:
    """Return 1 - erf(x), without the cancellation."""
    value = np.asarray(x, np.float64)
    tail = _erfc_of_size(np.abs(value))
    outside = np.where(value < 0, 2.0 - tail, tail)
    return np.where(np.abs(value) <= SMALL, 1.0 - _erf_near_zero(value), outside)


def log_ndtr(x: ArrayLike) -> Array:
    """Return log P(X <= x) of a standard normal X, also where the probability underflows."""
    value = np.asarray(x, np.float64)
    size = np.abs(value) / math.sqrt(2)
    with np.errstate(all="ignore"):
        scaled = _scaled_erfc(size) / 2
        below = np.log(scaled) - value * value / 2
        above = np.log1p(-_bell(np.abs(value), 0.5) * scaled)
        middle = np.log(erfc(-value / math.sqrt(2)) / 2)
    return np.where(value < -1.0, below, np.where(value > 1.0, above, middle))


def _erf_near_zero(value: Array) -> Array:
    value = np.clip(value, -SMALL, SMALL)
    return value * _ratio(_ERF, value * value)


def _erfc_of_size(size: Array) -> Array:
    """Return erfc of sizes above SMALL."""
    return _bell(size, 1.0) * _scaled_erfc(size)


def _bell(size: Array, factor: float) -> Array:
    """Return exp(-factor x^2), in two steps: rounding x^2 would cost the last bits."""
    size = np.minimum(size, LAST)
    coarse = np.trunc(size * 16) / 16
    rest = (size - coarse) * (size + coarse)
    return np.exp(-factor * coarse * coarse) * np.exp(-factor * rest)


def _scaled_erfc(size: Array) -> Array:
    """Return exp(x^2) erfc(x) of sizes above SMALL."""
    large = np.maximum(size, LARGE)
    inverse = (1 / large) ** 2
    tail = (1 / math.sqrt(math.pi) - inverse * _ratio(_TAIL, inverse)) / large
    return np.where(size <= LARGE, _ratio(_MIDDLE, np.clip(size, SMALL, LARGE)), tail)


def _ratio(parts: tuple[Sequence[float], Sequence[float]], at: Array) -> Array:
    over, under = (np.polyval(np.array(part), at) for part in parts)
    return np.asarray(over / under)
