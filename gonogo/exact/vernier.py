"""gamma and beta whose outputs lie at chosen distances from a tie of the output's format.

For |x^| = 1 the product |gamma x^| has few bits, and |beta| is half its unit in the last place less
a distance d. So y is rounded once in every arithmetic, and a factor 1 + delta on x^ changes the
output where |gamma x^ delta| > d. The distances are d = k 2^-16 in units of gamma's power of two:
from 7.7e-6 of y. They stay outside of the budget of right kernels, see `margin`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws
from gonogo.numerics.formats import FORMATS, half_ulp

Doubles = NDArray[np.float64]

UNIT = 2.0**-24
"""The unit roundoff of fp32."""

TIE_MARGIN = 4e-6
"""The least distance of an output from a tie, relative to |gamma x^| + |beta|. Right fp32
arithmetic moves a value by some 16 units of 2^-24, which is 1e-6."""

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""The k of the distances; a third of the columns has the smallest."""

DISTANCE = 2.0**-16

LEAST_SHARE = 0.3
"""The least |beta|, as a share of half a unit in the last place, and so the largest distance."""

_NUMERATORS = (50, 63)
"""gamma is n/32 times a power of two: 6 bits, so that 3 gamma / 2 has 8; near 2, so that a factor
of 1e-5 moves gamma by more than the smallest distance."""

_PRODUCTS = (0.5, 1.0, 1.5, 2.0)
"""|x^| of a row, without 0."""


def precision(fmt: str) -> int:
    """Return the bits of a format's significand for which the vernier is made.

    An fp32 output needs no vernier: it holds the whole sum. It gets that of bf16.
    """
    return 8 if fmt == "fp32" else FORMATS[fmt].fraction_bits + 1


def margin(gamma: Doubles, beta: Doubles, product: float, largest_mean: int) -> Doubles:
    """Return the least distance from a tie that is allowed at |x^| = product."""
    drift = 16 * UNIT * (largest_mean + 1) / 2 * gamma + 8 * UNIT * (gamma * product + beta)
    return np.maximum(TIE_MARGIN * (gamma * product + beta), 1.25 * drift)


def tie_distance(value: Doubles, bits: int) -> Doubles:
    """Return the distance of values from the nearest tie of a format with `bits` bits."""
    spacing = 2.0 * half_ulp(value, "fp32") * 2.0 ** (24 - bits)
    steps = np.abs(value) / spacing
    result: Doubles = np.abs(steps - np.floor(steps) - 0.5) * spacing
    return result


@cache
def candidates(bits: int, largest_mean: int) -> tuple[Doubles, int]:
    """Return the permitted pairs (gamma, beta), (n, 2), and how many have the smallest distance.

    All are positive. The pairs with the smallest distance come first. A pair is left out where
    another |x^| would come too close to a tie.
    """
    pairs: list[tuple[float, float]] = []
    finest = 0
    for step in STEPS:
        for product in (1.0, 1.0, 1.0, 2.0, 0.5):  # |x^| = 1 is the likeliest
            beta = product * (2.0**-bits - step * DISTANCE)
            if beta <= LEAST_SHARE * product * 2.0**-bits:
                continue
            for numerator in range(_NUMERATORS[0], _NUMERATORS[1] + 1):
                gamma = numerator / 32
                if _permitted(np.array(gamma), np.array(beta), bits, largest_mean):
                    pairs.append((gamma, beta))
        finest = finest or len(pairs)
    return np.array(pairs), finest


def _permitted(gamma: Doubles, beta: Doubles, bits: int, largest_mean: int) -> bool:
    return all(
        bool(
            tie_distance(gamma * product + sign * beta, bits)
            >= margin(gamma, beta, product, largest_mean)
        )
        for product in _PRODUCTS
        for sign in (1, -1)
    )


def columns(seed: int, count: int, fmt: str, largest_mean: int) -> tuple[Doubles, Doubles]:
    """Return gamma and beta, both (count,), with random signs and powers of two from 1/2 to 2.

    Neighbors, and the same columns of neighboring tiles, have different gammas.
    """
    pairs, finest = candidates(precision(fmt), largest_mean)
    index = draws.choices(seed, "vernier", (count,), len(pairs))
    fine = draws.choices(seed, "finest", (count,), 3) == 0
    index = np.where(fine, index % finest, index)
    signs = 1 - 2 * draws.choices(seed, "gamma signs", (count,), 2)
    beta_signs = 1 - 2 * draws.choices(seed, "beta signs", (count,), 2)
    power = 2.0 ** (draws.choices(seed, "powers", (count,), 3) - 1)
    return signs * power * pairs[index, 0], beta_signs * power * pairs[index, 1]
