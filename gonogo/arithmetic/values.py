"""The values of single operations: exact, in the types of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import round_to
from gonogo.graph import OPERATIONS, Node
from gonogo.graph.operations import DTYPES

Array = NDArray[Any]
Inputs = Mapping[str, Array]


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
