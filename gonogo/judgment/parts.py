"""Parts of an output to search on and to confirm on: some of the groups that nothing mixes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic.formats import Doubles
from gonogo.faults.changes import Indices
from gonogo.graph import Graph
from gonogo.graph.axes import Cut
from gonogo.judgment.blocks import widest
from gonogo.judgment.fits import Output
from gonogo.judgment.sample import Sample, cut_of, with_worst

GROUPS, ELEMENTS, MOST, WIDEST = 8, 2**9, 2**14, 2**18
"""Groups of a part, and elements of the output: as many groups as it takes to have both, but two of
them if these have more than MOST, and GROUPS where the kernel's widest value has more than WIDEST
in more of them."""


@dataclass(frozen=True)
class OutputPart:
    """Some groups of an output.

    Attributes:
        sample: the part of the kernel that computes them.
        values: the output's values.
        shift: what is added to a replay of them.
    """

    sample: Sample
    values: Doubles
    shift: Doubles


def parts(output: Output, graph: Graph, shift: Doubles) -> tuple[OutputPart, OutputPart]:
    """Return a part to search on and another one to confirm on.

    Where all elements depend on all, both are the whole kernel. shift: what is added to a replay of
    the output.
    """
    cut, count = _cut_and_count(output, graph)
    if cut is None:
        whole = _part(output, graph, shift, None, None)
        return whole, whole
    chosen = np.linspace(0, cut.groups - 1, 2 * count).astype(np.intp)
    searched, confirmed = chosen[::2], chosen[1::2]
    return (
        _part(output, graph, shift, cut, searched),
        _part(output, graph, shift, cut, confirmed),
    )


def missed_part(output: Output, graph: Graph, shift: Doubles, distance: Doubles) -> OutputPart:
    """Return a part that has the groups with the most misfit.

    distance: that of the whole output from the cells of a program.
    """
    cut, count = _cut_and_count(output, graph)
    if cut is None:
        return _part(output, graph, shift, None, None)
    spread = np.linspace(0, cut.groups - 1, 2 * count).astype(np.intp)
    groups = with_worst(distance, cut.outputs[output.name], cut.groups, spread)
    return _part(output, graph, shift, cut, groups)


def _cut_and_count(output: Output, graph: Graph) -> tuple[Cut | None, int]:
    """Return how an output is cut into groups, and how many of them make a part."""
    cut = cut_of(graph, output.name)
    if cut is None or cut.groups < 4:
        return None, 0
    size = max(1, output.values.size // cut.groups)
    widest_size = max(1, widest(graph.needed(output.name)) // cut.groups)
    count = max(GROUPS, min(-(-ELEMENTS // size), WIDEST // widest_size))
    return cut, min(cut.groups // 2, count, max(2, MOST // size))


def _part(
    output: Output, graph: Graph, shift: Doubles, cut: Cut | None, groups: Indices | None
) -> OutputPart:
    sample = Sample(graph, output.kernel.inputs, output.name, cut, groups)
    return OutputPart(sample, sample.part_of(output.values), sample.part_of(shift))
