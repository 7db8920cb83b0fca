"""The other rungs of the ladder: programs that may explain an output which the one found doesn't.

A detection limit asks whether a changed output would be explained, and the ladder would try them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits.earlier import error_class
from gonogo.judging.limits.stand_ins import simpler_program
from gonogo.numerics.expectation import Array
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.cells import Cells, cells
from gonogo.numerics.replay.common import common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.quantity import Quantity
from gonogo.numerics.replay.shifts import common_shift

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
    known = {error_class(program)}
    for rung in sorted(ladder.plain(graph), key=lambda rung: rung.product != program.product):
        if error_class(rung) not in known:
            known.add(error_class(rung))
            yield rung


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


class Others:
    """The other rungs than a program's, on some rows of a graph, with what they compute there."""

    def __init__(self, graph: Graph, program: Program) -> None:
        self.graph = graph
        self.program = program
        self._replays: dict[tuple[int, bytes], Quantity] = {}

    @cached_property
    def _rungs(self) -> list[Program]:
        return list(rungs(self.graph, self.program))

    def explain(self, changed: NDArray[np.floating], form: str, distance: Array) -> bool:
        """Return whether one of them explains a changed output (rows, N).

        form: the output's format. distance: how far each element lies outside its cell by the
        program.
        """
        columns = np.sort(np.argsort(distance.max(axis=0))[::-1][:PROBED_COLUMNS])
        for place, rung in enumerate(self._rungs):
            mode = rung.output_rounding
            probed = cells(changed[:, columns], self._replay(place, columns), form, mode)
            if (
                is_explained(probed)
                and is_whole_explained(self.graph, rung, changed, form)
                and simpler_program(self.graph, changed, rung, form) is None
            ):
                return True
        return False

    def _replay(self, place: int, columns: NDArray[np.intp]) -> Quantity:
        key = (place, columns.tobytes())
        if key not in self._replays:
            self._replays[key] = self.graph.replay(self._rungs[place], columns)
        return self._replays[key]


def is_whole_explained(
    graph: Graph, program: Program, changed: NDArray[np.floating], form: str
) -> bool:
    """Return whether a program explains an output: its elements, its rows and what they share."""
    measured = cells(changed, graph.replay(program), form, program.output_rounding)
    return is_explained(measured) and (
        common_factor(graph, program, changed, form, measured.shared) <= ladder.MAX_COMMON
        and not common_shift(graph, program, form, measured.shared)
    )


def is_explained(measured: Cells) -> bool:
    """Return whether all elements and rows are within the limit."""
    return measured.is_within(ladder.LIMIT)
