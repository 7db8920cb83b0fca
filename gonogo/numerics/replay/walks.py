"""Sums down the columns in an order that nobody knows: their roundings are the steps of a walk.

Blocks of a GPU add to a total as they come, in fp32 or in 16 bits. Each addition rounds, and the
roundings of a column are as good as independent of those of the next one. So such a sum may be far
from the exact one, but its errors have no direction: not that of a row, nor of the sum itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp, ulp
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Quantity

KNOWN_ORDERS = (ColumnOrder.rows, ColumnOrder.windows, ColumnOrder.lanes, ColumnOrder.folded)
"""The usual orders of 16-bit totals: beside a factor, they are told from a walk by their bits."""
ORDERS = 3
"""The random orders whose partial sums give the size of a walk's steps."""
MIN_COLUMNS = 16
"""Fewer columns don't tell a walk from a fault."""
MIN_MOVED = 1 / 8
"""The least share of columns that a walk moves out of their cells. Fewer are a fault's: .1 % of a
sum moves an eighth to a quarter of bf16's columns, and a walk of some steps half of them."""
MAX_EXCESS = 1.5
"""The largest variance of the errors, in units of the walk's. Blocks with totals of their own take
shorter walks; only chance makes a longer one."""
MAX_SCORE = 8.0
"""The largest error along a direction, in its standard deviations; see ladder.LIMIT."""
MAX_OF_SUMS = 5.0
"""The same along the sums themselves, a single direction: a common factor."""
MAX_COLUMN = 12.0
"""The same of a single column: its walk depends on when a large term comes."""
MAX_OF_ROWS = 4.0
"""The largest mean of the squared errors along the rows. Rounding takes small terms away, and so a
walk goes a little along the rows: 1.9 at most in right kernels with 512 rows."""
MAX_COMMON = 2.0**-22
"""The error of an approximate rsqrt, which all columns may share; see ladder.MAX_COMMON."""
MIN_BESIDE_FACTOR = 1 / 16
"""The same beside the factor of all columns that leaves the fewest outside: else it's a factor."""
FACTOR_COLUMNS = 512
"""The columns on which a factor is sought."""
MAX_TERMS = 2**20
"""The terms on which directions are computed, in whole columns."""


@runtime_checkable
class Summed(Protocol):
    """A graph of sums over all rows."""

    @property
    def count(self) -> int:
        """Return the number of rows that are added up."""

    def unordered(self, formats: Sequence[str], likely: Iterable[Program]) -> Iterable[Program]:
        """Return the programs that add up the rows in any order.

        formats: the narrow formats in which they may store. likely: as ladder.climb has them.
        """

    def of_same_kernel(self, program: Program) -> tuple[Program, ...]:
        """Return the programs of these sums in a kernel whose other outputs have this program."""

    def terms(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return the terms of the sums (rows, some columns)."""


def is_walk(program: Program) -> bool:
    """Return whether a program adds up the rows in an order that nobody knows."""
    return program.column_order is ColumnOrder.unordered


def variance(terms: Array, form: str) -> Array:
    """Return the variance (N,) of the roundings of sums of terms (rows, N), stored in a format."""
    steps = np.zeros(terms.shape[1])
    for seed in range(ORDERS):
        order = np.random.Generator(np.random.Philox(seed)).permutation(len(terms))
        partial = np.add.accumulate(terms[order], axis=0)
        steps += np.square(ulp(partial, form)).sum(axis=0)
    return np.asarray(steps / (12.0 * ORDERS))


def is_scaled(graph: Graph, program: Program, output: NDArray[np.floating], form: str) -> bool:
    """Return whether sums (1, N) are exact ones but for a common factor: that's a fault, no walk.

    program: one that adds up the rows in any order, whose walk isn't used, or in a known one.
    """
    width = output.shape[1]
    columns = np.unique(np.linspace(0, width - 1, min(width, FACTOR_COLUMNS)).astype(np.intp))
    y = np.asarray(output[0, columns], np.float64)
    total = np.broadcast_to(graph.replay(program, columns).values[0], y.shape)
    y, total = y[total != 0.0], total[total != 0.0]
    ends = np.stack([y - half_ulp(y, form), y + half_ulp(y, form)]) / total
    first, last = np.sort(ends.min(axis=0)), np.sort(ends.max(axis=0))
    # at the start of an interval: those that have started by then, without those that have ended
    inside = np.arange(1, len(first) + 1) - np.searchsorted(last, first)
    return int(inside.max(initial=0)) > (1.0 - MIN_BESIDE_FACTOR) * len(first)


def score(graph: Graph, program: Program, output: NDArray[np.floating], form: str) -> float:
    """Return the largest error of sums (1, N) along a direction, in its standard deviations.

    The directions are those of each row, of each block of rows, of all rows together and of the
    sums themselves; and the errors of single columns. How long the walk is, the errors say, up to
    what the program allows. Infinite where they are no walk's.

    Args:
        graph: the sums.
        program: one that adds up the rows in any order.
        output: (1, N).
        form: the output's format.
    """
    assert isinstance(graph, Summed)
    width = output.shape[1]
    chosen = min(width, max(MIN_COLUMNS, MAX_TERMS // graph.count))
    columns = np.unique(np.linspace(0, width - 1, chosen).astype(np.intp))
    terms = graph.terms(program, columns).values
    terms = np.broadcast_to(terms, (terms.shape[0], len(columns)))
    replay = graph.replay(program, columns)
    y = np.asarray(output[0, columns], np.float64)
    total, walk = replay.values[0], np.broadcast_to(replay.variance[0], y.shape)
    if len(columns) < MIN_COLUMNS or not walk.min() > 0.0:
        return math.inf
    error = y - total
    with np.errstate(divide="ignore", invalid="ignore"):  # sums that are all 0
        common = float((error * total / walk).sum() / (total * total / walk).sum())
    if abs(common) <= MAX_COMMON:
        error = error - common * total
    rounding = np.square(ulp(y, form)) / 12.0
    # relative to a column's walk, so that large columns don't decide alone
    level = float(((np.square(error) - rounding) / walk).mean())
    chance = 1.0 + MAX_SCORE * math.sqrt(2.0 / len(columns))
    is_moved = np.abs(error) > half_ulp(y, form)
    if is_moved.mean() < MIN_MOVED or not 0.0 < level <= MAX_EXCESS * chance:
        return math.inf
    spread = level * walk + rounding
    of_columns = float((np.abs(error) / np.sqrt(spread)).max()) * MAX_SCORE / MAX_COLUMN
    of_sums = abs(_along(total[None], error, spread)[0]) * MAX_SCORE / MAX_OF_SUMS
    if not program.stored:  # in fp32 the rows' own errors are as large
        return max(of_columns, float(of_sums))
    blocks = _blocks(terms)
    of_rows = _along(blocks[0], error, spread)
    together = np.nanmean(np.square(of_rows)) * MAX_SCORE / MAX_OF_ROWS
    of_blocks = [np.nanmax(np.abs(_along(block, error, spread))) for block in blocks]
    return float(max(of_columns, of_sums, together, *of_blocks))


def _along(directions: Array, error: Array, variance: Array) -> Array:
    """Return the error (N,) along directions (count, N), in standard deviations; NaN along 0."""
    with np.errstate(invalid="ignore"):
        spread = np.sqrt(np.square(directions) @ (1.0 / variance))
        return np.asarray(directions @ (error / variance) / spread)


def _blocks(terms: Array) -> list[Array]:
    """Return the sums of each row, of each block of 2, 4, 8... rows, and of all."""
    sums = [terms]
    while len(sums[-1]) > 1:
        halves = sums[-1]
        odd = halves[len(halves) // 2 * 2 :]
        sums.append(
            np.concatenate(
                [halves[: len(halves) - len(odd)].reshape(-1, 2, terms.shape[1]).sum(axis=1), odd]
            )
        )
    return sums
