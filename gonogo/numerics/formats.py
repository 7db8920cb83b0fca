"""Number formats: their range, rounding to them, and the size of their units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mode = Literal["even", "away", "zero", "random"]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

NARROW = ("bf16", "fp16")
"""The formats in which a kernel may store what it computes in between."""
BLOCK = 16
"""Values that share an exponent in a bfp format.

They are one row of a 16x16 face: 16 consecutive values of the last axis.
"""


@dataclass(frozen=True)
class Format:
    """A number format.

    `mantissa_bits` are the stored ones; a bfp format's include its explicit leading one.
    """

    name: str
    mantissa_bits: int
    min_exponent: int
    """The exponent of the smallest normal number 2**min_exponent."""
    block: bool = False
    """True where 16 values share the exponent of the largest."""

    @property
    def fraction_bits(self) -> int:
        """Bits below the leading one."""
        return self.mantissa_bits - self.block

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest: half an ulp of 1.

        In a bfp format it is relative to the largest value of a block.
        """
        return 2.0 ** -(self.fraction_bits + 1)


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("fp32", 23, -126),
        Format("tf32", 10, -126),
        Format("bf16", 7, -126),
        Format("fp16", 10, -14),
        Format("bfp8_b", 7, -126, block=True),
    )
}


DROPPED, HALF_DROPPED, BF16_MASK = np.uint64(45), np.uint64(2**44 - 1), np.uint64(2**64 - 2**45)
"""The bits of a float64's fraction that bf16 lacks, a number just below half of them, and a mask of
the bits that it has."""
QUICK = (("bf16", "even"), ("bf16", "zero"), ("fp16", "even"), ("fp16", "zero"))
"""Formats and modes to which float64 is rounded without fp32 in between."""
OVERFLOW = 2.0**128
SMALLEST_NORMAL = 2.0**-126
"""The smallest normal number of fp32 and bf16."""


def format_named(name: str | Format) -> Format:
    """Return the Format of that name; KeyError for another."""
    return name if isinstance(name, Format) else FORMATS[name]


def round_to(a: ArrayLike, fmt: str | Format, mode: Mode = "even") -> Floats:
    """Return `a` (float32 or float64, any shape) rounded once to `fmt`.

    The result is float32, C-contiguous, and exactly representable in the format.

    Modes: to nearest with ties to even (hosts) or away from zero (the packer), or toward zero (the
    unpacker). "random" stands for a kernel that rounds up with the probability of what is cut off:
    here it is to nearest, the likeliest result. Overflow gives inf as in IEEE (bfp: the largest
    magnitude), toward zero the largest number. -0 and inf stay (bfp has no -0); NaN becomes the
    quiet NaN of its sign. bfp formats share exponents along the last axis, padded with zeros to 16;
    they treat subnormal inputs as zeros.
    """
    form = format_named(fmt)
    values = np.asarray(a)
    mode = "even" if mode == "random" else mode
    if values.dtype != np.float32:
        doubles = np.asarray(values, np.float64)
        if form.name == "fp32":
            return _quieted(_to_float32(doubles, mode))
        if (form.name, mode) in QUICK:
            narrow = _at_once(doubles, form.name, mode)
            if narrow is not None:
                return narrow
        values = _to_float32(doubles, "odd")
    if form.block:
        return _round_block(values, form, mode)
    if form.name == "fp32":
        return _quieted(np.array(values, np.float32, order="C"))
    if form.name == "fp16":
        return _round_half(values, mode)
    return _round_bits(values, 23 - form.mantissa_bits, mode)


def half_ulp(v: ArrayLike, fmt: str | Format) -> Doubles:
    """Return h(v): half the spacing of `fmt` just above |v|, float64, in the shape of `v`.

    At a power of two that is the spacing above it. In the subnormal range and at 0 it is that of
    the smallest numbers; at inf it is inf, at NaN NaN. bfp formats use the shared exponent of each
    16 values of the last axis, so all 16 have the same.
    """
    form = format_named(fmt)
    values = np.abs(_widened(v))
    if form.block:
        blocks, length = _blocks(values)
        values = _unblocked(
            np.broadcast_to(blocks.max(axis=-1, keepdims=True), blocks.shape), values.shape, length
        )
    # The exponent field alone is 2**floor(log2 v) for every normal float64. Smaller values are
    # below every min_exponent here.
    bits = np.ascontiguousarray(values).view(np.uint64) & np.uint64(0x7FF0000000000000)
    power = np.maximum(bits.view(np.float64), 2.0**form.min_exponent)
    with np.errstate(invalid="ignore"):
        result: Doubles = (power * 2.0 ** -(form.fraction_bits + 1)).reshape(values.shape)
    result[np.isnan(values)] = np.nan
    return result


def ulp(v: ArrayLike, fmt: str | Format) -> Doubles:
    """Return the spacing of `fmt` just above |v|: twice half_ulp."""
    return 2.0 * half_ulp(v, fmt)


def _widened(a: ArrayLike) -> Doubles:
    with np.errstate(invalid="ignore"):  # a signaling NaN becomes a quiet one
        return np.asarray(a, np.float64)


def _at_once(a: Doubles, name: str, mode: Mode) -> Floats | None:
    """Return float64 rounded to bf16 or fp16, one of QUICK; None where bf16 is subnormal or full.

    It does what the longer way does, several times as fast: a replay rounds nearly all it computes.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if name == "fp16":
            half = a.astype(np.float16)
            if mode == "zero":
                is_past = np.isfinite(a) & (np.abs(half) > np.abs(a))
                half = np.where(is_past, np.nextafter(half, np.float16(0)), half)
            return _quieted(np.array(half.astype(np.float32), order="C"))
        size = np.abs(a)
        if ((size < SMALLEST_NORMAL) & (size > 0.0)).any():
            return None
        if mode == "zero" and ((size >= OVERFLOW) & (size < np.inf)).any():
            return None
        bits = np.array(a, order="C").view(np.uint64)
        if mode == "even":
            bits += ((bits >> DROPPED) & np.uint64(1)) + HALF_DROPPED
        bits &= BF16_MASK
        # a NaN whose fraction overflowed is none any more
        return _with_nans(bits.view(np.float64).astype(np.float32), a, np.isnan(a))


def _to_float32(a: Doubles, mode: Mode | Literal["odd"]) -> Floats:
    """Convert float64 to float32 with one rounding.

    "odd": an inexact result gets an odd last bit. Rounding it again to fewer bits (at least two
    fewer) is then the same as rounding `a` at once.
    """
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.array(a.astype(np.float32), order="C")  # an array even when 0-d
    if mode == "even":
        return nearest
    finite = np.isfinite(a)
    with np.errstate(over="ignore"):
        toward_zero = np.where(
            finite & (np.abs(nearest.astype(np.float64)) > np.abs(a)),
            np.nextafter(nearest, np.float32(0)),
            nearest,
        )
    toward_zero = toward_zero.astype(np.float32)
    if mode == "zero":
        return toward_zero
    bits = toward_zero.view(np.uint32)
    rest = finite & (toward_zero.astype(np.float64) != a)
    if mode == "odd":
        odd: Floats = (bits | rest.astype(np.uint32)).view(np.float32)
        return odd
    # Away: the next float (or inf) when the part that was cut off is at least half of the spacing.
    with np.errstate(invalid="ignore"):  # inf - inf, where `rest` is False
        cut = np.abs(a) - np.abs(toward_zero.astype(np.float64))
    up = rest & (cut >= half_ulp(toward_zero, "fp32"))
    away: Floats = (bits + up.astype(np.uint32)).view(np.float32)
    return away


def _round_bits(values: Floats, dropped: int, mode: Mode) -> Floats:
    """Drop the low `dropped` bits of float32: the formats with fp32's exponent range."""
    bits = np.array(values, np.float32, order="C").view(np.uint32)
    nan = np.isnan(values)
    if mode == "even":
        bits += ((bits >> np.uint32(dropped)) & np.uint32(1)) + np.uint32((1 << (dropped - 1)) - 1)
    elif mode == "away":
        bits += np.uint32(1 << (dropped - 1))
    bits &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return _with_nans(bits.view(np.float32), values, nan)


def _quieted(values: Floats) -> Floats:
    return _with_nans(values, values, np.isnan(values))


def _with_nans(result: Floats, values: NDArray[np.floating], nan: NDArray[np.bool_]) -> Floats:
    if nan.any():
        result[nan] = np.copysign(np.float32(np.nan), values[nan])
    return result


def _round_half(values: Floats, mode: Mode) -> Floats:
    """Round to fp16 on its own grid, which is subnormal below 2**-14.

    65520 and above is inf (toward zero: 65504).
    """
    result = _on_grid(_widened(values), ulp(values, "fp16"), mode)
    largest = 65504.0
    over = np.isfinite(values) & (np.abs(result) > largest)
    result = np.where(over, np.copysign(largest if mode == "zero" else np.inf, result), result)
    return _quieted(np.array(result, np.float32, order="C"))


def _round_block(values: Floats, form: Format, mode: Mode) -> Floats:
    """Round to a bfp format.

    Sign and magnitude lie on the grid that the largest exponent of the block gives, clamped to the
    grid's largest value. Inf and NaN stay and count as the largest exponent, as 255 does in the
    shared byte.
    """
    smallest = np.float32(2.0**-126)
    doubles = _widened(np.where(np.abs(values) < smallest, np.float32(0), values))
    finite = np.where(np.isfinite(doubles), doubles, np.copysign(2.0**128, doubles))
    # half_ulp is 2**(shared exponent - fraction bits - 1) of the block; a block of zeros has that
    # of 2**-126.
    spacing = ulp(finite, form)
    magnitude = _on_grid(finite, spacing, mode)
    largest = (2.0**form.mantissa_bits - 1) * spacing
    # + 0.0: there is no -0, because a zero magnitude has no sign
    result = np.clip(magnitude, -largest, largest) + 0.0
    return _quieted(np.where(np.isfinite(values), result, values).astype(np.float32, order="C"))


def _on_grid(values: Doubles, spacing: Doubles, mode: Mode) -> Doubles:
    """Round to multiples of `spacing` (powers of two, so the quotients are exact)."""
    with np.errstate(invalid="ignore"):
        quotient = values / spacing
        if mode == "even":
            quotient = np.rint(quotient)
        elif mode == "zero":
            quotient = np.trunc(quotient)
        else:
            whole = np.trunc(quotient)  # not floor(|q| + .5), which rounds the sum
            quotient = whole + np.copysign(
                (np.abs(quotient - whole) >= 0.5).astype(np.float64), quotient
            )
        result: Doubles = np.where(
            np.isfinite(values), np.copysign(quotient * spacing, values), values
        )
    return result


def _blocks(values: Doubles) -> tuple[Doubles, int]:
    """Cut the last axis in blocks of 16, padded with zeros: shape (..., blocks, 16).

    The second result is the length before padding.
    """
    flat = np.atleast_1d(values)
    length = flat.shape[-1]
    padded = np.zeros((*flat.shape[:-1], -(-length // BLOCK) * BLOCK))
    padded[..., :length] = flat
    return padded.reshape(*flat.shape[:-1], -1, BLOCK), length


def _unblocked(blocks: Doubles, shape: tuple[int, ...], length: int) -> Doubles:
    return blocks.reshape(*blocks.shape[:-2], -1)[..., :length].reshape(shape)
