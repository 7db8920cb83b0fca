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

from gonogo.numerics.replay import search
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.common import common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import WELFORD, Order, Program

LIMIT = search.LIMIT
"""The largest distance from a cell, and the largest error shared by a row, that is explained."""
MAX_COMMON = 2.0**-22
"""The largest common factor that is explained: two units in the last place, the error of an
approximate rsqrt, as GPUs and vector units have it."""
LARGEST = float(np.finfo(np.float64).max)
MIN_REPRODUCED = 4
"""Rows that a program reproduces by no chance, so that those it misses tell what it lacks."""
SAMPLED_ROWS = 12
"""Rows on which a program is tried before the whole output; half of them its worst."""


@dataclass(frozen=True)
class Finding:
    """The program nearest to an output, and how near it is.

    Attributes:
        program: the program; it explains the output where `explained`.
        distance: the largest distance of an element from its cell, in standard deviations.
        row_error: the largest error that a row shares, in standard deviations.
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
) -> Finding:
    """Return the first program that explains `output` (rows, N), else the nearest one.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: finite values.
        form: the output's format.
        formats: the narrow formats of the kernel's tensors, in which it may store.
    """
    y = np.asarray(output)
    near = search.Near()
    searched = search.candidates(graph, y, form, formats)
    # evaluated last: the rows that the programs before it missed are known then
    again = _refined(graph, y, form, near)
    finding = nearest(graph, y, form, chain(plain(graph), searched, again), near)
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
    if near.programs and graph.shape[0] > 1:
        yield from search.refined(graph, output, form, near)


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
    return distance if distance <= LARGEST else LARGEST


def _find(
    graph: Graph, output: NDArray[np.floating], form: str, program: Program
) -> tuple[Finding, Measurement]:
    """Return how near a program is to an output."""
    with np.errstate(over="ignore", invalid="ignore"):  # fp16 squares overflow
        measured = measure(graph, program, output, form, LIMIT)
    finding = Finding(program, measured.largest, measured.largest_row, 0.0, measured.mismatch)
    if finding.explained:
        common = common_factor(graph, program, output, form, measured.shared)
        finding = replace(finding, common=common)
    return finding, measured


def _sample(measured: Measurement) -> NDArray[np.intp]:
    """Return the rows to try a program on: the worst ones, and others spread evenly."""
    per_row = measured.per_row
    worst = np.argsort(per_row)[::-1][: SAMPLED_ROWS // 2]
    spread = np.linspace(0, len(per_row) - 1, min(len(per_row), SAMPLED_ROWS // 2))
    return np.unique(np.concatenate([worst, spread.astype(np.intp)]))
