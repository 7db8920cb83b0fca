"""The ladder: which arithmetic explains an output of a kernel whose arithmetic nobody named.

First everything in fp32, with blocked sums, then with running ones; then the programs that store
16-bit quantities, where the tensors have 16-bit formats. The first that explains the output is its
arithmetic model. Where none does, the nearest one's numbers stand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.replay import at_random, search, walks
from gonogo.numerics.replay.cells import Measurement, cells
from gonogo.numerics.replay.common import MIN_SCORE, common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import WELFORD, Order, Program
from gonogo.numerics.replay.shifts import common_shift

LIMIT = search.LIMIT
"""The largest distance from a cell, and the largest error shared by a row, that is explained."""
MAX_COMMON = 2.0**-22
"""The largest common factor that is explained: two units in the last place, the error of an
approximate rsqrt, as GPUs and vector units have it."""
LARGEST = float(np.finfo(np.float64).max)
MIN_REPRODUCED = 4
"""Rows that a program reproduces by no chance, so that those it misses tell what it lacks."""
SAMPLED_COLUMNS = 64
"""Columns of sums in any order on which such a program is tried first."""
SAMPLED_ROWS = 12
"""Rows on which a program is tried before the whole output; half of them its worst."""


@dataclass(frozen=True)
class Finding:
    """The program nearest to an output, and how near it is.

    Attributes:
        program: the program; it explains the output where `explained`.
        distance: the largest distance of an element from its cell, in standard deviations.
        row_error: the largest error that a row shares, in standard deviations; or a shift of the
            mean that all rows share, where it is beyond LIMIT in such units.
        common: |f| of the factor 1 + f that all rows share; 0 where it may be chance.
        mismatch: the share of elements beyond the limit.
        may_store: whether the kernel's tensors have a narrow format, in which it may store.
    """

    program: Program
    distance: float
    row_error: float
    common: float
    mismatch: float
    may_store: bool = False

    @property
    def size(self) -> float:
        """Return the largest of the three, of which LIMIT is explained."""
        size = max(self.distance, self.row_error, LIMIT / MAX_COMMON * self.common)
        return math.inf if math.isnan(self.distance + self.row_error) else size

    @property
    def explained(self) -> bool:
        """Return whether the program explains the output."""
        return self.size <= LIMIT

    @property
    def is_at_random(self) -> bool:
        """Return whether the output is explained by a program that rounds it at random."""
        return self.explained and self.program.output_rounding == "random"

    def statistics(self) -> dict[str, Any]:
        """Return the numbers as statistics of the output."""
        return {
            "arithmetic": self.program.name if self.explained else None,
            "nearest_arithmetic": self.program.name,
            "cell_max": _finite(self.distance),
            "cell_row_max": _finite(self.row_error),
            "common_factor": self.common,
            "cell_mismatch": self.mismatch,
            "may_store": self.may_store,
        }


def climb(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    formats: Sequence[str],
    likely: Sequence[Program] = (),
) -> Finding:
    """Return the first program that explains `output` (rows, N), else the nearest one.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: finite values.
        form: the output's format.
        formats: the narrow formats of the kernel's tensors, in which it may store.
        likely: the storing programs that are tried first, since another output has one like them.
    """
    y = np.asarray(output)
    near = search.Near()
    searched = search.candidates(graph, y, form, formats, likely)
    # evaluated last: the rows that the programs before it missed are known then
    again = _refined(graph, y, form, near)
    unordered = _in_any_order(graph, y, form, formats, likely)
    at_last = at_random.programs(graph, form)
    programs = chain(plain(graph), searched, again, unordered, at_last)
    finding = nearest(graph, y, form, programs, near)
    return finding if finding.explained else replace(finding, may_store=bool(formats))


def nearest(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    programs: Iterable[Program],
    near: search.Near | None = None,
) -> Finding:
    """Return the first of at least one program that explains `output`, else the nearest one.

    near: takes the storing programs that reproduce some rows, and the rows that they miss.
    """
    y = np.asarray(output)
    others = iter(programs)
    best, distances = _find(graph, y, form, next(others))
    if best.explained:
        return best
    rows = _sample(distances)
    part, part_output = graph.some(rows), y[rows] if graph.shape[0] == len(y) else y
    for program in others:
        if walks.is_walk(program):  # wide, so it is earned or nothing
            if _is_near(graph, y, form, program):
                finding, _ = _find(graph, y, form, program)
                if finding.explained:
                    return finding
            continue
        if (
            program.output_rounding == "random"
        ):  # a few rows can't earn it, but they can rule it out
            if _find(part, part_output, form, program, 0.0)[0].explained:
                finding, _ = _find(graph, y, form, program)
                if finding.explained:
                    return finding
            continue
        sampled, measured = _find(part, part_output, form, program)
        if not sampled.explained:
            if near is not None:
                _note(near, program, rows[_missed(measured)])
            if sampled.size >= best.size:
                continue
        finding, measured = _find(graph, y, form, program)
        if finding.explained:
            return finding
        if near is not None:
            _note(near, program, _missed(measured))
        if finding.size < best.size:
            best = finding
    return best


def plain(graph: Graph) -> Iterator[Program]:
    """Yield the programs that store nothing, in the order of the ladder."""
    yield from graph.forms
    for order in (Order.running, Order.running_mean):
        for program in graph.forms:
            yield replace(program, order=order)
    yield from graph.derived
    for program in graph.derived:
        yield replace(program, order=Order.running)
    for program in graph.derived:
        if program.variance == WELFORD:  # the mean that is updated in a single lane, too
            yield replace(program, order=Order.running_mean)


def _refined(
    graph: Graph, output: NDArray[np.floating], form: str, near: search.Near
) -> Iterator[Program]:
    """Yield the programs of a second search, from nearly right ones and the rows they missed."""
    if near.programs:
        yield from search.refined(graph, output, form, near)


def _in_any_order(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    formats: Sequence[str],
    likely: Sequence[Program],
) -> Iterator[Program]:
    """Yield the programs that add up rows in any order, unless a factor explains the output."""
    if isinstance(graph, walks.Summed):
        programs = list(graph.unordered(formats, likely))
        in_known_orders = (
            replace(program, column_order=order)
            for program in programs
            if "column sum" in program.stored
            for order in walks.KNOWN_ORDERS
        )
        if not any(
            walks.is_scaled(graph, program, output, form)
            for program in chain(programs, in_known_orders)
        ):
            yield from programs


def _note(near: search.Near, program: Program, missed: NDArray[np.intp]) -> None:
    """Remember a storing program and the rows that it misses, if there are any."""
    if program.stored and len(missed):
        near.rows.update(missed.tolist())
        near.programs.append(program)


def _missed(measured: Measurement) -> NDArray[np.intp]:
    """Return the rows that a program misses, worst first, where it reproduces some others."""
    per_row = measured.per_row
    missed = np.flatnonzero(~(per_row <= LIMIT))
    if len(per_row) - len(missed) < MIN_REPRODUCED:
        return missed[:0]
    return missed[np.argsort(per_row[missed])[::-1]][:SAMPLED_ROWS]


def _finite(distance: float) -> float:
    """Return a distance as a number of JSON; a program that overflows has none that is finite."""
    return min(LARGEST, distance)  # in this order: LARGEST for NaN, too


def at_random_too(graph: Graph, output: NDArray[np.floating], form: str) -> Finding | None:
    """Return the program that rounds at random, where it explains an output of any size.

    That is for a kernel which another output has shown to do so.
    """
    for program in at_random.programs(graph, form):
        finding, _ = _find(graph, np.asarray(output), form, program, 0.0)
        if finding.explained:
            return finding
    return None


def _find(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    program: Program,
    least: float = at_random.MIN_INFORMATION,
) -> tuple[Finding, Measurement]:
    """Return how near a program is to an output; least: see at_random.score."""
    with np.errstate(over="ignore", invalid="ignore"):  # fp16 squares overflow
        measured = measure(graph, program, output, form, LIMIT)
    finding = Finding(program, measured.largest, measured.largest_row, 0.0, measured.mismatch)
    if finding.explained and program.output_rounding == "random":
        score = at_random.score(graph, program, output, form, least)
        return replace(finding, row_error=LIMIT / at_random.MAX_SCORE * score), measured
    if finding.explained and walks.is_walk(program):
        score = walks.score(graph, program, output, form)
        return replace(finding, row_error=score), measured
    if finding.explained:
        common = common_factor(graph, program, output, form, measured.shared)
        shift = LIMIT / MIN_SCORE * common_shift(graph, program, form, measured.shared)
        finding = replace(finding, common=common, row_error=max(finding.row_error, shift))
    return finding, measured


def _is_near(graph: Graph, output: NDArray[np.floating], form: str, program: Program) -> bool:
    """Return whether a program explains some columns of an output, so that all are worth a try."""
    width = output.shape[1]
    columns = np.unique(np.linspace(0, width - 1, min(width, SAMPLED_COLUMNS)).astype(np.intp))
    return cells(output[:, columns], graph.replay(program, columns), form).largest <= LIMIT


def _sample(measured: Measurement) -> NDArray[np.intp]:
    """Return the rows to try a program on: the worst ones, and others spread evenly."""
    per_row = measured.per_row
    worst = np.argsort(per_row)[::-1][: SAMPLED_ROWS // 2]
    spread = np.linspace(0, len(per_row) - 1, min(len(per_row), SAMPLED_ROWS // 2))
    return np.unique(np.concatenate([worst, spread.astype(np.intp)]))
