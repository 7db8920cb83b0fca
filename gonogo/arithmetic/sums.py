"""Sums: the value that an order of additions gives, and the noise of orders that nobody knows.

Every function takes terms (..., n), adds along the last axis and returns arrays of shape (...). The
noise of a row depends on that row alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import (
    Doubles,
    binade,
    format_and_mode,
    round_to,
    unit_roundoff,
)

Order = Literal["blocked", "running", "updated"]
Singles = NDArray[np.float32]

UNIT = unit_roundoff("fp32")
BLOCKS = 4
"""Running totals of the most serial order that counts as blocked: vector units have at least 4."""
MIN_ULPS = 0.6
"""The least deviation of a sum in units of its last place: its last addition's rounding."""
MIN_PARTIAL = 1.0
"""The least deviation in unit roundoffs of the largest partial sum: where terms nearly cancel or
have few bits, the simulated orders may add without an error where another order has to round."""
RUNNING_SPREAD = 0.25
"""How far a library's running sum may be from the simulated one, relative to its error: it may
round terms otherwise or start elsewhere."""
RUNNING_SHARE = 0.25
"""The share of a running sum's noise that any order has. Terms with few bits add without an error
in many orders, but not in all: then only the running order shows that sums round at all."""
SHORT = 32
"""Rows up to this length have any order of additions: also a running one is a block."""
PIECES = 8
"""Parts of a row within which errors of additions may have one sign, as those of equal terms do."""
MIN_PIECE = 16
"""The least terms of such a part: summing shorter ones takes longer than adding them."""
CHUNK = 2**17
"""Terms that are simulated at once: their arrays stay in a cache."""
MAX_STEPS = 2048
"""Additions one after another that are simulated in a narrow format; longer rows take lanes."""


def rows_of(part: NDArray[Any], shape: Sequence[int], axes: Sequence[int]) -> NDArray[Any]:
    """Return a part of a quantity of that shape with the axes moved last, as one axis."""
    full = np.broadcast_to(part, shape)
    others = [axis for axis in range(full.ndim) if axis not in axes]
    moved = full.transpose([*others, *axes])
    count = int(np.prod([shape[axis] for axis in axes], dtype=int))
    return moved.reshape(*moved.shape[: len(others)], count)


def divided(total: Doubles, count: int, divisor: str | None) -> tuple[Doubles, float]:
    """Return sums divided by a count, or multiplied by its stored reciprocal, and the factor."""
    if divisor is None:
        return total / count, 1 / count
    factor = float(round_to(1 / count, *format_and_mode(divisor)))
    return total * factor, factor


@dataclass(frozen=True)
class _Sum:
    """A simulated sum of each row, (rows,) each."""

    total: Doubles
    square: Doubles
    """The sum of the squared errors of additions, the larger of: one by one, or by pieces."""
    largest: Doubles
    """The size of the largest partial sum."""

    @property
    def deviation(self) -> Doubles:
        return np.sqrt(self.square)


def fp32_sum(terms: Doubles, order: Order = "blocked") -> tuple[Doubles, Doubles]:
    """Return the sums of rows in fp32 and their standard deviations.

    Args:
        terms: (..., n).
        order: "blocked": the exact sums, with the noise of several totals that are added at the
            end. "running": the value of a single total. "updated": the exact sum, with the noise of
            a mean that is updated with each term.

    The noise is what the errors of additions add up to in simulated orders. The errors are random,
    so the root of the sum of their squares is taken: it needs no luck, unlike the error itself.
    """
    return _by_chunks(terms, lambda rows: _fp32_rows(rows, order))


def _by_chunks(
    terms: Doubles, function: Callable[[Doubles], tuple[Doubles, Doubles]]
) -> tuple[Doubles, Doubles]:
    """Apply a function of (rows, n) to chunks of rows; the results are two arrays (rows,)."""
    shape, count = terms.shape[:-1], terms.shape[-1]
    if count < 2 or not terms.size:  # nothing is added
        return terms.sum(axis=-1), np.zeros(shape)
    rows = terms.reshape(-1, count)
    first, second = np.empty(len(rows)), np.empty(len(rows))
    at_once = max(1, CHUNK // count)
    with np.errstate(all="ignore"):
        for at in range(0, len(rows), at_once):
            part = slice(at, at + at_once)
            first[part], second[part] = function(rows[part])
    return first.reshape(shape), second.reshape(shape)


def _fp32_rows(terms: Doubles, order: Order) -> tuple[Doubles, Doubles]:
    count = terms.shape[1]
    total = terms.sum(axis=1)
    narrow = np.ascontiguousarray(terms, dtype=np.float32)
    running, blocked, halved = _running(narrow), _blocked(narrow), _halved(narrow)
    share = 1.0 if count <= SHORT else RUNNING_SHARE
    deviation = np.max(
        [
            blocked.deviation,
            halved.deviation,
            share * running.deviation,
            MIN_ULPS * 2 * UNIT * binade(total),
            MIN_PARTIAL * UNIT * running.largest,
        ],
        axis=0,
    )
    deviation[_adds_exactly(narrow)] = 0.0
    if order == "running":
        shift = running.total - narrow.sum(axis=1, dtype=np.float64)
        return total + shift, np.hypot(deviation, RUNNING_SPREAD * shift)
    if order == "updated":
        # the rounding of one mean after each update, as in textbooks, and of each term
        updates = count / 9 * binade(total / count) ** 2
        own_terms = np.square(terms).mean(axis=1) / 6
        deviation = np.hypot(deviation, count * UNIT * np.sqrt(updates + own_terms))
    return total, deviation


def _adds_exactly(terms: Singles) -> NDArray[np.bool_]:
    """Return which rows no order of additions rounds.

    Their terms are multiples of the last place of the sum of the sizes, as every partial sum is.
    """
    last_place = 2 * UNIT * binade(np.abs(terms).sum(axis=1, dtype=np.float64))[:, None]
    # the first terms decide nearly always
    exact = np.ones(len(terms), bool)
    for part in (slice(0, 8), slice(8, None)):
        if exact.any():
            quotient = terms[exact, part] / np.maximum(last_place[exact], 2.0**-149)
            exact[exact] = (quotient == np.rint(quotient)).all(axis=1)
    return exact


def _running(terms: Singles, groups: int = 1) -> _Sum:
    """Add each row one after another; `groups` rows that follow each other make one sum's blocks.

    The totals are (rows,), the squares (rows / groups,).
    """
    rows, count = terms.shape
    total = np.zeros((rows, 1), np.float32)
    single, by_piece, largest = np.zeros(rows), np.zeros(rows // groups), np.zeros(rows)
    length = min(max(-(-count // PIECES), MIN_PIECE), CHUNK)
    at_once = max(1, CHUNK // length) * length
    for at in range(0, count, at_once):
        part = terms[:, at : at + at_once]
        totals = np.add.accumulate(np.concatenate([total, part], axis=1), axis=1)
        doubles = totals.astype(np.float64)
        error = doubles[:, 1:] - doubles[:, :-1]
        error -= part
        single += np.einsum("ij,ij->i", error, error)
        pieces = np.add.reduceat(error, np.arange(0, part.shape[1], length), axis=1)
        by_piece += np.square(pieces.reshape(-1, groups, pieces.shape[1]).sum(axis=1)).sum(axis=1)
        largest = np.maximum(largest, np.maximum(totals.max(axis=1), -totals.min(axis=1)))
        total = totals[:, -1:]
    square = np.maximum(single.reshape(-1, groups).sum(axis=1), by_piece)
    return _Sum(total[:, 0].astype(np.float64), square, largest)


def _blocked(terms: Singles) -> _Sum:
    """Add BLOCKS contiguous parts of each row one after another, then their totals in halves."""
    rows, count = terms.shape
    length = -(-count // BLOCKS)
    padded = terms
    if length * BLOCKS != count:
        padded = np.zeros((rows, length * BLOCKS), np.float32)
        padded[:, :count] = terms
    parts = _running(padded.reshape(-1, length), BLOCKS)
    last = _halved(parts.total.astype(np.float32).reshape(rows, BLOCKS))
    return _Sum(last.total, parts.square + last.square, last.largest)


def _halved(terms: Singles) -> _Sum:
    """Add the second half of each row to the first until one term is left."""
    square = np.zeros(len(terms))
    while terms.shape[1] > 1:
        half = (terms.shape[1] + 1) // 2
        rest = terms.shape[1] - half
        first, second = terms[:, :rest], terms[:, half:]
        total = first + second
        error = np.subtract(total, first, dtype=np.float64)
        error -= second
        square += np.einsum("ij,ij->i", error, error)
        terms = total if rest == half else np.concatenate([total, terms[:, rest:half]], axis=1)
    total64 = terms[:, 0].astype(np.float64)
    return _Sum(total64, square, np.abs(total64))


def totals_of(totals: str) -> tuple[int, bool]:
    """Return how many running totals a sum has, and whether they take terms in turn.

    totals: "running": one; "4 lanes": they take terms in turn; "2 parts": each takes as many
    neighbors, as threads do, whose totals are added in fp32. Raises ValueError for another text.
    """
    if totals == "running":
        return 1, True
    match = re.fullmatch("([1-9][0-9]*) (lanes|parts)", totals)
    if match is None:
        raise ValueError(f"totals {totals!r} are not running, 4 lanes or 2 parts")
    return int(match[1]), match[2] == "lanes"


def narrow_sum(terms: Doubles, store: str, totals: str) -> Doubles:
    """Return the sums of rows whose totals are stored; see totals_of. Additions are in fp32."""
    lanes, takes_turns = totals_of(totals)
    form, mode = format_and_mode(store)
    *shape, count = terms.shape
    columns = _in_lanes(terms.reshape(math.prod(shape), count), lanes, takes_turns)

    def rounded(exact: Doubles) -> Doubles:
        return round_to(round_to(exact, "fp32"), form, mode)

    parts = _by_one_total(columns, rounded)
    total = _by_one_total(parts.T, rounded) if takes_turns else rounded(parts.sum(axis=1))
    return total.reshape(shape)


def narrow_noise(terms: Doubles, form: str) -> Doubles:
    """Return the deviation of sums whose totals are stored in a format, in an unknown order."""

    def noise(rows: Doubles) -> tuple[Doubles, Doubles]:
        exact = rows.sum(axis=1)
        deviations = [MIN_ULPS * 2 * unit_roundoff(form) * binade(exact)]
        for order, lanes in ((rows, 1), (rows[:, ::-1], 1), (rows, BLOCKS)):
            lanes = max(lanes, -(-order.shape[1] // MAX_STEPS))
            square = np.zeros(len(rows))

            def rounded(exact: Doubles, square: Doubles = square) -> Doubles:
                result = round_to(exact, form)
                square += np.square(result - exact).reshape(len(square), -1).sum(axis=1)
                return result

            parts = _by_one_total(_in_lanes(order, lanes), rounded)
            total = _by_one_total(parts.T, rounded)
            # totals that are too large for the next terms stay as they are: no random error
            deviations += [np.sqrt(square), np.abs(total - exact)]
        return exact, np.max(deviations, axis=0)

    return _by_chunks(terms, noise)[1]


def _in_lanes(rows: Doubles, lanes: int, takes_turns: bool = True) -> Doubles:
    """Return the terms of rows as each total takes them, (additions, rows, lanes), 0 at the end."""
    count = rows.shape[1]
    steps = -(-count // lanes)
    padded = np.zeros((len(rows), steps * lanes))
    padded[:, :count] = rows
    if takes_turns:
        terms = padded.reshape(-1, steps, lanes).swapaxes(0, 1)
    else:
        terms = padded.reshape(-1, lanes, steps).transpose(2, 0, 1)
    return np.ascontiguousarray(terms)


def _by_one_total(terms: Doubles, rounded: Callable[[Doubles], Doubles]) -> Doubles:
    """Return the sum along the first axis by a total that is rounded after each addition."""
    return reduce(lambda total, term: rounded(total + term), terms, np.zeros(terms.shape[1:]))


def updated_variance_noise(terms: Doubles) -> Doubles:
    """Return the deviation of variances by Welford's updates in fp32, in BLOCKS lanes.

    Each update of a mean rounds relative to the values' size, and that error multiplies the
    distances from the mean; each update of the sum of squares rounds relative to the total.
    The factors are those of simulated updates from 16 to 4,096 terms, at offsets from 0 to 1,000
    deviations.
    """
    count = terms.shape[-1]
    if count < 2:
        return np.zeros(terms.shape[:-1])
    variance = terms.var(axis=-1)
    mean_square = np.square(terms).mean(axis=-1)
    totals = 1 + count / (19 * BLOCKS**2)
    noise: Doubles = variance * (variance * totals + mean_square / 16)
    return np.maximum(UNIT * np.sqrt(noise), MIN_ULPS * 2 * UNIT * binade(variance))
