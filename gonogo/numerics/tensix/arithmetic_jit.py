"""The arithmetic of a Tensix core for the insides of compiled loops.

The functions are the scalar versions of `arithmetic`, bit for bit. Each takes and returns float32
scalars. Operands are the contents of registers, never denormal (`read_source` flushes).
"""

from __future__ import annotations

import numpy as np

from gonogo.numerics.formats_jit import bf16_away, bf16_even, bf16_zero, flush, tf32_zero
from gonogo.numerics.jit import jit

# Every literal is a uint32: numba would widen uint32 + int to int64.
_ZERO = np.float32(0.0)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_MANTISSA_BITS = np.uint32(23)
_TF32_SHIFT = np.uint32(13)
_TF32_FRACTION = np.uint32(0x3FF)
_TF32_ONE = np.uint32(0x400)
_TF32_MASK = np.uint32(0xFFFFE000)
_B_HIGH = np.uint32(0xFFFE0000)
_SIGN_AND_EXPONENT = np.uint32(0xFF800000)
_GONE = np.uint32(12)
_UNIT = np.uint32(1)
_WIDE_ONE = np.float64(1.0)
_GRID = np.float32(2.0**-10)

FIDELITY_MASKS = {
    "lofi": (np.uint32(0xFFF80000), np.uint32(0)),
    "hifi2": (np.uint32(0xFFFFC000), np.uint32(0)),
    "hifi3": (np.uint32(0xFFFFC000), np.uint32(0xFFF80000)),
    "hifi4": (np.uint32(0xFFFFC000), np.uint32(0xFFFFC000)),
}
"""Masks of SrcA over all phases of a fidelity.

The first has the bits that are multiplied by SrcB's high bits, the second those by its low bits.
"""


@jit
def read_source(value: np.float32, as_bf16: bool) -> np.float32:
    """Unpack to SrcA or SrcB: truncated to TF32 or bf16."""
    return flush(bf16_zero(value) if as_bf16 else tf32_zero(value))


@jit
def product(a: np.float32, b: np.float32, with_high: np.uint32, with_low: np.uint32) -> np.float32:
    """Return ELWMUL on a cleared Dst; `with_high`, `with_low` are from FIDELITY_MASKS."""
    a_bits = np.float32(a).view(np.uint32)
    b_bits = np.float32(b).view(np.uint32)
    b_high = np.uint32(b_bits & _B_HIGH).view(np.float32)
    b_low = np.float32(np.uint32(b_bits & _TF32_MASK).view(np.float32) - b_high)
    high = np.float32(np.uint32(a_bits & with_high).view(np.float32) * b_high)
    low = np.float32(np.uint32(a_bits & with_low).view(np.float32) * b_low)
    result = np.float32(high + low)
    if result != result:
        result = np.float32(a * b)
    return np.float32(flush(result) + _ZERO)


@jit
def align_add(a: np.float32, b: np.float32) -> np.float32:
    """Return ELWADD: the smaller magnitude is rounded half up onto the larger one's 2^-10 grid.

    It computes in 11-bit integers.
    """
    a_bits = np.float32(a).view(np.uint32)
    b_bits = np.float32(b).view(np.uint32)
    a_size = np.uint32(a_bits & _MAGNITUDE)
    b_size = np.uint32(b_bits & _MAGNITUDE)
    large = b_size if a_size < b_size else a_size
    small = a_size if a_size < b_size else b_size
    large_bits = b_bits if a_size < b_size else a_bits
    exponent = np.uint32(large >> _MANTISSA_BITS)
    shift = np.uint32(exponent - np.uint32(small >> _MANTISSA_BITS))
    if shift > _GONE:
        shift = _GONE
    large_steps = np.uint32(np.uint32(np.uint32(large >> _TF32_SHIFT) & _TF32_FRACTION) | _TF32_ONE)
    small_steps = np.uint32(np.uint32(np.uint32(small >> _TF32_SHIFT) & _TF32_FRACTION) | _TF32_ONE)
    if small == np.uint32(0):
        small_steps = np.uint32(0)
    half = np.uint32(np.uint32(_UNIT << shift) >> _UNIT)
    small_steps = np.uint32(np.uint32(small_steps + half) >> shift)
    opposite = np.uint32(a_bits ^ b_bits) > _MAGNITUDE
    steps = (
        np.uint32(large_steps - small_steps) if opposite else np.uint32(large_steps + small_steps)
    )
    scale = np.uint32(large_bits & _SIGN_AND_EXPONENT).view(np.float32)
    result = np.float32(np.float32(np.float32(np.int32(steps)) * _GRID) * scale)
    if large >= _INFINITY:
        return np.float32(np.float32(a) + np.float32(b))
    if large == np.uint32(0):
        return _ZERO
    return np.float32(flush(result) + _ZERO)


@jit
def vector_add(a: np.float32, b: np.float32) -> np.float32:
    """Return the SFPU sum."""
    return flush(np.float32(np.float32(a) + np.float32(b)))


@jit
def vector_subtract(a: np.float32, b: np.float32) -> np.float32:
    """Return the SFPU difference."""
    return flush(np.float32(np.float32(a) - np.float32(b)))


@jit
def vector_multiply(a: np.float32, b: np.float32) -> np.float32:
    """Return the SFPU product."""
    return flush(np.float32(np.float32(a) * np.float32(b)))


@jit
def pack_bf16(value: np.float32) -> np.float32:
    """Pack, or round into a 16-bit Dst as the FPU does: nearest bf16, ties away, -0 to +0."""
    return np.float32(bf16_away(value) + _ZERO)


@jit
def accumulate(partial: np.float32, term: np.float32, narrow: bool) -> np.float32:
    """Return Dst + term, in an fp32 or a 16-bit Dst."""
    if narrow:
        return pack_bf16(np.float32(partial + pack_bf16(term)))
    return vector_add(partial, term)


@jit
def reciprocal_root(value: np.float32, as_bf16: bool) -> np.float32:
    """Return rsqrt, correctly rounded to fp32, or once to bf16."""
    exact = np.float64(_WIDE_ONE / np.sqrt(np.float64(value)))
    root = np.float32(exact)
    if as_bf16:
        # An odd last bit records that the rounding to fp32 lost something, so that bf16 isn't
        # rounded twice.
        if np.float64(root) > exact:
            root = np.uint32(np.float32(root).view(np.uint32) - _UNIT).view(np.float32)
        if np.float64(root) < exact:
            root = np.uint32(np.float32(root).view(np.uint32) | _UNIT).view(np.float32)
        root = bf16_even(root)
    return root
