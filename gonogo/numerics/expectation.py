"""The expectation of one output: reference, worst-case bound B, variance, and shared errors.

Every output is a matrix here: y and dx (rows, N); mean and rstd (1, rows); dgamma and dbeta (1, N).
All are float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_EXPONENT = np.int64(0x7FF0000000000000)


def binade(values: Array) -> Array:
    """Return 2^floor(log2 |v|) of each value, exactly.

    It is 0 at 0, and at float64 subnormals, which no format here reaches.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.int64) & _EXPONENT
    return bits.view(np.float64)


def _low_bits(step: float) -> int | None:
    """Return how many low bits of a float64 lie below `step` times its binade.

    None where the step is no power of two from 2^-51 to 1/2. Rounding to such a step is a change of
    these bits alone, in one or two passes over the values instead of eight. The sign is another
    bit, so adding to the bits makes a value larger in magnitude, and carries into its exponent.
    """
    mantissa, exponent = math.frexp(step)
    return 51 + exponent if mantissa == 0.5 and -50 <= exponent <= 0 else None


def round_even(values: Array, unit: float) -> Array:
    """Round float64 values to nearest even at the precision whose unit roundoff is `unit`.

    For example 2^-8 for bf16. The exponent is unbounded.
    """
    if low := _low_bits(2 * unit):
        bits = np.ascontiguousarray(values, np.float64).view(np.int64)
        odd = (bits >> low) & 1
        odd += bits
        odd += (1 << (low - 1)) - 1
        odd &= -1 << low
        return odd.view(np.float64)
    grid = binade(values) * (2 * unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(grid > 0, np.rint(values / np.where(grid > 0, grid, 1.0)) * grid, values)


def block_maximum(values: Array) -> Array:
    """Return the largest |v| of each aligned group of 16 along the last axis, in the values' shape.

    A block format scales by it.
    """
    rows, n = values.shape
    padded = np.zeros((rows, -(-n // 16) * 16))
    padded[:, :n] = np.abs(values)
    return np.repeat(padded.reshape(rows, -1, 16).max(axis=2), 16, axis=1)[:, :n]


Repeats = NDArray[np.intp]
"""A number for each element of a row, the same for elements with the same key."""


def repeats(keys: Array) -> Repeats | None:
    """Return which elements of a row (N,) share a key; None where all keys differ.

    A NaN is no key.
    """
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(keys)
    ordered = keys[order]
    numbers = np.empty(keys.size, np.intp)
    numbers[order[0]] = 0
    numbers[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
    return numbers


@dataclass(frozen=True)
class Shared:
    """An error that many elements share.

    It is `pattern` times one random variable of the given variance per row.
    """

    variance: Array  # (rows, 1)
    pattern: Array  # (rows, N) or broadcastable to it


@dataclass(frozen=True)
class Keyed:
    """An error that the elements of a row with one key share.

    `amplitude` is its standard deviation times its pattern, signed, per element. There are two
    cases. Equal inputs are rounded alike (key: the input). An operand that is aligned to another's
    grid is rounded alike on every equal grid (key: the binade).
    """

    key: Array  # (rows, N); NaN: none
    amplitude: Array  # (rows, N)
    adds_variance: bool = False  # it is part of each element's s^2 and not in `noise`

    @cached_property
    def repeats(self) -> tuple[Repeats | None, ...]:
        """The elements of each row that share a key."""
        return tuple(map(repeats, self.key))


@dataclass(frozen=True)
class Direction:
    """A way in which a wrong term would show.

    It has `weights` per element, and one slope per row (or per column).
    """

    name: str
    weights: Array  # (rows, N); for "tiles" (count, N): several directions on a single row
    axis: str = "row"  # row | column | tiles
    # a squared norm of the weights at or below it can't be measured; one, or one per row
    floor: Array | float = 0.0


@dataclass(frozen=True)
class Expectation:
    """The expected values of one output and their errors.

    `noise` is the variance of each element's own error; s^2 = noise + shared.
    """

    reference: Array
    bound: Array
    noise: Array
    out: float  # unit roundoff of the output's format
    out_block: bool = False
    shared: tuple[Shared, ...] = ()
    directions: tuple[Direction, ...] = ()
    # signed error that the stored intermediates make by themselves, predicted from the inputs
    bias: Array | None = None
    # signed errors of unknown common size: coherent down a column, squared after summing
    trend: tuple[Array, ...] = ()
    spread: Array | None = None  # the same, unsigned: their absolute values add up down a column
    keyed: tuple[Keyed, ...] = ()
    allowance: tuple[Array, ...] = ()
    """Errors (rows, N) that a right kernel may or may not make as a whole.

    An operand is rounded onto another's grid; the error is predicted for its value and for the ends
    of that value's own bound. A projection between none and any of them is no evidence.
    """
    # (rows, N), one of the allowances: the error where every buffer truncates
    truncated: Array | None = None
    # (K, N), of an output of one row: K independent errors (one standard deviation each)
    factors: tuple[Array, ...] = ()
    informative: Mask | None = None  # (rows,); False where the row can't tell right from wrong

    @cached_property
    def repeats(self) -> tuple[Repeats | None, ...]:
        """The elements of each row that share their |reference|."""
        return tuple(map(repeats, np.abs(self.reference)))

    @cached_property
    def variance(self) -> Array:
        """The s^2 of each element."""
        total = self.noise.copy()
        for shared in self.shared:
            total = total + shared.variance * shared.pattern**2
        for keyed in self.keyed:
            if keyed.adds_variance:
                total = total + keyed.amplitude**2
        for factor in self.factors:
            total = total + (factor**2).sum(axis=0, keepdims=True)
        if self.bias is not None:
            total = total + excess(self.bias**2, self.noise)
        return np.asarray(total)


def beyond_truncation(expected: Expectation, error: Array) -> Array:
    """Return the part of each error that chi counts.

    It lies outside 0 and the error where every buffer truncates. Rounding to nearest errs by
    h/sqrt(3), truncating by 2h/sqrt(3) and with one sign: a kernel that truncates is farther off,
    and as right.
    """
    if expected.truncated is None:
        return error
    most, least = np.maximum(expected.truncated, 0.0), np.minimum(expected.truncated, 0.0)
    return np.asarray(np.maximum(error - most, 0.0) + np.minimum(error - least, 0.0))


def output_step(values: Array, unit: float, block: bool) -> Array:
    """Return half a step of the output's format at the given values (rows, N)."""
    return binade(block_maximum(values) if block else values) * unit


def output_bound(values: Array, unit: float, block: bool) -> Array:
    """Return the rounding of the output: half a step.

    A block format is packed from bf16, which is another rounding.
    """
    return output_step(values, unit, block) + (BF16 * binade(values) if block else 0.0)


BF16 = 2.0**-8


def ties_of_blocks(values: Array, block: bool) -> tuple[Array, ...]:
    """Return the systematic part of packing to a block format, as a pattern.

    A value whose exponent is d below its block's loses 1 + d of bf16's bits. It is a tie with
    probability 2^-(1+d), and then moves half a step away from zero: 2^-8 of its binade on average.
    """
    return (np.copysign(BF16 * binade(values), values),) if block else ()


COHERENT = 4.0
"""A predicted projection beyond two standard deviations of independent rounding is not chance.

It comes from the data themselves.
"""


def excess(predicted: Array, independent: Array) -> Array:
    """Return what a predicted squared projection adds to the variance of independent rounding."""
    return np.maximum(predicted - COHERENT * independent, 0.0)


def truncate(values: Array, grid: float) -> Array:
    """Round toward zero, onto `grid` times the value's binade."""
    if low := _low_bits(grid):
        bits = np.ascontiguousarray(values, np.float64).view(np.int64) & (-1 << low)
        return bits.view(np.float64)
    step = binade(values) * grid
    safe = np.where(step > 0, step, 1.0)
    return np.asarray(np.where(step > 0, np.trunc(values / safe) * safe, values))


NUDGE = 1.0 + 2.0**-40
"""A factor that lifts a value just below a step of a format onto it.

float64's own rounding may have left it there. Truncated, it would lose the whole step.
"""


def cut(values: Array, grid: float) -> Array:
    """Return the values as a buffer that truncates stores them.

    A value that is on the grid except for float64's noise stays there.
    """
    return truncate(values * NUDGE, grid)


def round_away(values: Array, unit: float) -> Array:
    """Round like round_even, with ties away from zero: the packer."""
    if low := _low_bits(2 * unit):
        bits = np.ascontiguousarray(values, np.float64).view(np.int64) + (1 << (low - 1))
        bits &= -1 << low
        return bits.view(np.float64)
    grid = binade(values) * (2 * unit)
    safe = np.where(grid > 0, grid, 1.0)
    return np.asarray(
        np.where(
            grid > 0, np.copysign(np.floor(np.abs(values) / safe + 0.5) * safe, values), values
        )
    )


def coherence(values: Array, unit: float) -> float:
    """Return how far the rounding errors of `values`, one per row, are one and the same error.

    Let values be spread with standard deviation sigma about a grid of step q. The mean rounding
    error is then at most (q/pi) exp(-2 pi^2 (sigma/q)^2): the first Fourier coefficient of the
    sawtooth of a normal variable (Widrow and Kollar, Quantization Noise, 2008). The result is 1 for
    equal rows, and 0 once they spread over a step.
    """
    if values.size < 2:
        return 1.0
    step = float(np.median(binade(values))) * 2 * unit
    if step == 0 or not np.isfinite(step):
        return 1.0
    return float(np.exp(-2 * np.pi**2 * min((float(np.std(values)) / step) ** 2, 30.0)))
