"""Bits of float64 values, and the variance of an fp32 rounding, for compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit

_EXPONENT = np.int64(0x7FF0000000000000)
_THIRD_OF_SQUARED_UNIT = 2.0**-48 / 3.0


@jit
def bits(value: Any) -> Any:
    """Return a float64's bits; those of positive values are ordered as the values are."""
    return np.float64(value).view(np.int64)


@jit
def number(pattern: Any) -> Any:
    """Return the float64 of these bits."""
    return np.int64(pattern).view(np.float64)


@jit
def binade(value: Any) -> Any:
    """Return 2^floor(log2 |v|); 0 at 0."""
    return np.int64(np.float64(value).view(np.int64) & _EXPONENT).view(np.float64)


@jit
def rounding(value: Any) -> Any:
    """Return the variance of rounding a value to fp32: (2^-24 binade)^2 / 3."""
    power = binade(value)
    return power * power * _THIRD_OF_SQUARED_UNIT


@jit
def inexact(value: Any) -> Any:
    """Return the variance of rounding an exact operation's result; 0 where fp32 holds it."""
    return 0.0 if np.float64(np.float32(value)) == value else rounding(value)


@jit
def half_cell(output: Any, toward: Any, unit: float, smallest: float) -> Any:
    """Return the half width of an output's cell on the side of `toward` (see cells.half_cell).

    unit, smallest: unit roundoff and smallest normal number of the output's format. Just below a
    power of two the bits' predecessor has the smaller exponent.
    """
    pattern = bits(abs(output)) - (abs(toward) < abs(output))
    return max(number(pattern & _EXPONENT), smallest) * unit
