"""Evaluate a graph without noise: exactly, or as a program computes and stores, with faults or not.

By a program whose rules say all, such as a Wormhole's, that is what an implementation gives, to the
bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import numpy as np

from gonogo.arithmetic.formats import store
from gonogo.arithmetic.program import DIVISOR, NOTHING_STORED, TOTAL, USE, Program
from gonogo.arithmetic.sums import divided, narrow_sum, rows_of
from gonogo.arithmetic.values import Array, Inputs, source_value, value_of
from gonogo.arithmetic.wormhole import flushed, stored
from gonogo.graph import OPERATIONS, Graph, Node

Edit = Callable[..., Array]
"""A wrong kernel's computation in the place of a node's, from the values of the node's arguments
(of an input, a parameter or a constant: from its own value), and those of `others`, if it has that:
nodes before it. One that computes the node, too, has `applied`, which is told how, first."""
Edits = Mapping[int, Edit]
NO_EDITS: Edits = MappingProxyType({})


class Evaluation:
    """The values of a graph's nodes.

    Attributes:
        values: by node id, as they are stored: float64, or int64 or bool where its kind says so;
            float32 where a Tensix core computes.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Inputs,
        program: Program = NOTHING_STORED,
        edits: Edits = NO_EDITS,
        base: Evaluation | None = None,
    ) -> None:
        """Prepare an evaluation.

        Args:
            graph: the kernel.
            inputs: its tensors by name.
            program: how it is computed; its noise is left out.
            edits: by node id, what is computed instead.
            base: an evaluation without edits; only what edits and another program can change is
                computed.
        """
        self.graph, self.inputs, self.program, self.edits = graph, inputs, program, edits
        self.values: dict[int, Array] = {}
        self._base = base
        self._same: set[int] = set()
        self._unstored: dict[int, Array] = {}
        """The values before they are stored, of nodes that some users read otherwise."""
        self._read_otherwise = {key.partition(USE)[0] for key in program.stored if USE in key}

    def run(self, *outputs: str) -> Self:
        """Evaluate what outputs need; all, if none is named."""
        with np.errstate(all="ignore"):
            for node in self.graph.needed(*outputs):
                if not self._is_of_base(node):
                    self._evaluate(node)
        return self

    def output(self, name: str) -> Array:
        """Return the values of an output that was evaluated."""
        return self.values[self.graph.outputs[name].id]

    def _is_of_base(self, node: Node) -> bool:
        """Take a node from the base, if nothing can differ, and return whether it was."""
        base = self._base
        if base is None or node.id in self.edits or node.id not in base.values:
            return False
        if not all(arg.id in self._same for arg in node.args):
            return False
        if not self.program.computes_alike(node, base.program):
            return False
        unstored = base._unstored.get(node.id)
        if unstored is None and node.key in self._read_otherwise:
            if node.key in self.program.stored:
                return False
            unstored = base.values[node.id]
        self._same.add(node.id)
        self.values[node.id] = base.values[node.id]
        if unstored is not None:
            self._unstored[node.id] = unstored
        return True

    def _evaluate(self, node: Node) -> None:
        args = [self._read(arg, node) for arg in node.args] or [source_value(node, self.inputs)]
        edit = self.edits.get(node.id)
        if edit is not None:
            args += [self.values[other.id] for other in getattr(edit, "others", ())]
            applied = getattr(edit, "applied", None)
            value = np.asarray(edit(*args) if applied is None else applied(self._computed, *args))
        else:
            value = self._computed(node, args)
        if node.kind == "float" and self.program.is_tensix and not self.program.is_exact(node):
            value = value.astype(np.float32)
        if node.kind == "float" and self.program.flush:
            value = flushed(value)
        if node.key in self._read_otherwise:
            self._unstored[node.id] = value
        self.values[node.id] = self._stored(value, node.key) if node.kind == "float" else value

    def _read(self, arg: Node, user: Node) -> Array:
        """Return an argument's value as a user reads it."""
        key = arg.key + USE + user.key
        if key in self.program.stored:
            return self._stored(self._unstored[arg.id], key)
        return self.values[arg.id]

    def _stored(self, value: Array, key: str) -> Array:
        as_ = self.program.stored.get(key)
        if as_ is None:
            return value
        return stored(value, as_) if value.dtype == np.float32 else store(value, as_)

    def _computed(self, node: Node, args: Sequence[Array]) -> Array:
        """Return a node's value from those of its arguments, before it is stored."""
        if not node.args:
            return args[0]
        rule = self.program.tensix_rule(node)
        if rule is not None:
            return rule.computed(node, args)
        if {node.key + DIVISOR, node.key + TOTAL} & self.program.stored.keys():
            return _summed(node, args[0], self.program)
        if self.program.is_tensix and OPERATIONS[node.operation].half_steps:
            args = [np.asarray(arg, np.float64) for arg in args]
        return value_of(node, args)


def _summed(node: Node, terms: Array, program: Program) -> Array:
    """Return a sum with stored totals, a mean by a stored divisor."""
    axes = node.attributes["axes"]
    totals, divisor = (program.stored.get(node.key + of) for of in (TOTAL, DIVISOR))
    if totals:
        rows = rows_of(terms, terms.shape, axes)
        value = np.expand_dims(narrow_sum(rows, totals, program.totals), axes)
    else:
        value = terms.sum(axes, keepdims=True)
    if node.operation == "mean":
        value, _ = divided(value, terms.size // math.prod(node.shape), divisor)
    return value


def exact(
    graph: Graph, inputs: Inputs, edits: Edits = NO_EDITS, *, outputs: Iterable[str] = ()
) -> dict[int, Array]:
    """Return the exact value of each node that outputs need, by its id."""
    return Evaluation(graph, inputs, edits=edits).run(*outputs).values
