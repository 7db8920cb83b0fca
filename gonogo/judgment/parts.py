"""Parts of an output to search on and to confirm on: some of the groups that nothing mixes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import Doubles
from gonogo.graph import Graph
from gonogo.judgment.changes import Indices
from gonogo.judgment.fits import Output
from gonogo.judgment.sample import Sample, cut_of

GROUPS, ELEMENTS, MOST = 8, 2**9, 2**14
"""Groups of a part, and elements of the output: as many groups as it takes to have both, but two of
them if these have more than the last number."""


@dataclass(frozen=True)
class Part:
    """Some groups of an output.

    Attributes:
        sample: the part of the kernel that computes them.
        values: the output's values.
        shift: what is added to a replay of them.
        keys: the key of each node in the whole graph, by that in the sample's.
    """

    sample: Sample
    values: Doubles
    shift: Doubles
    keys: dict[str, str]

    def whole(self, program: Program) -> Program:
        """Return a program of the part as one of the whole kernel."""
        stored = {}
        for name, form in program.stored.items():
            key, dot, rest = name.partition(".")
            stored[self.keys[key] + dot + rest] = form
        return replace(program, stored=stored)


def parts(output: Output, graph: Graph, shift: Doubles) -> tuple[Part, Part]:
    """Return a part to search on and another one to confirm on.

    Where all elements depend on all, both are the whole kernel. shift: what is added to a replay of
    the output.
    """
    cut = cut_of(graph, output.name)
    if cut is not None and cut.groups < 4:
        cut = None

    def part_of(groups: Indices | None) -> Part:
        sample = Sample(graph, output.kernel.inputs, output.name, cut, groups)
        keys = {node.key: graph.nodes[id].key for id, node in sample.part_nodes.items()}
        return Part(sample, sample.part_of(output.values), sample.part_of(shift), keys)

    if cut is None:
        whole = part_of(None)
        return whole, whole
    size = max(1, output.values.size // cut.groups)
    count = min(cut.groups // 2, max(GROUPS, -(-ELEMENTS // size)), max(2, MOST // size))
    chosen = np.linspace(0, cut.groups - 1, 2 * count).astype(np.intp)
    return part_of(chosen[::2]), part_of(chosen[1::2])
