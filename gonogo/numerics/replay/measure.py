"""How near a program is to an output: by the graph's compiled path, else in blocks of rows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.jit import pays
from gonogo.numerics.replay import spans
from gonogo.numerics.replay.cells import Measurement, cells
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program


@runtime_checkable
class Measurable(Protocol):
    """A graph with a compiled path."""

    def measure(
        self, program: Program, output: NDArray[np.floating], form: str, limit: float
    ) -> Measurement | None:
        """Return what `plain` returns; None for programs that the path doesn't cover."""


def measure(
    graph: Graph, program: Program, output: NDArray[np.floating], form: str, limit: float
) -> Measurement:
    """Return how near a program is to `output` (rows, N), in its format `form`.

    limit: the distance beyond which elements are counted.
    """
    is_plain = not program.stored and program.output_rounding == "even"
    if is_plain and pays(output.size) and isinstance(graph, Measurable):
        measured = graph.measure(program, output, form, limit)
        if measured is not None:
            return measured
    return plain(graph, program, output, form, limit)


def plain(
    graph: Graph, program: Program, output: NDArray[np.floating], form: str, limit: float
) -> Measurement:
    """Return the same by the definition, in NumPy."""
    mode = program.output_rounding
    blocks = spans.even(*graph.shape)
    if len(blocks) == 1:
        replay = graph.replay(program)
        return cells(output, replay, form, mode).measurement(limit)
    parts = []
    for start, stop in blocks:
        replay = graph.some(np.arange(start, stop)).replay(program)
        parts.append(cells(output[start:stop], replay, form, mode).measurement(limit))
    return Measurement.joined(parts)
