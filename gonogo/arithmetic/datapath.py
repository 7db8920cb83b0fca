"""Dst of a Tensix core of a Wormhole: how it takes terms, to the bit.

It adds them on the grid of the largest one. Source: Tenstorrent's simulator as far as it is public
(Wolfpine, BSD, says what it took from it).

All values are float64 here: they hold every step. Not modeled: NaN, and what becomes too large.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gonogo.arithmetic.formats import Doubles, binade

Width = Literal["fp32", "bf16"]

TINY = 2.0**-126
"""The smallest normal number of fp32."""
LEAST = 2.0**-300
"""A power of two below all that occurs: what a value of 0 is divided by."""


def into_dst(total: Doubles, terms: Doubles, powers: Doubles, width: Width) -> Doubles:
    """Return Dst plus terms along the last axis, as one instruction adds them.

    All are rounded on the grid of the largest power, the terms half up, Dst half away from zero;
    then their sum is. powers: those that the terms' exponents say, which may be larger than a
    term's own.
    """
    power = np.maximum(np.maximum(powers.max(axis=-1), binade(total)), LEAST)
    for bits in (23,) if width == "fp32" else (23, 10):
        grid = power * 2.0**-bits
        total = half_away(total, grid)
        terms = np.floor(terms / grid[..., None] + 0.5) * grid[..., None]
    total = total + terms.sum(axis=-1)
    digits = np.maximum(binade(total), LEAST) * (2.0**-23 if width == "fp32" else 2.0**-7)
    total = half_away(total, np.maximum(digits, grid) if width == "fp32" else digits)
    return np.where(np.abs(total) < TINY, 0.0, total)


def pooled(total: Doubles, terms: Doubles, powers: Doubles, width: Width) -> Doubles:
    """Return Dst plus 16 products with 1, in two groups of 8 on the grid of its largest power.

    terms: (..., 16), the parts of the operands that a phase multiplies.
    """
    shape = (*terms.shape[:-1], 2, 8)
    power = np.maximum(powers.reshape(shape).max(axis=-1), LEAST)
    grid = power[..., None] * 2.0**-10
    sums = half_away(terms.reshape(shape), grid).sum(axis=-1)
    return into_dst(total, sums, power, width)


def half_away(values: Doubles, grid: Doubles) -> Doubles:
    """Return values rounded to multiples of a grid, ties away from zero."""
    rounded: Doubles = np.copysign(np.floor(np.abs(values) / grid + 0.5) * grid, values)
    return rounded
