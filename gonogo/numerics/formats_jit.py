"""Scalar roundings for the insides of compiled loops.

They equal formats.round_to bit for bit. Each takes and returns one float32. Without numba they are
plain Python on NumPy scalars.
"""

from __future__ import annotations

import numpy as np

from gonogo.numerics.jit import jit

# Every literal is a uint32: numba would widen uint32 + int to int64, and NumPy must wrap, not
# raise.
_ONE = np.uint32(1)
_SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_NAN = np.uint32(0x7FC00000)
_BF16_SHIFT = np.uint32(16)
_BF16_HALF = np.uint32(0x8000)
_BF16_BELOW_HALF = np.uint32(0x7FFF)
_BF16_MASK = np.uint32(0xFFFF0000)
_TF32_MASK = np.uint32(0xFFFFE000)
_SMALLEST_NORMAL = np.uint32(0x00800000)


@jit
def bf16_even(value: np.float32) -> np.float32:
    """Round to bf16, nearest, ties to even: the host."""
    bits = np.float32(value).view(np.uint32)
    if (bits & _MAGNITUDE) > _INFINITY:
        return np.uint32((bits & _SIGN) | _NAN).view(np.float32)
    rounding = np.uint32(((bits >> _BF16_SHIFT) & _ONE) + _BF16_BELOW_HALF)
    return np.uint32(np.uint32(bits + rounding) & _BF16_MASK).view(np.float32)


@jit
def bf16_away(value: np.float32) -> np.float32:
    """Round to bf16, nearest, ties away from zero: the packer."""
    bits = np.float32(value).view(np.uint32)
    if (bits & _MAGNITUDE) > _INFINITY:
        return np.uint32((bits & _SIGN) | _NAN).view(np.float32)
    return np.uint32(np.uint32(bits + _BF16_HALF) & _BF16_MASK).view(np.float32)


@jit
def bf16_zero(value: np.float32) -> np.float32:
    """Round to bf16, toward zero: the unpacker, and an SFPU store to a 16-bit Dst."""
    bits = np.float32(value).view(np.uint32)
    if (bits & _MAGNITUDE) > _INFINITY:
        return np.uint32((bits & _SIGN) | _NAN).view(np.float32)
    return np.uint32(bits & _BF16_MASK).view(np.float32)


@jit
def tf32_zero(value: np.float32) -> np.float32:
    """Round to TF32, toward zero: the unpacker drops 13 bits."""
    bits = np.float32(value).view(np.uint32)
    if (bits & _MAGNITUDE) > _INFINITY:
        return np.uint32((bits & _SIGN) | _NAN).view(np.float32)
    return np.uint32(bits & _TF32_MASK).view(np.float32)


@jit
def flush(value: np.float32) -> np.float32:
    """Flush subnormals to the zero of their sign, as an SFPU op does to its operands and result."""
    bits = np.float32(value).view(np.uint32)
    if (bits & _MAGNITUDE) < _SMALLEST_NORMAL:
        return np.uint32(bits & _SIGN).view(np.float32)
    return np.float32(value)
