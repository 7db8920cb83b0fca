"""Inputs of a LayerNorm for tests of the diagnosis: rows beside an offset, dy, gamma, beta."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
EPSILON = 1e-5
COUNT, WIDTH = 24, 160


def draws(seed: int) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Return x and dy (COUNT, WIDTH), gamma and beta (1, WIDTH)."""
    generator = np.random.default_rng(seed)
    x = 0.5 + generator.standard_normal((COUNT, WIDTH))
    dy = generator.standard_normal((COUNT, WIDTH))
    gamma = 1.0 + 0.3 * generator.standard_normal((1, WIDTH))
    return x, dy, gamma, generator.standard_normal((1, WIDTH))
