"""Samples: some groups of an output, and the part of a kernel that computes them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gonogo.arithmetic import Evaluation, Inputs
from gonogo.arithmetic.evaluation import Edits
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.program import NOTHING_STORED, Program
from gonogo.faults.changes import (
    Array,
    Edit,
    Elementwise,
    Fault,
    Indices,
    Mistaken,
    Moved,
    Replaced,
    Weighted,
)
from gonogo.graph import Graph, Mistake, Node
from gonogo.graph.axes import Cut, cuts
from gonogo.judgment.cells import misfit_of

MIN_GROUPS = 8
"""Groups of a sample: of fewer ones, others couldn't refute a fault."""


def cut_of(graph: Graph, output: str, axis: int | None = None) -> Cut | None:
    """Return the finest way to compute an output in parts; None if there is none.

    axis: that of the output along which the parts lie; None: any.
    """
    alone = Graph(graph.nodes, {output: graph.outputs[output]})
    fit = [cut for cut in cuts(alone) if output in cut.outputs]
    fit = [cut for cut in fit if axis in (None, cut.outputs[output])]
    return max(fit, key=lambda cut: cut.groups, default=None)


def some_groups(
    graph: Graph, output: str, elements: int, values: int = 1
) -> tuple[Cut | None, Indices | None]:
    """Return how an output is computed in parts, and groups that are spread over all.

    elements: of the widest value, about how many the groups have. values: of the output, how many
    at least. None where the whole has no more, or can't be cut.
    """
    cut, count = cut_of(graph, output), 0
    if cut is not None:
        widest = max(math.prod(node.shape) for node in graph.needed(output))
        per_group = max(math.prod(graph.outputs[output].shape) // cut.groups, 1)
        count = max(elements * cut.groups // max(widest, 1), -(-values // per_group), MIN_GROUPS)
    if cut is None or count >= cut.groups:
        return None, None
    return cut, np.unique(np.linspace(0, cut.groups - 1, count).astype(np.intp))


def with_worst(distance: Doubles, axis: int, count: int, groups: Indices) -> Indices:
    """Return every other one of some groups, and as many of those with the most misfit.

    distance: that of an output from its cells. axis: that along which its groups lie. count: how
    many there are.
    """
    by_group = np.moveaxis(distance, axis, 0).reshape(count, -1)
    misfits = np.array([misfit_of(part) for part in by_group])
    misfits[groups[::2]] = -1.0
    worst = misfits.argsort()[::-1][: len(groups) // 2]
    return np.union1d(groups[::2], worst)


class Sample:
    """An output's part in some groups, as it is right and with faults.

    Attributes:
        part: the graph that computes it; its nodes have the numbers of the whole graph's.
        inputs: the part's inputs.
        order: the nodes of the part, arguments first.
        base: the right values.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Inputs,
        output: str,
        cut: Cut | None = None,
        groups: Indices | None = None,
        program: Program = NOTHING_STORED,
    ) -> None:
        """Prepare a sample.

        Args:
            graph: the whole kernel.
            inputs: all of its inputs.
            output: the output's name.
            cut: how the groups are computed alone; None: the whole output.
            groups: their numbers, rising; needed with a cut.
            program: by which values are stored; it then also stores a wrong kernel's.
        """
        self.output, self.cut, self.program = output, cut, program
        self.groups = np.zeros(1, np.intp) if groups is None else groups
        self._whole = Graph(graph.nodes, {output: graph.outputs[output]})
        self._all_inputs = inputs
        self.part, self.inputs = self._of_groups(self.groups)
        self.order = self.part.needed(output)
        self._needed = {node.id for node in self.order}
        self.base = Evaluation(self.part, self.inputs, program).run(output)
        self._smooth = self.base
        """Values on which small effects are measured: a Tensix core's steps would hide them."""
        if program.is_tensix:
            self._smooth = Evaluation(self.part, self.inputs).run(output)
        self._others: dict[bytes, Evaluation] = {self.groups.tobytes(): self.base}

    @property
    def right(self) -> Array:
        """The output's right values."""
        return self.base.output(self.output)

    def part_of(self, array: Array) -> Array:
        """Return the sample's part of an array of the whole output's shape."""
        shape = self._whole.outputs[self.output].shape
        full = np.broadcast_to(array, shape)
        cut = self.cut
        return cut.part_of(full, cut.outputs[self.output], self.groups) if cut else full

    def effect(self, fault: Fault) -> Doubles:
        """Return a fault's effect on the output; NaN or inf where it isn't finite any more."""
        edits = {id: self._edit(edit) for id, edit in fault.edits.items() if id in self._needed}
        return self._effect(edits, self._smooth if fault.is_fitted else self.base)

    def effect_of(self, edits: Edits) -> Doubles:
        """Return the effect of small edits of the part on the output."""
        return self._effect(edits, self._smooth)

    def _effect(self, edits: Edits, base: Evaluation) -> Doubles:
        wrong = Evaluation(self.part, self.inputs, base.program, edits, base).run(self.output)
        after, before = wrong.output(self.output), base.output(self.output)
        with np.errstate(all="ignore"):
            effect = np.subtract(after, before, dtype=np.float64)
        return np.where((after == before) | (np.isnan(after) & np.isnan(before)), 0.0, effect)

    def _edit(self, edit: Edit | Replaced | Mistaken) -> Edit | Replaced:
        """Return an edit of the whole graph as one of the part."""
        if isinstance(edit, Replaced):
            return edit
        if isinstance(edit, Mistaken):
            wrong = self._of_mistake(edit.mistake)
            return Replaced(lambda *args: wrong)
        part_node = self.part.nodes[edit.node.id]
        changed, change = edit.changed, edit.change
        others = tuple(self.part.nodes[other.id] for other in edit.others)
        axis = self.cut.axes.get(changed.id) if self.cut else None
        if axis is None or not isinstance(change, Moved | Weighted):
            return Edit(part_node, change, edit.at, others)
        if change.axis == axis - len(changed.shape):
            places = self._places(changed, axis)
            if isinstance(change, Weighted):
                change = replace(change, weights=change.weights[places])
            else:
                change = self._moved(changed, axis, change, change.source[places])
        return Edit(part_node, change, edit.at)

    def _of_mistake(self, mistake: Mistake) -> Array:
        """Return the sample of the output that a wrong function computes.

        What has no name is another operation there; so a device computes it by its own program.
        """
        graph, program = mistake.graph, self.program
        named = {key: store for key, store in program.stored.items() if "#" not in key}
        program = replace(program, stored=named)
        if program.rules:
            last = graph.outputs[self.output].key
            program = (mistake.program or NOTHING_STORED).before_last_rounding(last)
        axis = self.cut.outputs[self.output] if self.cut else None
        cut = cut_of(graph, self.output, axis) if self.cut else None
        if self.cut and cut and cut.groups == self.cut.groups:
            return Sample(graph, self._all_inputs, self.output, cut, self.groups, program).right
        whole = Evaluation(graph, self._all_inputs, program).run(self.output)
        return self.part_of(whole.output(self.output))

    def _moved(self, node: Node, axis: int, change: Moved, source: Indices) -> Elementwise:
        """Return a move as a change whose elements come from groups outside the sample."""
        assert self.cut is not None
        size = node.shape[axis] // self.cut.groups
        groups = np.unique(source // size)
        key = groups.tobytes()
        if key not in self._others:
            self._others[key] = Evaluation(*self._of_groups(groups), self.program).run(self.output)
        places = np.searchsorted(groups, source // size) * size + source % size
        other = self._others[key].values[node.id].take(places, axis)
        if change.is_added:
            return Elementwise(lambda value: value + other)
        return Elementwise(lambda value: other)

    def _places(self, node: Node, axis: int) -> Indices:
        """Return the places of the sample on an axis of the whole graph's node."""
        assert self.cut is not None
        size = node.shape[axis] // self.cut.groups
        places: Indices = (self.groups[:, None] * size + np.arange(size)).ravel()
        return places

    def _of_groups(self, groups: Indices) -> tuple[Graph, Inputs]:
        """Return the graph that computes the given groups, and its inputs."""
        cut = self.cut
        if cut is None:
            return self._whole, self._all_inputs
        inputs = {
            name: cut.part_of(np.asarray(self._all_inputs[name]), cut.inputs[name], groups)
            for name in self._whole.inputs
            if name in self._all_inputs
        }
        return cut.part_graph(self._whole, groups), inputs
