"""The upper tail of the standard normal distribution, of whole arrays.

Tests compare it with scipy, which is no part of an install.
"""

from __future__ import annotations

import math

import numpy as np

from gonogo.numerics.formats import Doubles

FAR = 30.0
"""From here on the asymptotic series has all digits; math.erfc underflows at 38."""


def upper_tail(z: Doubles) -> Doubles:
    """Return P(X > z), with a relative error of about 1e-15."""
    tails = np.fromiter(map(math.erfc, (np.ravel(z) * math.sqrt(0.5)).tolist()), float, np.size(z))
    return 0.5 * tails.reshape(np.shape(z))


def log_upper_tail(z: Doubles) -> Doubles:
    """Return log P(X > z), also where P underflows.

    Source: Abramowitz and Stegun 26.2.12, for the far tail.
    """
    far = np.maximum(z, FAR)
    inverse = 1.0 / far**2
    series = -inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * 105.0)))
    log_far = -0.5 * far**2 - np.log(far * math.sqrt(2.0 * math.pi)) + np.log1p(series)
    return np.asarray(np.where(z < FAR, np.log(upper_tail(np.minimum(z, FAR))), log_far))
