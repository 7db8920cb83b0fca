"""Inputs on which right kernels agree to the bit, whatever their arithmetic is.

Row i of x is S_i (c + M_i): S_i a power of two, M_i an integer, and c from {0, +-1, ..., +-4} with
sum c = 0 and sum c^2 = 4 N. So mean = S M, rstd = 1/(2 S) and x^ = c/2 are exact in every format
and order. gamma has 3 bits and beta all bits of its format, far below gamma: y = gamma x^ + beta is
rounded once.

The gradients of RMSNorm, dx = rstd (P - x^ s2) with P = dy gamma, need rows of two kinds, in turn:
P = s2 x^ + q with q that cancels in pairs of equal x^, so that s2 is exact and most of dx is 0; and
x^ = 1 or -1 with a fine s2, so that P - x^ s2 is rounded once, close to a tie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

LEAST_SCALES = {"fp32": 64, "bf16": 64, "fp16": 16}
"""S is this or its double: 1e-5 is absorbed by 4 S^2 in fp32, and in fp16 (4 S)^2 is finite."""
DRAWN = 512
"""Places that `codes` draws at once: a call for each would take longer than all else."""
MAX_SHIFT = 40
"""abs(M): N (M + 4)^2 stays below 2^24, and S (c + M) has 8 bits, up to N = 8192."""


def codes(features: int, generator: np.random.Generator) -> Doubles:
    """Return c: random order, sum 0 and sum of squares 4 N. Needs features >= 16, even."""
    if features < 16 or features % 2:
        raise ValueError(f"{features} features: needs an even number of at least 16")
    half = features // 2
    values, left = _halves(features, generator)
    while left != 0:
        state = generator.bit_generator.state
        places = generator.integers(half, size=DRAWN).tolist()
        excess, used = _adjusted(values, left, places)
        if used < DRAWN:  # as if no other place had been drawn
            generator.bit_generator.state = state
            generator.integers(half, size=used)
        values, left = _halves(features, generator) if excess is None else (values, excess)
    pairs = np.array([*values, *(-value for value in values)], np.float64)
    generator.shuffle(pairs)
    return pairs


def _adjusted(values: list[int], excess: int, places: list[int]) -> tuple[int | None, int]:
    """Move values at some places by 1 until their squares have no excess.

    Return the excess that is left, None where it is small but no step makes it smaller, and how
    many of the places were used.
    """
    for used, place in enumerate(places, 1):
        step = -1 if excess > 0 else 1
        changed = values[place] + step
        after = excess + step * (2 * changed - step)
        if 0 <= changed <= 4 and abs(after) < abs(excess):
            values[place], excess = changed, after
            if excess == 0:
                return 0, used
        elif abs(excess) <= 8:
            return None, used
    return excess, len(places)


def _halves(features: int, generator: np.random.Generator) -> tuple[list[int], int]:
    """Return half of the codes without their signs, and by how much their squares exceed 2 N."""
    values = generator.integers(0, 5, features // 2)
    return values.tolist(), int((values**2).sum()) - 2 * features


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


def gradients(
    shape: tuple[int, int], number_format: str, bits: int, generator: np.random.Generator
) -> dict[str, Doubles]:
    """Return x, gamma (powers of two) and dy of RMSNorm's backward kernel.

    bits: the significant bits of the vernier, those of a 16-bit output.
    """
    count, features = shape
    scales = LEAST_SCALES[number_format] * 2.0 ** generator.integers(0, 2, (count, 1))
    c, product = np.empty(shape), np.empty(shape)
    for row in range(count):
        signs = np.where(generator.random(features) < 0.25, -1, 1)
        if row % 2:
            c[row] = 2 * signs
            sums = 2.0**-bits * (1 - 2.0**-6) * c[row] / 2
            product[row] = _signals(sums, c[row], generator)
        else:
            c[row] = signs * np.abs(codes(features, generator))
            sums = generator.choice([-4, -2, 2, 4]) * c[row] / 2
            product[row] = _cancelling(sums, c[row], generator)
    sizes = 2.0 ** generator.integers(-1, 2, (1, features))
    gamma = np.where(generator.random((1, features)) < 0.5, -sizes, sizes)
    return {"x": scales * c, "gamma": gamma, "dy": product / gamma}


def _groups(c: Doubles, size: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Return columns in groups of equal c, (groups, size)."""
    order = generator.permutation(c.size)
    groups = []
    for value in np.unique(c):
        same = order[c[order] == value]
        groups.append(same[: same.size // size * size].reshape(-1, size))
    return np.concatenate(groups)


def _cancelling(sums: Doubles, c: Doubles, generator: np.random.Generator) -> Doubles:
    """Return the sums plus k, -k in a third of the pairs of equal c."""
    product = sums.copy()
    pairs = _groups(c, 2, generator)
    pairs = pairs[generator.random(len(pairs)) < 1 / 3]
    steps = generator.integers(1, 8, len(pairs))
    product[pairs[:, 0]] += steps
    product[pairs[:, 1]] -= steps
    return product


def _signals(sums: Doubles, c: Doubles, generator: np.random.Generator) -> Doubles:
    """Return the sums with G, -G and twice the sum two times in every four columns of equal c."""
    product = sums.copy()
    fours = _groups(c, 4, generator)
    signals = generator.integers(33, 64, len(fours)) / 32
    product[fours[:, 0]], product[fours[:, 1]] = signals, -signals
    product[fours[:, 2:]] *= 2
    return product
