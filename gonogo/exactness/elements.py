"""Exact elements: those of an output that no right arithmetic changes, for any kernel.

A value is exact where its format holds it, and all that it is computed from is exact. A sum is
exact in every order where the sizes of its terms, in units of the largest power of two that divides
all of them, add up to an integer of the precision of its totals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gonogo.arithmetic import Inputs, value_of
from gonogo.arithmetic.formats import Doubles, format_named, round_to, step
from gonogo.arithmetic.values import Array, source_value
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.judgment.cells import Mask

ABSORBED = 1 / 8
"""The part of a step up to which an addition drops an operand, also after an earlier rounding."""


def exact_elements(
    graph: Graph, inputs: Inputs, output: str, form: str = "fp32", totals: str = "fp32"
) -> tuple[Doubles, Mask]:
    """Return an output's values, before its own rounding, and which of them are exact.

    Welford's updates, 1 / N as a factor and inexact roots are left out: no inputs make them exact.

    Args:
        graph: the kernel.
        inputs: its tensors by name.
        output: the output's name.
        form: the format in which any value may be stored.
        totals: the format in which the totals of sums are.
    """
    values: dict[int, Array] = {}
    errors: dict[int, Array] = {}
    last = [graph.outputs[output]]
    while OPERATIONS[last[-1].operation].family == "view":
        last.append(last[-1].args[0])
    with np.errstate(all="ignore"):
        for node in graph.needed(output):
            args = [values[arg.id] for arg in node.args]
            value = value_of(node, args) if args else source_value(node, inputs)
            error = _error(node, args, [errors[arg.id] for arg in node.args], value, totals)
            if node.kind == "float" and node not in last:
                rounded = round_to(value, form)
                steps, error = step(rounded, form), error + np.abs(value - rounded)
                error = np.where(error <= ABSORBED * steps, 0.0, error + steps)
                value = rounded
            values[node.id] = value
            errors[node.id] = np.where(np.isfinite(value) & ~np.isnan(error), error, np.inf)
    return np.asarray(values[last[0].id], np.float64), errors[last[0].id] == 0


def _error(
    node: Node, args: Sequence[Array], errors: Sequence[Array], value: Array, totals: str
) -> Array:
    """Return how far a node's value may be off before it is rounded; inf where that is unknown."""
    operation, error = OPERATIONS[node.operation], np.zeros(value.shape)
    if operation.family in ("sum", "scan", "product"):
        error = error + np.where(_adds_exactly(node, args, totals), 0.0, np.inf)
    if not any(part.any() for part in errors):
        return error
    if operation.slopes is not None and not operation.discontinuous:
        slopes = operation.slopes(args, value, node.attributes)
        for slope, part in zip(slopes, errors, strict=True):
            error = error + np.where((part > 0) & (slope != 0), np.abs(slope) * part, 0.0)
        return error
    if operation.family == "view":
        return value_of(node, errors if node.operation == "concatenate" else [errors[0], *args[1:]])
    return np.full(value.shape, np.inf)


def _adds_exactly(node: Node, args: Sequence[Array], totals: str) -> Mask:
    """Return which of a node's sums are the same in every order."""
    sizes = [np.abs(np.asarray(arg, np.float64)) for arg in args]
    if OPERATIONS[node.operation].family == "product":
        unit, total = np.prod([_units(size).min() for size in sizes]), value_of(node, sizes)
    else:
        axes = node.attributes.get("axes", (node.attributes.get("axis"),))
        if node.operation == "var":
            sizes = [np.square(args[0] - args[0].mean(axes, keepdims=True))]
        unit = _units(sizes[0]).min(axes, keepdims=True)
        total = sizes[0].sum(axes, keepdims=True)
    fits: Mask = (total == 0) | (total / unit <= 2.0 ** format_named(totals).precision)
    return fits


def _units(sizes: Doubles) -> Doubles:
    """Return the largest power of two that divides each size; inf for 0."""
    fractions, exponents = np.frexp(sizes)
    digits = np.ldexp(fractions, 53).astype(np.int64)
    lowest = np.ldexp((digits & -digits).astype(np.float64), exponents - 53)
    return np.where(sizes == 0, np.inf, lowest)
