"""Parts of a kernel to search and to confirm on: some of the groups that nothing mixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic import Inputs, Program
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.quantity import Labels
from gonogo.graph import Graph
from gonogo.judgment.fits import Output
from gonogo.judgment.sample import cut_of

GROUPS, ELEMENTS = 8, 512
"""Groups of a part, and elements of the output: as many groups as it takes to have both."""


@dataclass(frozen=True)
class Part:
    """Some groups of a kernel, as a kernel of its own.

    Attributes:
        graph: computes their part of the output.
        inputs: their parts of the inputs.
        output: its name.
        values: their part of the output.
        shift: what is added to a replay of them.
        keys: the key of each node in the whole graph, by that in the part's.
    """

    graph: Graph
    inputs: Inputs
    output: str
    values: Doubles
    shift: Doubles
    keys: Mapping[str, str]

    def named(self, program: Program) -> Program:
        """Return a program of the part as one of the whole kernel."""
        stored = {}
        for name, form in program.stored.items():
            key, dot, part = name.partition(".")
            stored[self.keys[key] + dot + part] = form
        return Program(stored=stored, order=program.order)


def parts(output: Output, graph: Graph, shift: Doubles) -> tuple[Part, Part]:
    """Return a part to search on and another one to confirm on.

    Where all elements depend on all, both are the whole kernel. shift: what is added to a replay of
    the output.
    """
    alone = _alone(graph, output.name)
    keys = {
        node.key: whole.key
        for node, whole in zip(alone.nodes, graph.needed(output.name), strict=True)
    }
    inputs = {name: output.kernel.inputs[name] for name in alone.inputs}
    shift = np.broadcast_to(shift, output.values.shape)
    cut = cut_of(alone, output.name)
    if cut is None or cut.groups < 4:
        whole = Part(alone, inputs, output.name, output.values, shift, keys)
        return whole, whole
    size = max(1, output.values.size // cut.groups)
    count = min(cut.groups // 2, max(GROUPS, -(-ELEMENTS // size)))
    chosen = np.linspace(0, cut.groups - 1, 2 * count).astype(int)
    axis = cut.outputs[output.name]

    def part_of(groups: Labels) -> Part:
        return Part(
            cut.sample(alone, groups),
            {name: cut.part_of(array, cut.inputs[name], groups) for name, array in inputs.items()},
            output.name,
            cut.part_of(output.values, axis, groups),
            cut.part_of(shift, axis, groups),
            keys,
        )

    return part_of(chosen[::2]), part_of(chosen[1::2])


def _alone(graph: Graph, output: str) -> Graph:
    """Return the graph of one output, with only the nodes that it needs."""
    nodes = graph.needed(output)
    places = {node.id: at for at, node in enumerate(nodes)}
    rows = [node.row | {"args": [places[arg.id] for arg in node.args]} for node in nodes]
    return Graph.of_rows(rows, {output: places[graph.outputs[output].id]})
