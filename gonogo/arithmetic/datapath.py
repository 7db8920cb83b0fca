"""How a Tensix core of a Wormhole rounds inside its operations, to the bit.

Dst takes terms on the grid of the largest one, the SFPU multiplies and adds in one step, and
tt-metal's functions are made of such steps. Sources: Tenstorrent's simulator as far as it is public
(Wolfpine, BSD, says what it took from it), and the sources of tt-metal that the wheel of ttnn has.

All values are float64 here: they hold every step. Not modeled: NaN, and what becomes too large.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gonogo.arithmetic.formats import Doubles, binade, round_to

Width = Literal["fp32", "bf16"]

TINY = 2.0**-126
LEAST = 2.0**-300
"""A power of two below all that occurs: what a value of 0 is divided by."""
LOG2_E = 1.4426950216293335


def into_dst(total: Doubles, terms: Doubles, powers: Doubles, width: Width) -> Doubles:
    """Return Dst plus terms along the last axis, as one instruction adds them.

    All are rounded on the grid of the largest power, the terms half up, Dst half away from zero;
    then their sum is. powers: those that the terms' exponents say, which may be larger than a
    term's own.
    """
    power = np.maximum(np.maximum(powers.max(axis=-1), binade(total)), LEAST)
    for bits in (23,) if width == "fp32" else (23, 10):
        grid = power * 2.0**-bits
        total = _half_away(total, grid)
        terms = np.floor(terms / grid[..., None] + 0.5) * grid[..., None]
    total = total + terms.sum(axis=-1)
    digits = np.maximum(binade(total), LEAST) * (2.0**-23 if width == "fp32" else 2.0**-7)
    total = _half_away(total, np.maximum(digits, grid) if width == "fp32" else digits)
    return np.where(np.abs(total) < TINY, 0.0, total)


def pooled(total: Doubles, terms: Doubles, powers: Doubles, width: Width) -> Doubles:
    """Return Dst plus 16 products with 1, in two groups of 8 on the grid of its largest power.

    terms: (..., 16), the parts of the operands that a phase multiplies.
    """
    shape = (*terms.shape[:-1], 2, 8)
    power = np.maximum(powers.reshape(shape).max(axis=-1), LEAST)
    grid = power[..., None] * 2.0**-10
    sums = _half_away(terms.reshape(shape), grid).sum(axis=-1)
    return into_dst(total, sums, power, width)


def _half_away(values: Doubles, grid: Doubles) -> Doubles:
    rounded: Doubles = np.copysign(np.floor(np.abs(values) / grid + 0.5) * grid, values)
    return rounded


def fused(x: Doubles, y: Doubles, z: Doubles | float) -> Doubles:
    """Return the SFPU's x y + z: the product has 27 or 28 bits when z is added.

    The last of them also says that there were more (sticky), as it does after an alignment.
    """
    power = np.maximum(binade(x) * binade(y), LEAST)
    grid = np.maximum(power, binade(z)) * 2.0**-26
    product = np.copysign(_sticky(np.abs(x * y) / power * 2.0**26), x * y) * power * 2.0**-26
    first, second = (np.copysign(_sticky(np.abs(part) / grid), part) for part in (product, z))
    steps = first + second
    digits = np.maximum(binade(steps), LEAST) * 2.0**-26
    size = np.abs(steps)
    shortened = np.floor(size / digits)
    # of the bits that leave at the end, only the last one counts
    shortened += (digits > 1) & (size % 2 == 1) & (shortened % 2 == 0)
    result = np.copysign(np.rint(shortened / 8) * 8 * digits * grid, steps)
    return np.where(np.abs(result) < TINY, 0.0, result)


def _sticky(sizes: Doubles) -> Doubles:
    whole: Doubles = np.floor(sizes)
    whole += (whole != sizes) & (whole > 0) & (whole % 2 == 0)
    return whole


def rsqrt(x: Doubles) -> Doubles:
    """Return tt-metal's 1 / sqrt(x), for x > 0 in fp32."""
    one = np.ones(x.shape)
    guess = np.int32(0x5F1110A0) - (x.astype(np.float32).view(np.int32) >> 1)
    y = guess.view(np.float32).astype(np.float64)
    c = fused(-y, fused(x, y, 0.0), 0.0)
    first, second = (float(np.float32(number)) for number in (2.2825186, 2.2533049))
    y = fused(y, fused(c, fused(one, c, second), first), 0.0)
    return fused(fused(-y, fused(x, y, 0.0), 1.0), y / 2, y)


RECIPROCAL = {
    "fp32": (0.32323250174522400, 1.45454597473144531, 2.12121248245239258),
    "bf16": (0.32133400440216064, 1.45141482353210449, 2.12008833885192871),
}
"""The coefficients of the first guess of 1/x in 1..2."""


def reciprocal(x: Doubles, width: Width) -> Doubles:
    """Return tt-metal's 1 / x; for a Dst of 16 bits it takes one step less, and is rounded."""
    power = np.maximum(binade(x), LEAST)
    minus = -np.abs(x) / power
    square, line, constant = RECIPROCAL[width]
    y = fused(fused(np.full(x.shape, square), minus, line), minus, constant)
    for _ in range(2 if width == "fp32" else 1):
        y = fused(y, fused(minus, y, 1.0), y)
    if width == "bf16":
        y = round_to(y, "bf16", "away")
    return np.copysign(y / power, x)


EXPONENTIAL = (8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
"""The coefficients of exp(x) - 1.37805939e-3 x^6 near 0, the highest first."""


def exponential(x: Doubles, width: Width) -> Doubles:
    """Return tt-metal's exp(x); for a Dst of 16 bits it has 3 terms, and is rounded."""
    if width == "bf16":
        exponent = np.clip(fused(x, np.full(x.shape, LOG2_E), 127.0), 0.0, 255.0)
        whole = np.floor(exponent)
        rest = np.floor((exponent - whole) * 2.0**23)
        last, middle = (float(np.float32(number)) for number in (4.7917501e-15, 7.8396355e-08))
        y = fused(fused(rest, np.full(x.shape, last), middle), rest, 1 + 2.0**-9)
        y = y / binade(y) * np.exp2(whole - 127)
        return np.where(whole < 1, 0.0, round_to(y, "bf16", "away"))
    powers = fused(np.full(x.shape, float(np.float32(1.442695))), x, 0.0)
    whole = np.clip(_half_away(powers, np.ones(x.shape)), -32767.0, 32767.0)
    rest = x
    for part in (-6.93145752e-1, -1.42860677e-6):
        rest = fused(whole, np.full(x.shape, float(np.float32(part))), rest)
    y = np.full(x.shape, float(np.float32(1.37805939e-3)))
    for number in EXPONENTIAL:
        y = fused(y, rest, float(np.float32(number)))
    y = y * np.exp2(np.clip(whole, -300.0, 300.0))
    return np.where(np.abs(y) < TINY, 0.0, y)
