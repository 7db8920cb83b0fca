"""Sums: faults of which terms they count, what they divide by, and where they start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.faults.changes import (
    TILE,
    Array,
    Edit,
    Elementwise,
    Fault,
    Moved,
    Replaced,
    Weighted,
    changed_value,
    shift,
)
from gonogo.faults.padding import faults_of_padding
from gonogo.graph import OPERATIONS, Node

BLOCK = 3
"""Tiles that a kernel works on at once: tt-train's block size."""


def summed_axes(node: Node) -> list[int]:
    """Return the axes of a sum's or product's first operand that are added, from the last (-1)."""
    shape, attributes = node.args[0].shape, node.attributes
    if "axes" in attributes:
        axes = list(attributes["axes"])
    elif "axis" in attributes:
        axes = [attributes["axis"]]
    elif node.operation == "matmul":
        axes = [len(shape) - 1]
    else:
        operands, _, result = attributes["subscripts"].partition("->")
        first = operands.partition(",")[0]
        axes = [axis for axis, letter in enumerate(first) if letter not in result]
    return [axis - len(shape) for axis in axes if shape[axis] > 1]


def counted(id: str, node: Node, label: str, axis: int, weights: Array) -> Fault:
    """Return the fault that a sum counts each place on an axis as often as its weight says."""
    weights = np.asarray(weights, np.float64)
    edit: Edit | Replaced = Edit(node, Weighted(axis, weights), (0,))
    if node.operation == "var":
        axes, ddof = node.attributes["axes"], node.attributes["ddof"]
        weigh = Weighted(axis, weights)

        def deviations(value: Array) -> Array:
            square = np.square(value - value.mean(axes, keepdims=True))
            count = int(np.prod([value.shape[i] for i in axes]))
            return np.asarray(weigh(square).sum(axes, keepdims=True) / (count - ddof))

        edit = Replaced(deviations)
    return Fault(f"{id}:{node.key}", f"{node.label} {label}", {node.id: edit})


def faults_of_sum(node: Node) -> Iterator[Fault]:
    """Yield the faults of a sum's terms, padding, divisor and start."""
    if node.kind != "float":
        return
    axes = summed_axes(node)
    for axis in axes:
        suffix = "" if axis == axes[-1] else f"-axis{axis}"
        for id, text, weights in _counts(axis, node.args[0].shape[axis]):
            yield counted(id + suffix, node, text, axis, weights)
    if axes:
        yield from faults_of_padding(node, axes[-1], _unit(axes[-1]))
    yield from _faults_of_divisor(node, axes)
    others = [axis for axis in range(-len(node.shape), 0) if node.shape[axis] > 1]
    if others and OPERATIONS[node.operation].family == "sum":
        axis = others[-1]
        change = Moved(axis, shift(node.shape[axis], 1), is_added=True)
        yield changed_value("carried", node, "starts from that of the row before", change)


def _unit(axis: int) -> str:
    return {-1: "column", -2: "row"}.get(axis, f"element of axis {axis}")


def _counts(axis: int, count: int) -> Iterator[tuple[str, str, Array]]:
    """Yield wrong counts of a sum's terms: an id, what a label says, and the weight of each."""
    unit = _unit(axis)
    places = np.arange(count)
    yield "without-last", f"leaves out the last {unit}", places < count - 1
    yield "without-first", f"leaves out the first {unit}", places > 0
    tiles = places // TILE
    total = int(tiles[-1]) + 1
    if total > 1:
        for tile in sorted({0, total // 2, total - 1}):
            here, name = tiles == tile, f"tile {tile} of {total} (counted from 0)"
            yield f"without-tile-{tile}", f"leaves out {name}", ~here
            yield f"twice-tile-{tile}", f"counts {name} twice", 1 + here
            yield f"only-tile-{tile}", f"sums only {name}", here
    block = (total - 1) // BLOCK * BLOCK
    for id, start in (("last-two", total - 2), ("last-block", block)):
        if 0 < start < total - 1 and (id == "last-two" or start != total - 2):
            text = f"sums only tiles {start} to {total - 1} of {total} (counted from 0)"
            yield f"only-{id}", text, tiles >= start
    if count % TILE:
        padding = total * TILE - count
        wraps = 1 + (places < padding)
        text = f"counts the first {padding} {unit}s again: its last tile isn't masked"
        yield "unmasked", text, wraps


def _faults_of_divisor(node: Node, axes: list[int]) -> Iterator[Fault]:
    """Yield the faults of a mean's or a variance's divisor."""
    if node.operation not in ("mean", "var") or not axes:
        return
    shape = node.args[0].shape
    count = int(np.prod([shape[axis] for axis in axes]))
    ddof = node.attributes.get("ddof", 0)
    padded = count // shape[axes[-1]] * -(-shape[axes[-1]] // TILE) * TILE
    divisors = {
        "unbiased": (count - 1, "N - 1"),
        "biased": (count, "N"),
        "padded": (padded, f"{padded}, padding included"),
    }
    for id, (divisor, text) in divisors.items():
        if divisor not in (0, count - ddof) and (id != "padded" or divisor != count):
            ratio = (count - ddof) / divisor

            def divided(value: Array, ratio: float = ratio) -> Array:
                return value * ratio

            yield changed_value(id, node, f"divides by {text}", Elementwise(divided))
