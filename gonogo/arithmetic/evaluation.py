"""Evaluate a graph exactly, in float64, as it is or with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import round_to
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.graph.operations import DTYPES

Array = NDArray[Any]
Inputs = Mapping[str, Array]
Edit = Callable[..., Array]
"""A wrong kernel's computation in the place of a node's, from the values of the node's arguments
(of an input, a parameter or a constant: from its own value), and those of `others`, if it has that:
nodes before it."""


def value_of(node: Node, args: Sequence[Array]) -> Array:
    """Return the value of a node that isn't an input, from those of its arguments."""
    if node.operation == "quantize":
        return round_to(args[0], node.attributes["format"])
    # a function of arrays without axes gives a number
    return np.asarray(OPERATIONS[node.operation].value(*args, **node.attributes))


def source_value(node: Node, inputs: Inputs) -> Array:
    """Return the value of an input, a parameter or a constant.

    Raises KeyError for an input that isn't given, ValueError for one of another shape.
    """
    if node.operation != "input":
        return value_of(node, ())
    given = np.asarray(inputs[node.key])
    if given.shape != node.shape:
        raise ValueError(f"input {node.key} has shape {given.shape}, its graph {node.shape}")
    return given.astype(DTYPES[node.kind], copy=False)


def exact(
    graph: Graph,
    inputs: Inputs,
    edits: Mapping[int, Edit] | None = None,
    *,
    outputs: Iterable[str] = (),
    base: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """Return the value of each node by its id: float64, or int64 or bool where its kind says so.

    Args:
        graph: the kernel.
        inputs: its tensors by name.
        edits: by node id, what is computed instead.
        outputs: those whose nodes are evaluated; all, if none is named.
        base: values without the edits; then only what the edits can change is computed.
    """
    edits = edits or {}
    values: dict[int, Array] = {}
    same: set[int] = set()
    with np.errstate(all="ignore"):
        for node in graph.needed(*outputs):
            unchanged = node.id not in edits and all(arg.id in same for arg in node.args)
            if base is not None and unchanged and node.id in base:
                values[node.id] = base[node.id]
                same.add(node.id)
                continue
            args = [values[arg.id] for arg in node.args]
            if not args:
                args = [source_value(node, inputs)]
            if node.id in edits:
                edit = edits[node.id]
                others = [values[other.id] for other in getattr(edit, "others", ())]
                values[node.id] = np.asarray(edit(*args, *others))
            else:
                values[node.id] = value_of(node, args) if node.args else args[0]
    return values
