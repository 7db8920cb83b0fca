"""Edits of wrong builds: what is computed in the place of a kernel's values.

Each is a function of a graph; what a graph doesn't have stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gonogo.arithmetic.matrix_unit import TILE
from gonogo.faults.changes import (
    Edit,
    Elementwise,
    Factor,
    Moved,
    Replaced,
    ValueChange,
    Weighted,
    shift,
)
from gonogo.faults.sums import BLOCK
from gonogo.graph import Graph, Node

Array = Any
Edits = dict[int, Edit | Replaced]
EditsOf = Callable[[Graph], Edits]
Weights = Callable[[int], Array]
"""A function of the number of places that gives how often each is counted."""


def nothing(graph: Graph) -> Edits:
    """Return the edits of the right kernel."""
    return {}


def node_of(graph: Graph, key: str) -> Node | None:
    """Return a node by its key; None where the graph has none."""
    return next((node for node in graph.nodes if node.key == key), None)


def value(key: str, change: ValueChange | Callable[..., Array], *others: str) -> EditsOf:
    """Return the edit that changes a value for all who use it.

    change: of the value; a function may also take the values of other nodes.
    """
    changed = change if isinstance(change, Factor | Moved) else Elementwise(change)

    def edits(graph: Graph) -> Edits:
        node = node_of(graph, key)
        nodes = [node_of(graph, other) for other in others]
        more = tuple(other for other in nodes if other is not None)
        return {} if node is None else {node.id: Edit(node, changed, None, more)}

    return edits


def use(key: str, user: str, change: ValueChange) -> EditsOf:
    """Return the edit that changes a value where one user takes it."""

    def edits(graph: Graph) -> Edits:
        node = node_of(graph, user)
        at = tuple(k for k, arg in enumerate(node.args) if arg.key == key) if node else ()
        return {node.id: Edit(node, change, at)} if node is not None and at else {}

    return edits


def counted(weights: Weights, *sums: str, axis: int = -1) -> EditsOf:
    """Return the edit that sums count places on an axis as often as weights say."""

    def edits(graph: Graph) -> Edits:
        nodes = [node for key in sums if (node := node_of(graph, key)) is not None]
        return {
            node.id: Edit(node, Weighted(axis, weights(node.args[0].shape[axis]) * 1.0), (0,))
            for node in nodes
        }

    return edits


def both(*parts: EditsOf) -> EditsOf:
    """Return the edits of all parts."""
    return lambda graph: {id: edit for part in parts for id, edit in part(graph).items()}


def rolled(key: str, by: int) -> EditsOf:
    """Return the edit that an input's columns are those some places before."""

    def edits(graph: Graph) -> Edits:
        return value(key, Moved(-1, shift(graph.inputs[key].shape[-1], by)))(graph)

    return edits


def started(key: str, lanes: Array) -> EditsOf:
    """Return the edit that a sum starts from these lanes."""

    def with_start(value: Array, *others: Array) -> Array:
        start = np.broadcast_to(lanes.astype(value.dtype), (*value.shape[:-1], TILE))
        return np.concatenate([start, value], axis=-1)

    return use_of_first(key, with_start)


def use_of_first(key: str, change: Callable[..., Array]) -> EditsOf:
    """Return the edit that changes what a node takes first."""

    def edits(graph: Graph) -> Edits:
        node = node_of(graph, key)
        return {} if node is None else {node.id: Edit(node, change, (0,))}

    return edits


def tiles(summed: Callable[[int], slice]) -> Weights:
    """Return the weights of places by the tiles that are summed; a single one always is."""

    def weights(count: int) -> Array:
        total = -(-count // TILE)
        chosen = np.zeros(total)
        chosen[summed(total) if total > 1 else slice(None)] = 1.0
        return np.repeat(chosen, TILE)[:count]

    return weights


def without_middle(count: int) -> Array:
    """Return the weights of all places but those of the middle tile."""
    total = -(-count // TILE)
    return np.where((np.arange(count) // TILE == total // 2) & (total > 1), 0.0, 1.0)


def unmasked(count: int) -> Array:
    """Return the weights of places of which the last tile's padding holds the first ones again."""
    again, rest = divmod(padded(count), count)
    return again + (np.arange(count) < rest)


def padded(count: int) -> int:
    """Return a count with its padding to whole tiles."""
    return -(-count // TILE) * TILE


LAST, LAST_TWO = tiles(lambda n: slice(n - 1, n)), tiles(lambda n: slice(n - 2, n))
LAST_BLOCK = tiles(lambda n: slice((n - 1) // BLOCK * BLOCK, n))
NOT_LAST = tiles(lambda n: slice(0, n - 1))
ZERO, TWICE = Factor(-1.0), Factor(1.0)
