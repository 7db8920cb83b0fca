"""The SFPU of a Tensix core of a Wormhole: its multiply-add, and tt-metal's functions made of it.

To the bit, with the sources of tt-metal that the wheel of ttnn has. A function is another one where
Dst has 16 bits: shorter, and rounded at its end. Within another function it is that without the
rounding ("inner").

All values are float64 here: they hold every step. Not modeled: NaN, and what becomes too large.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gonogo.arithmetic.datapath import LEAST, TINY, half_away
from gonogo.arithmetic.formats import Doubles, binade, round_to

Form = Literal["fp32", "bf16", "inner"]
"""The width of Dst; "inner": as for 16 bits, within another function."""

LOG2_E = 1.4426950216293335
ROOT_HALF = float(np.float32(0.7071067811865475))
ZERO_BELOW = -5.542594432830811

# coefficients of polynomials, of the highest power first
SEED = (0.32323250174522400, 1.45454597473144531, 2.12121248245239258)
RECIPROCAL = {
    "fp32": SEED,
    "bf16": (0.32133400440216064, 1.45141482353210449, 2.12008833885192871),
    "inner": SEED,
}
"""The coefficients of the first guess of 1/x in 1..2."""
BASE = {"bf16": 1 + 2.0**-9, "inner": 1.0017248}
"""The last coefficient of 2^x in 0..1."""
EXPONENTIAL = (
    1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0,
)  # fmt: skip
"""The coefficients of exp(x) near 0."""
ERF_NUMERATOR = (
    -2.8632063387e-10, 2.7384647439e-08, 1.7678321456e-05, 6.1307044234e-04, 5.6230435148e-03,
    6.2133435160e-02, 2.1477432549e-01, 1.1283791065,
)  # fmt: skip
ERF_DENOMINATOR = (
    -6.7350725691e-12, -3.5153888689e-09, 1.3156344494e-06, 1.3179056987e-04, 1.9545555115e-03,
    1.9642570987e-02, 1.2961706519e-01, 5.2367275953e-01, 1.0,
)  # fmt: skip
"""erf(x) is x times their quotient in x^2."""
CORE = (
    7.9821413868e-08, -3.8082057209e-06, 8.1812159812e-05, -1.0717806322e-03, 9.7720050615e-03,
    -6.6361041488e-02, 3.9894227818e-01,
)  # fmt: skip
"""The coefficients of the normal distribution's (cdf - 1/2) / x, in x^2."""
TAIL = (7.5950479368e-04, 1.3809983619e-02, 9.5413386822e-02, 3.0369991064e-01)
"""The coefficients of cdf exp(x^2 / 2) left of -3.125."""


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


def reciprocal(x: Doubles, form: Form) -> Doubles:
    """Return tt-metal's 1 / x: a parabola, then Newton's steps, two of them in fp32."""
    power = np.maximum(binade(x), LEAST)
    minus = -np.abs(x) / power
    y = _polynomial(minus, *RECIPROCAL[form])
    for _ in range(2 if form == "fp32" else 1):
        y = fused(y, fused(minus, y, 1.0), y)
    return np.copysign(_rounded(y, form) / power, x)


def exponential(x: Doubles, form: Form) -> Doubles:
    """Return tt-metal's exp(x)."""
    x = np.maximum(x, -1000.0)
    if form != "fp32":
        exponent = np.clip(fused(x, np.full(x.shape, LOG2_E), 127.0), 0.0, 255.0)
        return _rounded(_shifted_power(exponent, BASE[form]), form)
    powers = fused(np.full(x.shape, _single(1.442695)), x, 0.0)
    whole = np.clip(half_away(powers, np.ones(x.shape)), -32767.0, 32767.0)
    rest = x
    for part in (-6.93145752e-1, -1.42860677e-6):
        rest = fused(whole, np.full(x.shape, _single(part)), rest)
    y = _polynomial(rest, *EXPONENTIAL) * np.exp2(np.clip(whole, -300.0, 300.0))
    return np.where(np.abs(y) < TINY, 0.0, y)


def _shifted_power(exponent: Doubles, base: float) -> Doubles:
    """Return 2^(exponent - 127) by a parabola in the exponent's 23 bits behind the point."""
    whole = np.floor(exponent)
    y = _polynomial(np.floor((exponent - whole) * 2.0**23), 4.7917501e-15, 7.8396355e-08, base)
    return np.where(whole < 1, 0.0, y / binade(y) * np.exp2(whole - 127))


def twice_normal_cdf(x: Doubles, form: Form) -> Doubles:
    """Return tt-metal's erfc(-x / sqrt(2)), which its GELU multiplies by x / 2.

    It is 0 below -5.54, as torch's is. For 16 bits it is a polynomial in x^2, left of -3.125
    exp(-x^2 / 2) times another one, rounded to multiples of 2^-24, and 2 from 2.78 on.
    """
    if form == "fp32":
        scaled = np.minimum(fused(x, np.full(x.shape, ROOT_HALF), 0.0), 10.0)
        square = fused(scaled, scaled, 0.0)
        numerator = fused(_polynomial(square, *ERF_NUMERATOR), scaled, 0.0)
        quotient = reciprocal(_polynomial(square, *ERF_DENOMINATOR), "fp32")
        error = np.clip(fused(numerator, quotient, 0.0), -1.0, 1.0)
        y = np.where(error == -1, 2.0**-25, fused(np.full(x.shape, 0.5), error, 0.5))
    else:
        square = fused(x, x, 0.0)
        exponent = fused(square, np.full(x.shape, _single(-0.72134752044)), 127.0)
        one = np.ones(x.shape)
        tail = fused(_shifted_power(exponent, BASE["inner"]), _polynomial(x, *TAIL), 0.0)
        tail = fused(one, fused(one, tail, 0.375), -0.375)
        core = fused(x, _polynomial(square, *CORE), 0.5)
        y = np.where(x >= 2.78125, 1.0, np.where(x >= -3.125, core, tail))
    return np.where(x > ZERO_BELOW, 2 * y, 0.0)


def _single(number: float) -> float:
    return float(np.float32(number))


def _polynomial(x: Doubles, *coefficients: float) -> Doubles:
    """Return a polynomial by Horner's rule. coefficients: of the highest power first."""
    y = np.full(x.shape, _single(coefficients[0]))
    for number in coefficients[1:]:
        y = fused(y, x, _single(number))
    return y


def _rounded(y: Doubles, form: Form) -> Doubles:
    return round_to(y, "bf16", "away") if form == "bf16" else y
