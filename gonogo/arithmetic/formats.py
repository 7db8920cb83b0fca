"""Number formats: rounding, steps, and the cell of values that a rounded output stands for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]
Mode = Literal["even", "away", "zero"]


@dataclass(frozen=True)
class Format:
    """A number format, or one of its scaled variants.

    Attributes:
        precision: bits of the significand, the leading one included.
        min_exponent: the exponent of the smallest normal number; below it, steps stay as wide.
        largest: the largest finite number.
        overflow: the result of rounding a number beyond it to nearest.
        lowest: the most negative number, where it isn't -largest.
        block: values along the last axis that share the exponent of the largest of them.
        scale: the factor of all numbers.
    """

    name: str
    precision: int
    min_exponent: int
    largest: float
    overflow: Literal["inf", "nan", "largest"] = "inf"
    lowest: float | None = None
    block: int = 1
    scale: float = 1.0


FORMATS = {
    form.name: form
    for form in (
        Format("fp32", 24, -126, (2 - 2.0**-23) * 2.0**127),
        Format("tf32", 11, -126, (2 - 2.0**-10) * 2.0**127),
        Format("bf16", 8, -126, (2 - 2.0**-7) * 2.0**127),
        Format("fp16", 11, -14, 65504.0),
        Format("fp8_e4m3", 4, -6, 448.0, "nan"),
        Format("fp8_e5m2", 3, -14, 57344.0),
        # integers are numbers below a format's smallest normal one: all their steps are 1
        Format("int8", 8, 7, 127.0, "largest", lowest=-128.0),
        # a magnitude of 7 bits without a hidden one; the largest depends on the block
        Format("bfp8_b", 7, -126, np.inf, "largest", block=16),
    )
}
NUMPY = {"fp32": np.float32, "fp16": np.float16}
"""The formats that NumPy has."""
EXPONENT = np.int64(0x7FF0000000000000)
"""The bits of a float64's exponent: alone, they are the power of two at or below its size."""
TO_STEP = 1.5 * 2.0**52
"""Adding this many steps and subtracting them rounds a float64 to a multiple of the step."""


@lru_cache(maxsize=256)
def format_named(name: str) -> Format:
    """Return the format of a name such as "bf16", or "int8:0.05" for integers times 0.05.

    Raises ValueError for another name.
    """
    base, _, scale = name.partition(":")
    form = FORMATS.get(base)
    if form is None or (scale and base != "int8"):
        raise ValueError(f"format {name!r} is not one of {', '.join(FORMATS)} or int8:SCALE")
    if not scale:
        return form
    return Format(
        name, form.precision, form.min_exponent, form.largest, form.overflow, form.lowest,
        scale=float(scale),
    )  # fmt: skip


def format_and_mode(stored: str) -> tuple[str, Mode]:
    """Return the format and rounding of a store such as "bf16" or "bf16/away".

    Raises ValueError for what is no format or no rounding.
    """
    form, _, mode = stored.partition("/")
    format_named(form)
    for known in get_args(Mode):
        if known == (mode or "even"):
            return form, known
    raise ValueError(f"rounding {mode!r} of {stored} is not one of {', '.join(get_args(Mode))}")


def steps_of(stored: str) -> list[tuple[str, Mode]]:
    """Return the formats and roundings of a store, one after the other: bf16/away+bfp8_b/away.

    Raises ValueError for what is no format or no rounding.
    """
    return [format_and_mode(step) for step in stored.split("+")]


def store(values: ArrayLike, stored: str) -> Doubles:
    """Return values as a store rounds them; see steps_of."""
    rounded = np.asarray(values, np.float64)
    for form, mode in steps_of(stored):
        rounded = round_to(rounded, form, mode)
    return rounded


def unit_roundoff(form: str) -> float:
    """Return the largest relative error of rounding to nearest, subnormals left out.

    In a block format it is relative to the largest value of the block.
    """
    return 2.0 ** -format_named(form).precision


def smallest_step(form: str) -> float:
    """Return the distance between 0 and the next number of a format."""
    fmt = format_named(form)
    return 2.0 ** (fmt.min_exponent - fmt.precision + 1) * fmt.scale


def binade(values: ArrayLike) -> Doubles:
    """Return the power of two at or below each size; 0 for 0, inf for inf and NaN."""
    doubles = np.asarray(values, np.float64)
    return (doubles.view(np.int64) & EXPONENT).view(np.float64)


def step(values: ArrayLike, form: str) -> Doubles:
    """Return the distance between neighbors of a format at each value (above a power of two)."""
    fmt = format_named(form)
    return _steps(np.asarray(values, np.float64) / fmt.scale, fmt) * fmt.scale


def _steps(values: Doubles, fmt: Format) -> Doubles:
    """Return the steps of a format without its scale."""
    if fmt.block > 1:
        values = _block_maximum(values, fmt)
    powers = np.maximum(binade(values), 2.0**fmt.min_exponent)
    return powers * 2.0 ** (1 - fmt.precision)


def _block_maximum(values: Doubles, fmt: Format) -> Doubles:
    """Return the largest finite size of each value's block, along the last axis."""
    if not values.size:
        return values
    shaped = np.atleast_1d(values)
    count = shaped.shape[-1]
    sizes = np.where(np.isfinite(shaped), np.abs(shaped), 0.0)
    tops = np.maximum.reduceat(sizes, np.arange(0, count, fmt.block), axis=-1)
    return np.repeat(tops, fmt.block, axis=-1)[..., :count].reshape(values.shape)


def round_to(values: ArrayLike, form: str, mode: Mode = "even") -> Doubles:
    """Round float64 once to a format: to nearest "even", ties "away" from zero, or toward "zero".

    The result is float64. Beyond the largest number it is what the format's `overflow` says (toward
    zero: the largest number, but inf stays); NaN stays NaN, and the sign of 0 stays where the
    format has one.
    """
    fmt = format_named(form)
    doubles = np.asarray(values, np.float64)
    if fmt.name in NUMPY and mode == "even":
        with np.errstate(over="ignore", invalid="ignore"):
            return doubles.astype(NUMPY[fmt.name]).astype(np.float64)
    if fmt.scale != 1.0:
        doubles = doubles / fmt.scale
    steps = _steps(doubles, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = _on_grid(doubles, steps, mode)
    if fmt.block > 1:
        # the magnitude's bits are full: rounding up doesn't change the shared exponent
        limit = (2.0**fmt.precision - 1) * steps
        rounded = np.where(np.isfinite(doubles), np.clip(rounded, -limit, limit), doubles)
        return rounded + 0.0
    lowest = -fmt.largest if fmt.lowest is None else fmt.lowest
    beyond = ~((rounded <= fmt.largest) & (rounded >= lowest))
    if beyond.any():
        rounded = np.where(beyond, _overflowed(doubles, fmt, mode), rounded)
    return rounded if fmt.scale == 1.0 else rounded * fmt.scale


def _on_grid(values: Doubles, steps: Doubles, mode: Mode) -> Doubles:
    """Round to multiples of steps, which are powers of two."""
    if mode == "even":
        shift = steps * TO_STEP
        rounded = values + shift
        rounded -= shift
        return np.copysign(rounded, values)
    quotient = values / steps
    whole = np.trunc(quotient)
    if mode == "away":  # not trunc(q + .5), which rounds the sum
        whole += np.copysign(np.abs(quotient - whole) >= 0.5, quotient)
    return np.copysign(whole * steps, values)


def _overflowed(values: Doubles, fmt: Format, mode: Mode) -> Doubles:
    """Return the results for values whose rounding isn't within a format's range."""
    largest = np.where(values < 0, fmt.lowest or -fmt.largest, fmt.largest)
    if fmt.overflow == "largest":
        return np.where(np.isnan(values), values, largest)
    if mode == "zero":
        return np.where(np.isfinite(values), largest, values)
    if fmt.overflow == "nan":
        return np.full_like(values, np.nan)
    return np.where(np.isnan(values), values, np.copysign(np.inf, values))


def half_cell(output: ArrayLike, toward: ArrayLike, form: str, *, flush: bool = False) -> Doubles:
    """Return half the width of each output's cell, on the side of `toward`.

    A cell holds the numbers that round to the output. Below a power of two it is half as wide as
    above it. Beyond the largest number of a saturating format it has no end.

    Args:
        output: numbers of the format.
        toward: where the unrounded number is thought to be.
        form: the format.
        flush: whether the kernel turns subnormal numbers into 0.
    """
    fmt = format_named(form)
    y, other = np.broadcast_arrays(np.asarray(output, np.float64), np.asarray(toward, np.float64))
    half = step(y, form) / 2
    if fmt.block > 1:
        return half
    size = np.abs(y)
    inward = np.copysign(1.0, y) * other < size
    normal = 2.0**fmt.min_exponent * fmt.scale
    if fmt.overflow == "largest":
        lowest = -fmt.largest if fmt.lowest is None else fmt.lowest
        ends = (y >= fmt.largest * fmt.scale) | (y <= lowest * fmt.scale)
        half = np.where(ends & ~inward, np.inf, half)
    else:
        is_power = (size == binade(size)) & (size > normal)
        half = np.where(is_power & inward, half / 2, half)
    return np.where(y == 0, normal, half) if flush else half


def beyond_cell(output: ArrayLike, values: ArrayLike, form: str, *, flush: bool = False) -> Doubles:
    """Return how far each value lies outside the cell of an output; 0 within.

    The cell of inf begins half a step beyond the largest number. NaN stands for NaN only, which is
    also what some formats give beyond their largest number.
    """
    fmt = format_named(form)
    y, exact = np.broadcast_arrays(np.asarray(output, np.float64), np.asarray(values, np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(y - exact) - half_cell(y, exact, form, flush=flush)
        edge = fmt.largest * fmt.scale
        if fmt.block == 1:
            edge += float(step(edge, form)) / 2
        gap = np.where(np.isinf(y), edge - np.copysign(1.0, y) * exact, gap)
        gap = np.where(y == exact, 0.0, np.maximum(gap, 0.0))
    special = np.isnan(y) | np.isnan(exact)
    if special.any():
        both = np.isnan(y) & np.isnan(round_to(exact, form))
        gap = np.where(special, np.where(both, 0.0, np.inf), gap)
    return gap
