"""Operations of a replay, as `quantity` and `narrow_sums` define them, to the bit.

A search replays thousands of programs on a few rows, where NumPy takes longer for its calls than
for the numbers: some sixty calls to store a quantity.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from gonogo.numerics.formats import Mode, format_named
from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import binade, bits, number

FRACTION = 52
"""Bits of a float64's fraction."""


class Grid(NamedTuple):
    """The numbers of a format, as `narrowed` takes them.

    Attributes:
        lost: bits of a float64's fraction that the format lacks.
        smallest: its smallest normal number.
        spacing: the step between smaller ones.
        largest: its largest number; inf where the exponent has no bounds.
        truncates: whether values are rounded toward zero, else to nearest, ties to even.
    """

    lost: int
    smallest: float
    spacing: float
    largest: float
    truncates: bool


@cache
def grid(form: str, mode: Mode, *, bounded: bool = True) -> Grid | None:
    """Return the grid to which round_to rounds; None where only NumPy does it.

    bounded: whether the format's exponent has bounds.
    """
    declared = format_named(form)
    if declared.block or mode == "away":
        return None
    lost = FRACTION - declared.fraction_bits
    smallest = 2.0**declared.min_exponent
    # IEEE's formats: the exponents of the smallest and the largest normal number add up to 1
    largest = (2.0 - 2.0**-declared.fraction_bits) * 2.0 ** (1 - declared.min_exponent)
    if not bounded:
        smallest, largest = 0.0, np.inf
    spacing = 2.0 ** (declared.min_exponent - declared.fraction_bits)
    return Grid(lost, smallest, spacing, largest, mode == "zero")


@jit
def narrowed(
    value: Any, lost: int, smallest: float, spacing: float, largest: float, truncates: bool
) -> Any:
    """Return a float64 as round_to rounds it; see Grid."""
    size = abs(value)
    if size < smallest:
        steps = size / spacing
        whole = np.floor(steps) if truncates else np.rint(steps)
        return np.copysign(whole * spacing, value)
    if not size < np.inf:
        return value
    one = np.int64(1)
    pattern = bits(value)
    if not truncates:
        pattern += ((pattern >> lost) & one) + (one << (lost - one)) - one
    result = number(pattern >> lost << lost)
    if abs(result) > largest:
        return np.copysign(largest if truncates else np.inf, value)
    return result


@jit
def multiply(
    values: Any,
    a: Any,
    a_noise: Any,
    a_slack: Any,
    b: Any,
    b_noise: Any,
    b_slack: Any,
    unit: float,
    may_be_exact: bool,
    noise: Any,
    slack: Any,
) -> None:
    """Put noise and slack of the products `values` of a and b into `noise` and `slack`.

    All are (rows, N), but a, b and what belongs to them may have one row, one column, or both.
    may_be_exact: as in `add_rounding`.
    """
    rows, columns = values.shape
    ai, aj = a.shape[0] > 1, a.shape[1] > 1
    bi, bj = b.shape[0] > 1, b.shape[1] > 1
    ani, anj = a_noise.shape[0] > 1, a_noise.shape[1] > 1
    bni, bnj = b_noise.shape[0] > 1, b_noise.shape[1] > 1
    asi, asj = a_slack.shape[0] > 1, a_slack.shape[1] > 1
    bsi, bsj = b_slack.shape[0] > 1, b_slack.shape[1] > 1
    for i in range(rows):
        for j in range(columns):
            p, q = a[i * ai, j * aj], b[i * bi, j * bj]
            p_slack, q_slack = a_slack[i * asi, j * asj], b_slack[i * bsi, j * bsj]
            off = abs(p) * q_slack + abs(q) * p_slack + p_slack * q_slack
            known = a_noise[i * ani, j * anj] * (q * q) + b_noise[i * bni, j * bnj] * (p * p)
            slack[i, j] = off
            noise[i, j] = rounded(values[i, j], known, off, unit, may_be_exact)


@jit
def rounded(value: Any, noise: Any, slack: Any, unit: float, may_be_exact: bool) -> Any:
    """Return the noise of a value, with that of rounding it to fp32."""
    if may_be_exact and noise == 0.0 and slack == 0.0 and np.float64(np.float32(value)) == value:
        return noise + 0.0
    half = unit * binade(value)
    return noise + half * half / 3


@jit
def add_rounding(
    values: Any, known: Any, slack: Any, unit: float, may_be_exact: bool, noise: Any
) -> None:
    """Put the noise of `values` (rows, N), with that of rounding them to fp32, into `noise`.

    known: the noise without. slack: theirs. Both may have one row, one column, or both.
    may_be_exact: whether what fp32 holds isn't rounded, unless it has noise or slack.
    """
    rows, columns = values.shape
    ki, kj = known.shape[0] > 1, known.shape[1] > 1
    si, sj = slack.shape[0] > 1, slack.shape[1] > 1
    for i in range(rows):
        for j in range(columns):
            noise[i, j] = rounded(
                values[i, j], known[i * ki, j * kj], slack[i * si, j * sj], unit, may_be_exact
            )


@jit
def store(
    values: Any,
    variance: Any,
    slack: Any,
    tie: float,
    lost: int,
    smallest: float,
    spacing: float,
    largest: float,
    truncates: bool,
    stored: Any,
    reach: Any,
) -> None:
    """Put `values` (rows, N) as a program stores them into `stored`, and their slack into `reach`.

    variance, slack: theirs; either may have one row, one column, or both. tie: standard deviations
    within which a value may round to either side.
    """
    rows, columns = values.shape
    vi, vj = variance.shape[0] > 1, variance.shape[1] > 1
    si, sj = slack.shape[0] > 1, slack.shape[1] > 1
    for i in range(rows):
        for j in range(columns):
            value = values[i, j]
            off = tie * np.sqrt(variance[i * vi, j * vj]) + slack[i * si, j * sj]
            center = narrowed(value, lost, smallest, spacing, largest, truncates)
            above, below = 0.0, 0.0
            if off != 0.0 or not abs(center) < np.inf:
                low = narrowed(value - off, lost, smallest, spacing, largest, truncates)
                high = narrowed(value + off, lost, smallest, spacing, largest, truncates)
                above, below = high - center, center - low
            stored[i, j] = center
            reach[i, j] = above if above >= below or above != above else below


@jit
def run(
    terms: Any,
    unit: float,
    lost: int,
    smallest: float,
    spacing: float,
    largest: float,
    truncates: bool,
    totals: Any,
) -> None:
    """Put sums along the first axis of `terms` (terms, sums, 3) into `totals` (sums, 3), zeros.

    They are narrow_sums._running's: stored after each addition.
    """
    for k in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            is_wide = terms[k, i, 2] > terms[k, i, 0]
            for side in range(3):
                exact = totals[i, side] + terms[k, i, side]
                exact += (side - 1) * unit * abs(exact) if is_wide else 0.0
                totals[i, side] = narrowed(exact, lost, smallest, spacing, largest, truncates)
