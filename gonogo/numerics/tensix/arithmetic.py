"""The arithmetic of a Wormhole Tensix core, one function per hardware primitive.

This is the plain NumPy definition. Sources: Tenstorrent's public ISA documentation (Wormhole B0,
Tensix coprocessor) and the simulators made from it. All functions take and return float32 arrays; a
narrower register is a float32 whose low mantissa bits are zero. Operands are the contents of
registers, which are never denormal: `read_source` and every result are flushed. `arithmetic_jit`
holds the same functions for scalars; they agree bit for bit (tested).

Not modeled: NaN that a rounding packer turns into Inf (here NaN stays NaN), stochastic rounding,
5-bit exponents.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to

Array = NDArray[np.float32]

TINY = np.float32(2.0**-126)
"""The smallest normal float32: FPU and SFPU read and write zero instead of anything smaller."""

GRID_BITS = 10
"""ELWADD and ELWSUB align the smaller operand on the larger one's grid of 2^-10."""


def _ieee() -> np.errstate:
    """Let overflow and invalid operations give inf and NaN, as on the device, without a warning."""
    return np.errstate(all="ignore")


def _bits(a: Array) -> NDArray[np.uint32]:
    return np.ascontiguousarray(a, dtype=np.float32).view(np.uint32)


def _keep(a: Array, mask: int) -> Array:
    return (_bits(a) & np.uint32(mask)).view(np.float32).reshape(np.shape(a))


def flush(a: Array) -> Array:
    """Flush denormals to the zero of their sign."""
    values = np.asarray(a, dtype=np.float32)
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0.0), values), values)


def read_source(a: Array, as_bf16: bool = False) -> Array:
    """Unpack fp32 into SrcA or SrcB: 13 bits dropped (TF32), or 16 (bf16).

    It always truncates, and flushes denormals to zero.
    """
    return flush(round_to(a, "bf16" if as_bf16 else "tf32", "zero"))


def product(a: Array, b: Array, fidelity: str = "hifi4") -> Array:
    """Return ELWMUL on a cleared Dst: a in SrcA, b in SrcB (both at most TF32).

    `fidelity` says how many phases run, of Ahi*Bhi, Alo*Bhi, Ahi*Blo, Alo*Blo. SrcA is consumed as
    5 bits (the implicit one among them) and then 5; the TF32 lsb is never used. SrcB is consumed as
    7 bits, then 4. The sum of the phases has at most 21 bits, so an fp32 Dst rounds nothing: each
    phase only adds the bits it brings.
    """
    with _ieee():
        b_high = _keep(b, 0xFFFE0000)
        parts = [_keep(a, 0xFFF80000 if fidelity == "lofi" else 0xFFFFC000) * b_high]
        if fidelity in ("hifi3", "hifi4"):
            b_low = _keep(b, 0xFFFFE000) - b_high
            parts.append(_keep(a, 0xFFFFC000 if fidelity == "hifi4" else 0xFFF80000) * b_low)
        result = np.asarray(sum(parts), dtype=np.float32)
        return flush(np.where(np.isnan(result), a * b, result)) + np.float32(0.0)


def align_add(a: Array, b: Array) -> Array:
    """Return ELWADD of two operands of at most TF32, on a cleared fp32 Dst.

    The smaller magnitude is rounded **half up** (in magnitude) onto the larger one's 2^-10 grid.
    Then the two are added exactly. On ties that rounding is a bias: it never goes toward zero.
    """
    a, b = read_source(a), read_source(b)
    swap = np.abs(a) < np.abs(b)
    large, small = np.where(swap, b, a), np.where(swap, a, b)
    exponent = np.frexp(large)[1].astype(np.int32) - 1 - GRID_BITS
    with _ieee():
        steps = np.floor(np.ldexp(np.abs(small).astype(np.float64), -exponent) + 0.5)
        rounded = np.copysign(np.ldexp(steps, exponent), small.astype(np.float64))
        aligned = (large.astype(np.float64) + rounded).astype(np.float32)
        return flush(
            np.where(np.isfinite(large) & np.isfinite(small), aligned, a + b)
        ) + np.float32(0.0)


def align_subtract(a: Array, b: Array) -> Array:
    """Return ELWSUB: `align_add` with the sign of SrcB flipped."""
    return align_add(a, -np.asarray(b, dtype=np.float32))


def vector_add(a: Array, b: Array | np.float32) -> Array:
    """Return the SFPU sum: fp32, one rounding to nearest even, denormals to zero."""
    with _ieee():
        return flush(np.add(a, b, dtype=np.float32))


def vector_subtract(a: Array, b: Array | np.float32) -> Array:
    """Return the SFPU difference: fp32, one rounding to nearest even, denormals to zero."""
    with _ieee():
        return flush(np.subtract(a, b, dtype=np.float32))


def vector_multiply(a: Array, b: Array | np.float32) -> Array:
    """Return the SFPU product: fp32, one rounding to nearest even, denormals to zero."""
    with _ieee():
        return flush(np.multiply(a, b, dtype=np.float32))


def reciprocal_root(a: Array, as_bf16: bool = False) -> Array:
    """Return rsqrt, correctly rounded to bf16 or to fp32 (the device is within one ulp of that)."""
    with _ieee():
        exact = 1.0 / np.sqrt(np.asarray(a, dtype=np.float64))
        return round_to(exact, "bf16", "even") if as_bf16 else exact.astype(np.float32)


def store_vector_bf16(a: Array) -> Array:
    """Store from the SFPU into a 16-bit Dst: truncated to bf16."""
    return flush(round_to(a, "bf16", "zero"))


def round_dst_bf16(a: Array) -> Array:
    """Round as the FPU does into a 16-bit Dst: nearest bf16, ties away from zero."""
    return pack(a, "bf16")


def accumulate(partial: Array, term: Array, as_bf16: bool = False) -> Array:
    """Return Dst + term.

    fp32 Dst: one rounding to 24 bits. 16-bit Dst: the term is rounded to bf16, and so is the
    result.
    """
    if as_bf16:
        with _ieee():
            return round_dst_bf16(np.add(partial, round_dst_bf16(term), dtype=np.float32))
    return vector_add(partial, term)


def pack(a: Array, fmt: str) -> Array:
    """Pack Dst (fp32) to L1: nearest with ties **away** from zero, denormals and -0 to +0.

    bfp8_b shares one exponent in 16 neighbors of the last axis. fp32 is copied.
    """
    if fmt == "fp32":
        return np.asarray(a, dtype=np.float32)
    if fmt == "bfp8_b":
        return round_to(pack(a, "bf16"), fmt, "away")
    return flush(round_to(flush(a), fmt, "away")) + np.float32(0.0)


def scaler(value: float) -> np.float32:
    """Return a constant as the reader kernel makes it (1/N, epsilon): bf16, truncated."""
    return np.float32(round_to(np.float32(value), "bf16", "zero"))
