"""Axes followed through a graph: along which of them outputs can be computed in blocks.

Two axes belong together where equal places on them hold what belongs together: an axis that is
kept, a summed axis of both factors of a product, the first of the axes that a reshape splits or
merges. Such a class of axes can be cut where no operation mixes what lies along it. All its axes
are then cut at the same fractions of their lengths.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gonogo.graph.data import Graph, Node
from gonogo.graph.operations import Array, Shape, decode_constant, encode_constant

Place = tuple[int, int]
"""A node's id, and one of its axes."""
BLOCK_FORMATS = ("bfp", "int")
"""Beginnings of the names of formats in which elements share an exponent or a scale."""
TOTALS = ("sum", "mean", "matmul", "einsum")
"""Operations whose result for the whole follows from those for blocks."""


@dataclass(frozen=True)
class Cut:
    """A way to compute outputs in blocks.

    Attributes:
        groups: into how many parts the axes can be cut at most.
        axes: by the id of a node, the axis of its value that is cut; others are taken whole.
        inputs: the axis of each input that is cut; None: each block takes the whole input.
        outputs: the outputs that blocks give in parts, and the axis along which they lie.
        totals: outputs that are the "sum", or the "mean" by the blocks' sizes, over the blocks.
    """

    groups: int
    axes: Mapping[int, int]
    inputs: Mapping[str, int | None]
    outputs: Mapping[str, int]
    totals: Mapping[str, Literal["sum", "mean"]]

    def part(self, array: Array, axis: int | None, start: int, stop: int) -> Array:
        """Return an array's part of the groups from start to stop along an axis."""
        if axis is None:
            return array
        size = array.shape[axis] // self.groups
        return array[(slice(None),) * axis + (slice(start * size, stop * size),)]

    def part_of(self, array: Array, axis: int | None, groups: NDArray[np.intp]) -> Array:
        """Return an array's part of any groups along an axis."""
        if axis is None:
            return array
        size = array.shape[axis] // self.groups
        elements: Array = array.take((groups[:, None] * size + np.arange(size)).ravel(), axis)
        return elements

    def part_graph(self, graph: Graph, groups: NDArray[np.intp]) -> Graph:
        """Return the graph that computes any groups, rising, from the inputs' parts.

        It has all of the graph's nodes, which keep their numbers and their uses. Those that the
        cut's outputs don't need keep their shapes, too: they can't be evaluated.
        """
        outputs = (*self.outputs, *self.totals)
        needed = {node.id for node in graph.needed(*outputs)} & set(self.axes)
        rows = [
            node.row | (self._resized(node, groups) if node.id in needed else {})
            for node in graph.nodes
        ]
        return Graph.of_rows(rows, {name: graph.outputs[name].id for name in outputs})

    def _resized(self, node: Node, groups: NDArray[np.intp]) -> dict[str, Any]:
        """Return the shape and attributes of a node's part."""
        axis, attributes = self.axes[node.id], dict(node.attributes)
        size = node.shape[axis] // self.groups * len(groups)
        shape = (*node.shape[:axis], size, *node.shape[axis + 1 :])
        if node.operation == "constant":
            attributes = encode_constant(self.part_of(decode_constant(**attributes), axis, groups))
        elif node.operation == "slice":
            slices = attributes["slices"]
            attributes["slices"] = (*slices[:axis], (0, size, 1), *slices[axis + 1 :])
        elif "shape" in attributes:
            attributes["shape"] = shape
        return {"shape": shape, "attributes": attributes}


def cuts(graph: Graph) -> list[Cut]:
    """Return the ways to compute outputs in blocks, those that give the most outputs first."""
    classes = _Classes()
    mixing: list[tuple[Place, int]] = []
    """An axis, and the node that mixes what lies along it."""
    for node in graph.nodes:
        carried, joined = _carried(node), _joined(node)
        for place, other in (*carried, *joined):
            classes.join(place, other)
        moved = {place for place, _ in carried}
        mixing += [(place, node.id) for arg in node.args for place in _places(arg) - moved]
        mixing += [((node.id, axis), node.id) for axis in _broken(node, carried)]
    members: dict[Place, list[Place]] = defaultdict(list)
    mixers: dict[Place, set[int]] = defaultdict(set)
    for place in sorted(place for node in graph.nodes for place in _places(node)):
        members[classes.root(place)].append(place)
    for place, id in mixing:
        mixers[classes.root(place)].add(id)
    every = [_cut(graph, places, mixers[root]) for root, places in members.items()]
    useful = [cut for cut in every if cut.groups > 1 and (cut.outputs or cut.totals)]
    return sorted(
        useful, key=lambda cut: (len(cut.outputs) + len(cut.totals), cut.groups), reverse=True
    )


def _cut(graph: Graph, places: list[Place], mixers: set[int]) -> Cut:
    axes = dict(places)
    twice = {id for id, axis in places if axes[id] != axis}  # blocks would be a diagonal's
    outputs: dict[str, int] = {}
    totals: dict[str, Literal["sum", "mean"]] = {}
    used: set[int] = set()
    for name, output in graph.outputs.items():
        needed = {node.id for node in graph.needed(name)}
        mixed = needed & (mixers | twice)
        total = output
        while total.operation in ("reshape", "transpose"):
            total = total.args[0]
        if not mixed and output.id in axes:
            outputs[name] = axes[output.id]
        elif mixed == {total.id} and total.id not in axes and total.operation in TOTALS:
            totals[name] = "mean" if total.operation == "mean" else "sum"
        else:
            continue
        used |= needed
    sizes = [graph.nodes[id].shape[axis] for id, axis in places if id in used]
    inputs = {name: axes.get(node.id) for name, node in graph.inputs.items()}
    return Cut(math.gcd(*sizes), axes, inputs, outputs, totals)


class _Classes:
    """Axes that belong together (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[Place, Place] = {}

    def root(self, place: Place) -> Place:
        while (parent := self._parents.get(place, place)) != place:
            place = parent
        return place

    def join(self, place: Place, other: Place) -> None:
        self._parents[self.root(place)] = self.root(other)


def _places(node: Node) -> set[Place]:
    """Return a node's axes with more than one element; along the others nothing can be cut."""
    return {(node.id, axis) for axis, size in enumerate(node.shape) if size > 1}


def _carried(node: Node) -> list[tuple[Place, Place]]:
    """Return (axis of an argument, axis of the result) for each axis that is kept as it is."""
    pairs = _alignment(node)
    return [((node.args[k].id, i), (node.id, j)) for k, i, j in pairs if node.args[k].shape[i] > 1]


def _alignment(node: Node) -> Iterator[tuple[int, int, int]]:
    """Yield (argument, its axis, axis of the result) for each axis that is kept."""
    attributes, rank = node.attributes, len(node.shape)
    first = node.args[0].shape if node.args else ()
    match node.operation:
        case "transpose":
            yield from ((0, axis, j) for j, axis in enumerate(attributes["order"]))
        case "reshape":
            yield from ((0, i, j) for i, j in _leading(first, node.shape))
        case "slice":
            for axis, limits in enumerate(attributes["slices"]):
                if limits == (0, first[axis], 1):
                    yield 0, axis, axis
        case "sliding_window_view":
            yield from ((0, i, i) for i in range(len(first)) if i not in attributes["axes"])
        case "gather":
            yield from _gathered(node)
        case "matmul":
            for k, end in ((0, -2), (1, -1)):
                count = len(node.args[k].shape)
                yield k, count + end, rank + end
                yield from _right_aligned(node, k, range(count - 2))
        case "einsum":
            terms, _, result = attributes["subscripts"].partition("->")
            for k, term in enumerate(terms.split(",")):
                yield from ((k, i, result.index(x)) for i, x in enumerate(term) if x in result)
        case _:
            for k, arg in enumerate(node.args):
                is_mixed = node.operation == "concatenate" or (
                    node.operation == "take_along_axis" and k == 0
                )
                mixed = attributes["axis"] if is_mixed else None
                yield from _right_aligned(node, k, set(range(len(arg.shape))) - {mixed})


def _right_aligned(node: Node, k: int, axes: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the axes of an argument that broadcasting keeps."""
    shape = node.args[k].shape
    shift = len(node.shape) - len(shape)
    yield from ((k, i, i + shift) for i in axes if shape[i] == node.shape[i + shift])


def _leading(before: Shape, after: Shape) -> Iterator[tuple[int, int]]:
    """Yield the axes of a reshape that are kept, or the first of those split or merged."""
    if 0 in before:
        return
    old = [i for i, size in enumerate(before) if size != 1]
    new = [j for j, size in enumerate(after) if size != 1]
    while old and new:
        i, j = old.pop(0), new.pop(0)
        yield i, j
        left, right = before[i], after[j]
        while left != right:
            if left < right:
                left *= before[old.pop(0)]
            else:
                right *= after[new.pop(0)]


def _gathered(node: Node) -> Iterator[tuple[int, int, int]]:
    """Yield the axes of a gather: those not indexed, and those of the index arrays."""
    axes = node.attributes["axes"]
    others = [i for i in range(len(node.args[0].shape)) if i not in axes]
    count = len(node.shape) - len(others)
    is_adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    start = axes[0] if is_adjacent else 0  # NumPy puts the index's axes there
    yield from ((0, i, at if at < start else at + count) for at, i in enumerate(others))
    for k, index in enumerate(node.args[1:], 1):
        shift = start + count - len(index.shape)
        for i, size in enumerate(index.shape):
            if size == node.shape[i + shift]:
                yield k, i, i + shift


def _joined(node: Node) -> list[tuple[Place, Place]]:
    """Return pairs of arguments' axes that a product sums together."""
    if node.operation == "matmul":
        a, b = node.args
        return [((a.id, len(a.shape) - 1), (b.id, len(b.shape) - 2))]
    if node.operation != "einsum":
        return []
    (a, b), (left, right) = node.args, node.attributes["subscripts"].split("->")[0].split(",")
    return [((a.id, left.index(x)), (b.id, right.index(x))) for x in left if x in right]


def _broken(node: Node, carried: list[tuple[Place, Place]]) -> set[int]:
    """Return the axes of a result that can't be cut, whatever its arguments are."""
    every = {axis for _, axis in _places(node)}
    match node.operation:
        case "cumsum" | "sort" | "argsort":
            return {node.attributes["axis"]}
        case "tril" | "triu":
            return {len(node.shape) - 2, len(node.shape) - 1}
        case "quantize" if node.attributes["format"].startswith(BLOCK_FORMATS):
            return every
        case "input" | "parameter" | "constant" | "broadcast_to":
            return set()  # its new axes are made in any size
    return every - {axis for _, (_, axis) in carried}
