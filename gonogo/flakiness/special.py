"""Distribution functions in plain Python: Beta and Student's t.

`gonogo gauge` reports intervals with a plain install, which has no SciPy; tests compare them with
SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
# Interval halving reaches the last bit of a double long before; it ends at this relative width.
_STEPS, _PRECISION = 200, 1e-13
_CONVERGED = 1e-15


def log_beta(a: float, b: float) -> float:
    """Return log B(a, b)."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return P(X <= x) of Beta(a, b), with a relative error of about 1e-12.

    It is the continued fraction DLMF 8.17.22 by Lentz's method, on the side of the mean where it
    converges in O(sqrt(max(a, b))) terms; DLMF 8.17.4 for the other side.
    """
    if not (a > 0 and b > 0):
        raise ValueError(f"Beta({a}, {b}) needs positive parameters")
    if x <= 0 or x >= 1:
        return float(x >= 1)
    return 1.0 - _lower(1 - x, b, a) if x > (a + 1) / (a + b + 2) else _lower(x, a, b)


def _lower(x: float, a: float, b: float) -> float:
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)) / a
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, 100 + int(10 * math.sqrt(max(a, b)))):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 + term * d, 1.0 + term / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            step = d * c
            value *= step
        if abs(step - 1.0) < _CONVERGED:
            break
    return min(1.0, front * value)


# A test's page needs a hundred intervals, mostly of the same counts, and each takes milliseconds.
@lru_cache(maxsize=16_384)
def beta_quantile(q: float, a: float, b: float) -> float:
    """Return the x with P(X <= x) = q of Beta(a, b), by bisection on the cdf."""
    if not 0 <= q <= 1:
        raise ValueError(f"a probability is between 0 and 1, not {q}")
    if q in (0.0, 1.0):
        return q
    return sum(_halved(0.0, 1.0, lambda x: beta_cdf(x, a, b) < q)) / 2


@lru_cache(maxsize=4096)
def student_quantile(p: float, freedom: float) -> float:
    """Return the t whose two-sided p is `p`, by bisection on the tail."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > p:
        low, high = high, 2 * high
    return _halved(low, high, lambda t: student_tail(t, freedom) > p)[1]


def _halved(low: float, high: float, is_below: Callable[[float], bool]) -> tuple[float, float]:
    """Return the ends of an interval about the first number that isn't below, to the last bits."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
        if high - low <= _PRECISION * high:
            break
    return low, high


def student_tail(t: float, freedom: float) -> float:
    """Return the two-sided p of Student's t (DLMF 8.17): I_{v/(v+t^2)}(v/2, 1/2).

    Near t = 0 it is computed by its complement: with v in the thousands v/(v+t^2) is already 1 in
    doubles where p differs from 1 by 1e-7.
    """
    if math.isnan(t) or not freedom > 0:
        return 1.0
    if math.isinf(t):
        return 0.0
    inside = beta_cdf(t * t / (freedom + t * t), 0.5, freedom / 2) if abs(t) < 0.5 else 1.0
    return 1.0 - inside if inside < 0.5 else beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5)
