"""Normal deviates from uniform ones, by arithmetic that gives the same bytes on every machine.

Wichura's AS 241 (PPND16, relative accuracy 1e-16): rational approximations of the normal quantile.
Its tails need a logarithm. That is computed here from the exponent bits and the series of atanh.
Only + - * / and sqrt, which IEEE 754 fixes to the last bit, are ever used.
"""

from __future__ import annotations

import numpy as np

from gonogo.arithmetic.formats import Doubles

# Coefficients of AS 241, highest power first: |q| <= .425, then r <= 5, then the far tail.
_CENTER_NUMERATOR = (
    2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
    13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
)  # fmt: skip
_CENTER_DENOMINATOR = (
    5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
    5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
)  # fmt: skip
_TAIL_NUMERATOR = (
    7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
    1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055,
    4.6303378461565452959, 1.42343711074968357734,
)  # fmt: skip
_TAIL_DENOMINATOR = (
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
    0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494,
    2.05319162663775882187, 1.0,
)  # fmt: skip
_FAR_NUMERATOR = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
    0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358,
    5.4637849111641143699, 6.6579046435011037772,
)  # fmt: skip
_FAR_DENOMINATOR = (
    2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5,
    7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531,
    0.59983220655588793769, 1.0,
)  # fmt: skip

_LN2 = 0.6931471805599453
_ATANH = tuple(1.0 / k for k in range(23, 0, -2))
"""Coefficients of atanh(s)/s in s squared, highest first: |s| <= .172 leaves a rest below 1e-17."""


def quantile(p: Doubles) -> Doubles:
    """Return the normal quantile of probabilities 0 < p < 1 (float64, any shape).

    The relative error is about 1e-15.
    """
    q = p - 0.5
    r = 0.180625 - q * q
    # The formula of the center is finite everywhere, so it is used for all values. Then the tails
    # (15% of uniform p) are overwritten.
    result = q * (_polynomial(_CENTER_NUMERATOR, r) / _polynomial(_CENTER_DENOMINATOR, r))
    tail = np.abs(q) > 0.425
    side = q[tail]
    root = np.sqrt(-log(np.where(side < 0, p[tail], 1.0 - p[tail])))
    near, far = root - 1.6, root - 5.0
    size = np.where(
        root <= 5.0,
        _polynomial(_TAIL_NUMERATOR, near) / _polynomial(_TAIL_DENOMINATOR, near),
        _polynomial(_FAR_NUMERATOR, far) / _polynomial(_FAR_DENOMINATOR, far),
    )
    result[tail] = np.where(side < 0, -size, size)
    return result


def log(v: Doubles) -> Doubles:
    """Return the natural logarithm of positive normal float64 values.

    The relative error is about 1e-15 (away from 1).
    """
    mantissa, exponent = np.frexp(v)  # exact: moves bits only
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = exponent - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    result: Doubles = exponent * _LN2 + 2.0 * s * _polynomial(_ATANH, s * s)
    return result


def _polynomial(coefficients: tuple[float, ...], x: Doubles) -> Doubles:
    """Evaluate by Horner's rule: a multiplication and an addition per step (never fused)."""
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += coefficient
    return result
