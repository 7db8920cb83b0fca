"""Padding: sums that count places behind the end of an axis, where the inputs are 0.

An axis is padded to whole tiles, or to a power of two. What a kernel computes there from zeros,
such as the square of 0 - mean, or exp(0 - max), isn't 0 any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gonogo.arithmetic import value_of
from gonogo.faults.changes import TILE, Array, Edit, Elementwise, Fault
from gonogo.graph import OPERATIONS, Node

Behind = Callable[[Mapping[int, Array]], Array]
"""A function of nodes' values by their ids that gives another's behind the end of an axis."""


def faults_of_padding(node: Node, axis: int, unit: str) -> Iterator[Fault]:
    """Yield the faults that a sum or a mean counts the padding of an axis.

    axis: of its operand, counted from the last (-1). unit: what places on it are called.
    """
    shape = node.args[0].shape
    count, same = shape[axis], list[Node]()
    behind = _behind(node.args[0], axis, same)
    if behind is None or node.operation not in ("sum", "mean"):
        return
    axes = node.attributes["axes"]
    divisor = math.prod(shape[one] for one in axes) if node.operation == "mean" else 1
    padded = {-(-count // TILE) * TILE, 1 << (count - 1).bit_length()} - {count}
    for total in sorted(padded):

        def counted(value: Array, *others: Array, more: int = total - count) -> Array:
            known = {one.id: other for one, other in zip(same, others, strict=True)}
            sizes = list(value.shape)
            for one in axes:
                sizes[one] = 1 if one == axis + len(shape) else shape[one]
            terms = np.broadcast_to(behind(known), sizes).sum(axes, keepdims=True)
            return np.asarray(value + terms * (more / divisor))

        text = f"counts {total - count} {unit}s of padding, where the inputs are 0"
        edit = Edit(node, Elementwise(counted), None, tuple(same))
        yield Fault(f"padding-{total}:{node.key}", f"{node.label} {text}", {node.id: edit})


def _behind(node: Node, axis: int, same: list[Node]) -> Behind | None:
    """Return how a value goes on behind the end of an axis; None where nobody knows.

    same: takes the nodes that have one value all along the axis.
    """
    family = OPERATIONS[node.operation].family
    if len(node.shape) < -axis or node.shape[axis] == 1:
        same.append(node)
        return lambda known: known[node.id]
    if node.operation == "input" or family == "product":
        return lambda known: np.zeros(())
    if family != "elementwise":
        return None
    args = [_behind(arg, axis, same) for arg in node.args]

    def computed(known: Mapping[int, Array]) -> Array:
        return value_of(node, [arg(known) for arg in args if arg is not None])

    return None if None in args else computed
