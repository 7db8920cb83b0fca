"""Mean and rstd of many rows: by the compiled path, else by the definition in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from gonogo.kernels.normalization.moments import (
    STATISTICS,
    TAILS,
    TRUNCATED_TAIL,
    Moments,
    Rows,
    moments,
    scale,
    well_conditioned,
)
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.jit import pays, plain
from gonogo.numerics.replay import spans
from gonogo.numerics.replay.compiled import moments as compiled
from gonogo.numerics.replay.compiled import results, sums
from gonogo.numerics.replay.program import WELFORD, Program
from gonogo.numerics.replay.quantity import RECIPROCAL, Machine, Quantity
from gonogo.numerics.replay.shifts import MeanOfRows

NAMES = frozenset({*STATISTICS, RECIPROCAL, "root", "rstd", *TAILS, TRUNCATED_TAIL})
"""The quantities of the statistics that a program may store."""
SIZES = "sizes"
"""The key of the root mean squares of the rows' elements."""


@dataclass(frozen=True)
class RowMoments:
    """The statistics of a replay, one value per row (rows, 1); see moments.Moments."""

    mean: Quantity | None
    rstd: Quantity
    root: Quantity | None

    @property
    def rounding(self) -> Array | None:
        """Return the deviation of rstd's own rounding (rows,), relative to it; None if stored."""
        scale = self.rstd if self.root is None else self.root
        if not scale.shared["rstd"].any():
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(scale.shared["rstd"] / np.abs(scale.values))[:, 0]


def row_moments(program: Program, rows: Rows, *, quick: bool = False) -> RowMoments:
    """Return mean and rstd of each row as a program computes them; `quick` as in Machine."""
    if has_loops(program, rows, quick=quick):
        return by_loops(program, rows)
    return by_definition(program, rows, quick=quick)


def of_part(program: Program, rows: Rows, *, quick: bool = False) -> RowMoments | Moments:
    """Return the same of a few rows, by the definition in a single block."""
    if has_loops(program, rows, quick=quick):
        return by_loops(program, rows)
    return moments(program, rows, quick=quick)


def mean_of_rows(program: Program, rows: Rows) -> MeanOfRows | None:
    """Return the rows' means, their rounding and rstd; None where there is no such rounding."""
    computed = row_moments(program, rows)
    mean = computed.mean
    if mean is None or "mean" not in mean.shared:
        return None
    parts = (mean.values, mean.shared["mean"], computed.rstd.values)
    return MeanOfRows(rows.x, *(results.column(len(rows.x), part) for part in parts))


def has_loops(program: Program, rows: Rows, *, quick: bool) -> bool:
    """Return whether compiled loops compute the statistics, of a part as of the whole tensor."""
    is_covered = program.variance != WELFORD and not NAMES & set(program.stored)
    return is_covered and not quick and pays(rows.elements)


def root_mean_squares(rows: Rows) -> Array:
    """Return the root mean square of each row's elements (rows, 1), in float64."""
    return _known(SIZES, rows, _root_mean_squares)


def _root_mean_squares(rows: Rows) -> Array:
    if not pays(rows.elements):
        squares = np.square(rows.x, dtype=np.float64)
        return np.asarray(np.sqrt(squares.mean(axis=1, keepdims=True)))
    x, sizes = plain(rows.x), np.zeros((len(rows.x), 1))

    def block(start: int, stop: int) -> None:
        compiled.add_sizes(start, stop, x, sizes)

    over_rows(block, len(x), results.rows_at_once(*x.shape))
    return sizes


def by_definition(program: Program, rows: Rows, *, quick: bool = False) -> RowMoments:
    """Return the statistics by the definition, in blocks of rows."""
    count, width = rows.x.shape
    blocks = spans.even(count, width)
    parts: list[Moments] = [
        moments(program, rows if len(blocks) == 1 else rows.some(slice(*block)), quick=quick)
        for block in blocks
    ]

    def joined(quantities: list[Quantity | None]) -> Quantity | None:
        present = [quantity for quantity in quantities if quantity is not None]
        return Quantity.joined(present) if present else None

    return RowMoments(
        joined([part.mean for part in parts]),
        Quantity.joined([part.rstd for part in parts]),
        joined([part.root for part in parts]),
    )


def by_loops(program: Program, rows: Rows) -> RowMoments:
    """Return the same by compiled loops.

    The program stores no quantity of the statistics. Programs that differ only in what follows
    share them.
    """
    variance = program.variance == "E[x^2] - mean^2" and rows.centered
    key = (variance, program.product == "(x - mean) / root", program.order)
    if key not in rows.loops:
        rows.loops[key] = _by_loops(program, rows, plain(rows.x), variance)
    statistics: RowMoments = rows.loops[key]
    return statistics


def _by_loops(program: Program, rows: Rows, x: Array, squares: bool) -> RowMoments:
    width = x.shape[1]
    facts = _facts(program, rows, x, squares)
    machine = Machine(program)
    mean = None
    errors = {}
    if rows.centered:
        mean = results.mean(facts[:, compiled.MEAN], "mean", width).per_row("mean")
        errors["mean"] = -mean.shared["mean"] * facts[:, compiled.CENTERED, sums.SLOPE, None]
    variance = results.mean(facts[:, compiled.CENTERED], "variance", width, errors)
    if squares and mean is not None:
        mean_square = results.mean(facts[:, compiled.SQUARES], "variance", width)
        direct = machine.subtract(mean_square, machine.multiply(mean, mean))
        variance = well_conditioned(mean, direct, variance)
    _, rstd, root = scale(program, rows, machine, variance)
    return RowMoments(mean, rstd, root)


def _facts(program: Program, rows: Rows, x: Array, squares: bool) -> Array:
    """Return the sums of each row."""

    def added(rows: Rows) -> Array:
        facts = np.zeros((len(x), compiled.SUMS, sums.FACTS))
        order = sums.ORDERS[program.order]

        def block(start: int, stop: int) -> None:
            compiled.add_moments(start, stop, x, rows.centered, squares, order, facts)

        over_rows(block, len(x), results.rows_at_once(*x.shape))
        return facts

    return _known(("facts", squares, program.order), rows, added)


def _known(key: Hashable, rows: Rows, compute: Callable[[Rows], Array]) -> Array:
    """Return a number of each row, of a part those of all rows where they are known."""
    if rows.origin is not None:
        of_all, chosen = rows.origin
        if key in of_all:
            return np.asarray(of_all[key][chosen])
    if key not in rows.sums:
        rows.sums[key] = compute(rows)
    return np.asarray(rows.sums[key])
