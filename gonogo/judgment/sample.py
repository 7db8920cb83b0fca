"""Samples: some groups of an output, and the part of a kernel that computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gonogo.arithmetic import Inputs, exact, value_of
from gonogo.arithmetic.formats import Doubles, format_and_mode, round_to
from gonogo.arithmetic.program import Program
from gonogo.graph import Graph, Node
from gonogo.graph.axes import Cut, cuts
from gonogo.judgment.cells import misfit_of
from gonogo.judgment.changes import (
    Array,
    Edit,
    Elementwise,
    Fault,
    Indices,
    Moved,
    Replaced,
    Weighted,
)

NOTHING_STORED = Program()
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
        part: the graph that computes it; Cut.sample numbers its nodes anew.
        inputs: the part's inputs.
        order: the nodes of the part, arguments first.
        base: by the id of such a node, its right value.
        part_nodes: by the id of a node of the whole graph, that of the part.
        keys: by the id of a node of the part, its key in the whole graph.
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
        whole = graph.needed(output)
        self._whole = Graph(graph.nodes, {output: graph.outputs[output]})
        self._all_inputs = inputs
        self.part, self.inputs = self._of_groups(self.groups)
        self.order = self.part.needed(output)
        self.part_nodes = {node.id: part for node, part in zip(whole, self.order, strict=True)}
        # nodes without names are numbered anew in a part
        self.keys = {part.id: graph.nodes[id].key for id, part in self.part_nodes.items()}
        self.base = self._base(self.part, self.inputs)
        self._others: dict[bytes, dict[int, Array]] = {self.groups.tobytes(): self.base}

    @property
    def right(self) -> Array:
        """The output's right values."""
        return self.base[self.part.outputs[self.output].id]

    def part_of(self, array: Array) -> Array:
        """Return the sample's part of an array of the whole output's shape."""
        shape = self._whole.outputs[self.output].shape
        full = np.broadcast_to(array, shape)
        cut = self.cut
        return cut.part_of(full, cut.outputs[self.output], self.groups) if cut else full

    def effect(self, fault: Fault) -> Doubles:
        """Return what a fault adds to the output; NaN or inf where that isn't finite any more."""
        edits = fault.edits.items()
        return self.effect_of({id: self._edit(edit) for id, edit in edits if id in self.part_nodes})

    def effect_of(self, edits: Mapping[int, Callable[..., Array]]) -> Doubles:
        """Return what edits of the part, by the ids of the whole graph, add to the output."""
        wrong, right = self._with(edits), self.right
        with np.errstate(all="ignore"):
            effect = np.asarray(wrong, np.float64) - right
        return np.where((wrong == right) | (np.isnan(wrong) & np.isnan(right)), 0.0, effect)

    def _with(self, edits: Mapping[int, Callable[..., Array]]) -> Array:
        """Return the output's values with edits."""
        wrong = {self.part_nodes[id].id: edit for id, edit in edits.items()}
        values: dict[int, Array] = {}
        with np.errstate(all="ignore"):
            for node in self.order:
                if node.id in wrong:
                    edit = wrong[node.id]
                    given = (*node.args, *getattr(edit, "others", ()))
                    args = [values.get(arg.id, self.base[arg.id]) for arg in given]
                    value = np.asarray(edit(*(args or [self.base[node.id]])))
                elif any(arg.id in values for arg in node.args):
                    args = [values.get(arg.id, self.base[arg.id]) for arg in node.args]
                    value = value_of(node, args)
                else:
                    continue
                values[node.id] = self._stored(node, value)
        return values.get(self.order[-1].id, self.base[self.order[-1].id])

    def _edit(self, edit: Edit | Replaced) -> Edit | Replaced:
        """Return an edit of the whole graph as one of the part."""
        if isinstance(edit, Replaced):
            return edit
        part_node = self.part_nodes[edit.node.id]
        changed, change = edit.changed, edit.change
        others = tuple(self.part_nodes[other.id] for other in edit.others)
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

    def _moved(self, node: Node, axis: int, change: Moved, source: Indices) -> Elementwise:
        """Return a move as a change whose elements come from groups outside the sample."""
        assert self.cut is not None
        size = node.shape[axis] // self.cut.groups
        groups = np.unique(source // size)
        key = groups.tobytes()
        if key not in self._others:
            self._others[key] = self._base(*self._of_groups(groups))
        places = np.searchsorted(groups, source // size) * size + source % size
        other = self._others[key][self.part_nodes[node.id].id].take(places, axis)
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
        return cut.sample(self._whole, groups), inputs

    def _base(self, part: Graph, inputs: Inputs) -> dict[int, Array]:
        """Return the right values of a part of the kernel."""
        edits = {
            node.id: self._store_of(node)
            for node in part.needed(self.output)
            if self.keys[node.id] in self.program.stored and node.kind == "float"
        }
        return exact(part, inputs, edits, outputs=[self.output])

    def _stored(self, node: Node, value: Array) -> Array:
        stored = self.program.stored.get(self.keys[node.id]) if node.kind == "float" else None
        return round_to(value, *format_and_mode(stored)) if stored else value

    def _store_of(self, node: Node) -> Callable[..., Array]:
        def store(*args: Array) -> Array:
            return self._stored(node, value_of(node, args) if node.args else args[0])

        return store
