"""Inputs on which right kernels agree to the bit, whatever their arithmetic is.

Row i of x is S_i (c + M_i): S_i a power of two, M_i an integer, and c from {0, +-1, ..., +-4} with
sum c = 0 and sum c^2 = 4 N. So mean = S M, rstd = 1/(2 S) and x^ = c/2 are exact in every format
and order. gamma has 3 bits and beta all bits of its format, far below gamma: y = gamma x^ + beta is
rounded once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

LEAST_SCALES = {"fp32": 64, "bf16": 64, "fp16": 16}
"""S is this or its double: 1e-5 is absorbed by 4 S^2 in fp32, and in fp16 (4 S)^2 is finite."""
MAX_SHIFT = 40
"""abs(M): N (M + 4)^2 stays below 2^24, and S (c + M) has 8 bits, up to N = 8192."""


def codes(features: int, generator: np.random.Generator) -> Doubles:
    """Return c: random order, sum 0 and sum of squares 4 N. Needs features >= 16, even."""
    if features < 16 or features % 2:
        raise ValueError(f"{features} features: needs an even number of at least 16")
    half = features // 2
    values = generator.integers(0, 5, half)
    while (excess := int((values**2).sum()) - 2 * features) != 0:
        place = int(generator.integers(half))
        step = -int(np.sign(excess))
        changed = values[place] + step
        if 0 <= changed <= 4 and abs(excess + step * int(values[place] + changed)) < abs(excess):
            values[place] = changed
        elif abs(excess) <= 8:
            values = generator.integers(0, 5, half)
    pairs = np.concatenate([values, -values]).astype(np.float64)
    generator.shuffle(pairs)
    return pairs


def rows(shape: tuple[int, int], number_format: str, generator: np.random.Generator) -> Doubles:
    """Return x of rows of codes, with a scale and a shift for every row."""
    count, features = shape
    scales = LEAST_SCALES[number_format] * 2.0 ** generator.integers(0, 2, (count, 1))
    shifts = generator.integers(-MAX_SHIFT, MAX_SHIFT + 1, (count, 1))
    return scales * (np.stack([codes(features, generator) for _ in range(count)]) + shifts)


def gammas(features: int, generator: np.random.Generator) -> Doubles:
    """Return gammas of 3 bits between 1 and 1.75."""
    return 1 + generator.integers(0, 4, (1, features)) / 4


def betas(features: int, bits: int, generator: np.random.Generator) -> Doubles:
    """Return betas between 2^-4 and 2^-3 with random signs.

    The last of the format's significant bits is set, so that y is no tie: in fp32 it is 1/32 of
    an ulp away from one, and epsilon changes y by 1/200.
    """
    steps = 2 * generator.integers(0, 2 ** (bits - 2), (1, features)) + 1
    sizes = 2.0**-4 * (1 + steps / 2.0 ** (bits - 1))
    return np.where(generator.random((1, features)) < 0.5, -sizes, sizes)
