"""The likelihood of cells: how probable it is that normal errors end within them.

An error z deviations beyond its cell has the probability Q(z) of a normal one above z. log Q is
concave, so the most likely size of a direction along which all errors move is unique.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic.formats import Doubles
from gonogo.graph.special import log_ndtr

STEPS = 60
FIRST_LENGTH = 3.0
"""Deviations that a first step moves at most: log Q is flat on one side and steep on the other."""
ACCURACY = 1e-3
LARGEST_LOG = 700.0
"""exp of it is finite."""


@dataclass(frozen=True)
class Likely:
    """The most likely size of a direction, its deviation, and the gain of log likelihood over 0."""

    size: float
    deviation: float
    gain: float


def most_likely(z: Doubles, slope: Doubles) -> Likely:
    """Return the size t for which errors of z + t slope deviations are most likely."""
    size = last = information = 0.0
    longest = FIRST_LENGTH
    for _ in range(STEPS):
        at = z + size * slope
        # the hazard is the normal density divided by Q: the slope of -log Q
        log_density = -0.5 * np.square(at) - 0.5 * math.log(2 * math.pi)
        hazard = np.exp(np.minimum(log_density - log_ndtr(-at), LARGEST_LOG))
        information = float((hazard * (hazard - at) * np.square(slope)).sum())
        if not information > 0:
            break
        newton = -float((hazard * slope).sum()) / information
        longest = 2 * longest if newton * last > 0 else FIRST_LENGTH
        last = newton
        size += min(longest, max(-longest, newton))
        if abs(newton) < ACCURACY:
            break
    gain = float((log_ndtr(-(z + size * slope)) - log_ndtr(-z)).sum())
    return Likely(size, 1 / math.sqrt(information) if information > 0 else math.inf, gain)


def normal_deviate(t: float, freedom: int) -> float:
    """Return Student's t as the normal deviate that is as unlikely (Wallace 1959)."""
    wallace = (8 * freedom + 1) / (8 * freedom + 3)
    return wallace * math.sqrt(freedom * math.log1p(t * t / freedom))
