"""Pairs: two builds on equal seeds. Which way do their values differ?

A value flips where the two builds differ. If one build's values are 1 + d times the other's, all
flips point away from zero, or toward it. Sums in another order flip values both ways, but those of
a row alike: so the sign test counts rows. A value of an output with one axis is a row of its own.
"""

from __future__ import annotations

import numpy as np

from gonogo.arithmetic.values import Array
from gonogo.spec.compared_outputs import FlipCounts

SIGN_LIMIT = 1e-4
"""The probability from which on flips point one way: 15 rows of 15. Right kernels with other orders
of sums stay above it in nearly all pairs."""


def flips_of(values: Array, other: Array) -> FlipCounts:
    """Return how an output of one build differs from another's on a seed, of the same shape."""
    width = values.shape[-1] if values.ndim > 1 else 1
    values, other = values.reshape(-1, width), other.reshape(-1, width)
    finite = np.isfinite(values) & np.isfinite(other)
    differing = finite & (values != other)
    directed = differing & (other != 0)  # a zero has no direction
    is_outward = (values > other) == (other > 0)
    away, toward = (directed & is_outward).sum(axis=1), (directed & ~is_outward).sum(axis=1)
    counts = (finite, differing, away, toward, away > toward, toward > away)
    return FlipCounts(*(int(count.sum()) for count in counts))


def sign_probability(one: int, other: int) -> float:
    """Return how likely a fair coin splits as unevenly: the two-sided sign test, a binomial sum."""
    trials, fewer = one + other, min(one, other)
    if 2 * fewer >= trials - 1:
        return 1.0
    k = np.arange(1, fewer + 1)
    logarithms = np.append(0.0, np.cumsum(np.log((trials - k + 1) / k))) - trials * np.log(2)
    return min(1.0, 2 * float(np.exp(logarithms).sum()))
