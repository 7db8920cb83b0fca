"""What is expected of one output: reference, worst-case bound B, standard deviation, and which
errors are shared.

Every output is a matrix here: y and dx (rows, N); mean and rstd (1, rows); dgamma and dbeta (1, N).
All float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_EXPONENT = np.int64(0x7FF0000000000000)


def binade(values: Array) -> Array:
    """2^floor(log2 |v|) of each value, exactly; 0 at 0 (and at float64 subnormals, which no format
    here reaches).
    """
    bits = np.ascontiguousarray(np.abs(values)).view(np.int64) & _EXPONENT
    return bits.view(np.float64)


def round_even(values: Array, unit: float) -> Array:
    """Round float64 values to nearest even at the precision whose unit roundoff is `unit` (2^-8:
    bf16), exponent unbounded.
    """
    grid = binade(values) * (2 * unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(grid > 0, np.rint(values / np.where(grid > 0, grid, 1.0)) * grid, values)


def block_maximum(values: Array) -> Array:
    """The largest |v| of each aligned group of 16 along the last axis, in the shape of `values`:
    what a block format scales by.
    """
    rows, n = values.shape
    padded = np.zeros((rows, -(-n // 16) * 16))
    padded[:, :n] = np.abs(values)
    return np.repeat(padded.reshape(rows, -1, 16).max(axis=2), 16, axis=1)[:, :n]


@dataclass(frozen=True)
class Shared:
    """An error that many elements share: `pattern` times one random variable of the given variance
    per row.
    """

    variance: Array  # (rows, 1)
    pattern: Array  # (rows, N) or broadcastable to it


@dataclass(frozen=True)
class Keyed:
    """An error that the elements of a row with one key share: `amplitude` (standard deviation,
    times its pattern, signed) per element.

    Two cases make them: equal inputs are rounded alike (key: the input), and an operand that is
    aligned to another's grid is rounded alike on every equal grid (key: the binade).
    """

    key: Array  # (rows, N); NaN: none
    amplitude: Array  # (rows, N)
    adds_variance: bool = False  # it is part of each element's s^2 and not in `noise`


@dataclass(frozen=True)
class Direction:
    """A way in which a wrong term would show: `weights` per element; one slope per row (or per
    column).
    """

    name: str
    weights: Array  # (rows, N); for "tiles" (count, N): several directions on a single row
    axis: str = "row"  # row | column | tiles
    floor: Array | float = (
        0.0  # a squared norm of the weights at or below it says nothing; one, or one per row
    )


@dataclass(frozen=True)
class Expectation:
    """See the module. `noise` is the variance of what each element errs by itself; s^2 = noise +
    shared.
    """

    reference: Array
    bound: Array
    noise: Array
    out: float  # unit roundoff of the output's format
    out_block: bool = False
    shared: tuple[Shared, ...] = ()
    directions: tuple[Direction, ...] = ()
    bias: Array | None = (
        # signed error that the stored intermediates make by themselves, predicted from the inputs
        None
    )
    trend: tuple[
        Array, ...
    ] = ()  # signed errors of unknown common size: coherent down a column, squared after summing
    spread: Array | None = None  # the same, unsigned: their absolute values add up down a column
    keyed: tuple[Keyed, ...] = ()
    allowance: tuple[Array, ...] = ()
    """Errors (rows, N) that a right kernel may or may not make as a whole (an operand rounded onto
    another's grid, predicted for its value and for the ends of that value's own bound): a
    projection between none and any of them is no evidence."""
    truncated: Array | None = (
        None  # (rows, N), one of the allowances: the error where every buffer truncates
    )
    factors: tuple[
        Array, ...
    ] = ()  # (K, N), of an output of one row: K independent errors (one standard deviation each)
    informative: Mask | None = None  # (rows,) False: nothing can be said about the row

    @cached_property
    def groups(self) -> tuple[NDArray[np.intp], ...]:
        """For each row the group of each element: those of equal |reference|."""
        return tuple(
            np.unique(np.abs(row), return_inverse=True)[1].reshape(-1) for row in self.reference
        )

    @cached_property
    def variance(self) -> Array:
        """s^2 of each element."""
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
    """The part of each error that chi counts: what lies outside 0 and the error where every buffer
    truncates. Rounding to nearest errs by h/sqrt(3), truncating by 2h/sqrt(3) and with one sign: a
    kernel that truncates is farther off, and as right.
    """
    if expected.truncated is None:
        return error
    most, least = np.maximum(expected.truncated, 0.0), np.minimum(expected.truncated, 0.0)
    return np.asarray(np.maximum(error - most, 0.0) + np.minimum(error - least, 0.0))


def output_step(values: Array, unit: float, block: bool) -> Array:
    """Half a step of the output's format at the given values (rows, N)."""
    return binade(block_maximum(values) if block else values) * unit


def output_bound(values: Array, unit: float, block: bool) -> Array:
    """The rounding of the output: half a step; a block format is packed from bf16, which is another
    rounding.
    """
    return output_step(values, unit, block) + (BF16 * binade(values) if block else 0.0)


BF16 = 2.0**-8
BFP8 = 2.0**-7


def ties_of_blocks(values: Array, unit: float, block: bool) -> tuple[Array, ...]:
    """The systematic part of packing to a block format, as a pattern: a value whose exponent is d
    below its block's loses 1 + d of bf16's bits, is a tie with probability 2^-(1+d) and then moves
    half a step away from zero: 2^-8 of its binade on average. bfp4_b is truncated (its unit is a
    whole step): half a step toward zero.
    """
    if block and unit > BFP8:
        return (np.copysign(output_step(values, unit, block) / 2, values),)
    return (np.copysign(BF16 * binade(values), values),) if block else ()


COHERENT = 4.0
"""A predicted projection beyond two standard deviations of independent rounding is not chance: it
is the data's own."""


def excess(predicted: Array, independent: Array) -> Array:
    """What a predicted squared projection adds to the variance that independent rounding already
    accounts for.
    """
    return np.maximum(predicted - COHERENT * independent, 0.0)


def truncate(values: Array, grid: float) -> Array:
    """Toward zero, onto `grid` times the value's binade."""
    step = binade(values) * grid
    safe = np.where(step > 0, step, 1.0)
    return np.asarray(np.where(step > 0, np.trunc(values / safe) * safe, values))


NUDGE = 1.0 + 2.0**-40
"""Lifts a value that float64's own rounding left just below a step of a format onto it: cut off, it
would lose the whole step."""


def cut(values: Array, grid: float) -> Array:
    """A buffer that truncates, predicted: what is on the grid but for float64's noise stays
    there.
    """
    return truncate(values * NUDGE, grid)


def round_away(values: Array, unit: float) -> Array:
    """Like round_even, with ties away from zero: the packer."""
    grid = binade(values) * (2 * unit)
    safe = np.where(grid > 0, grid, 1.0)
    return np.asarray(
        np.where(
            grid > 0, np.copysign(np.floor(np.abs(values) / safe + 0.5) * safe, values), values
        )
    )


def coherence(values: Array, unit: float) -> float:
    """How far the rounding errors of `values`, one per row, are one and the same error.

    For values spread with standard deviation sigma about a grid of step q the mean rounding error
    is at most (q/pi) exp(-2 pi^2 (sigma/q)^2) (the first Fourier coefficient of the sawtooth of a
    normal variable; Widrow and Kollar, Quantization Noise, 2008). 1 for equal rows, 0 once they
    spread over a step.
    """
    if values.size < 2:
        return 1.0
    step = float(np.median(binade(values))) * 2 * unit
    if step == 0 or not np.isfinite(step):
        return 1.0
    return float(np.exp(-2 * np.pi**2 * min((float(np.std(values)) / step) ** 2, 30.0)))
