"""Samples: a kernel on some of the groups that nothing mixes, such as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic import Inputs, Program
from gonogo.arithmetic.evaluation import Array
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.quantity import Labels
from gonogo.graph import Graph
from gonogo.graph.axes import cuts
from gonogo.judgment.fits import Output

GROUPS, ELEMENTS = 8, 512
"""Groups of a sample, and elements of the output: as many groups as it takes to have both."""


@dataclass(frozen=True)
class Sample:
    """Some groups of a kernel, as a kernel of its own.

    Attributes:
        graph: computes their part of the output.
        inputs: their parts of the inputs.
        output: its name.
        values: their part of the output.
        shift: what is added to a replay of them.
        keys: the key of each node in the whole graph, by that in the sample's.
    """

    graph: Graph
    inputs: Inputs
    output: str
    values: Doubles
    shift: Doubles
    keys: Mapping[str, str]

    def named(self, program: Program) -> Program:
        """Return a program of the sample as one of the whole kernel."""
        stored = {}
        for name, form in program.stored.items():
            key, dot, part = name.partition(".")
            stored[self.keys[key] + dot + part] = form
        return Program(stored=stored, order=program.order)


def samples(output: Output, graph: Graph, shift: Doubles) -> tuple[Sample, Sample]:
    """Return a sample to search on and another one to confirm on.

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
    cut = next((cut for cut in cuts(alone) if output.name in cut.outputs), None)
    if cut is None or cut.groups < 4:
        whole = Sample(alone, inputs, output.name, output.values, shift, keys)
        return whole, whole
    each = max(1, output.values.size // cut.groups)
    count = min(cut.groups // 2, max(GROUPS, -(-ELEMENTS // each)))
    if any(node.operation == "constant" and node.id in cut.axes for node in alone.nodes):
        chosen = np.repeat(np.arange(count), 2)  # a block of the graph has its first groups' constants
    else:
        chosen = np.linspace(0, cut.groups - 1, 2 * count).astype(int)
    block = cut.block(alone, 0, count)

    def taken(groups: Labels) -> Sample:
        def part(array: Array, axis: int | None) -> Array:
            if axis is None:
                return array
            size = array.shape[axis] // cut.groups
            return array.take((groups[:, None] * size + np.arange(size)).ravel(), axis)

        parts = {name: part(array, cut.inputs[name]) for name, array in inputs.items()}
        axis = cut.outputs[output.name]
        return Sample(
            block, parts, output.name, part(output.values, axis), part(shift, axis), keys
        )

    return taken(chosen[::2]), taken(chosen[1::2])


def _alone(graph: Graph, output: str) -> Graph:
    """Return the graph of one output, with only the nodes that it needs."""
    nodes = graph.needed(output)
    places = {node.id: at for at, node in enumerate(nodes)}
    rows = [node.row | {"args": [places[arg.id] for arg in node.args]} for node in nodes]
    return Graph.of_rows(rows, {output: places[graph.outputs[output].id]})
