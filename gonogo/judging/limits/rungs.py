"""The other rungs of the ladder: programs that may explain an output which the one found doesn't.

A detection limit asks whether a changed output would be explained, and the ladder would try them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.cells import Cells, cells
from gonogo.numerics.replay.common import common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Order, Program

PROBED_COLUMNS = 16
"""The columns with the largest distances, on which a rung is tried first."""


def rungs(graph: Graph, program: Program) -> Iterator[Program]:
    """Yield the other programs that store what `program` stores, one of each error.

    How a kernel computes the variance, and in which order it adds up, decides how far its rows are
    off; the order of the products does not, so it is that of `program` where the graph has it.
    """
    if program.stored:
        if not any(name.startswith("sum") for name in program.stored):
            yield from (
                replace(program, order=order) for order in Order if order is not program.order
            )
        return
    known = {_error(program)}
    for rung in sorted(ladder.plain(graph), key=lambda rung: rung.product != program.product):
        if _error(rung) not in known:
            known.add(_error(rung))
            yield rung


def earlier(graph: Graph, program: Program) -> list[Program]:
    """Return the rungs before a program that stores nothing, one of each error.

    They are simpler: the ladder comes to the program only where none of them explains an output.
    """
    if program.stored or program.output_rounding != "even":
        return []
    before = takewhile(lambda rung: rung != program, ladder.plain(graph))
    by_error = {_error(rung): rung for rung in before if _error(rung) != _error(program)}
    return list(by_error.values())


def any_explains(
    programs: Iterable[Program], graph: Graph, output: NDArray[np.floating], form: str
) -> bool:
    """Return whether one of some programs explains an output (rows, N) of a graph."""
    columns = np.unique(np.linspace(0, output.shape[1] - 1, PROBED_COLUMNS).astype(np.intp))
    return any(
        is_explained(cells(output[:, columns], graph.replay(program, columns), form))
        and is_whole_explained(graph, program, output, form)
        for program in programs
    )


def _error(program: Program) -> tuple[str, ...]:
    return program.variance, program.order, program.column_order


def explain(
    graph: Graph, program: Program, changed: NDArray[np.floating], form: str, distance: Array
) -> bool:
    """Return whether another rung than `program` explains a changed output (rows, N).

    form: the output's format. distance: how far each element lies outside its cell by `program`.
    """
    columns = np.sort(np.argsort(distance.max(axis=0))[::-1][:PROBED_COLUMNS])
    for rung in rungs(graph, program):
        mode = rung.output_rounding
        probed = cells(changed[:, columns], graph.replay(rung, columns), form, mode)
        if is_explained(probed) and is_whole_explained(graph, rung, changed, form):
            return True
    return False


def is_whole_explained(
    graph: Graph, program: Program, changed: NDArray[np.floating], form: str
) -> bool:
    """Return whether a program explains an output: its elements, its rows and what they share."""
    measured = cells(changed, graph.replay(program), form, program.output_rounding)
    return is_explained(measured) and (
        common_factor(graph, program, changed, form, measured.shared) <= ladder.MAX_COMMON
    )


def is_explained(measured: Cells) -> bool:
    """Return whether all elements and rows are within the limit."""
    return measured.is_within(ladder.LIMIT)
