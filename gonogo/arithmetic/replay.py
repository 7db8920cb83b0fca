"""Replay a graph as a program computes it, with the noise of what the program doesn't say.

Values are float64; where the program stores a value, it is rounded. What is not stored has the
noise of fp32: each operation's rounding, and the order of sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from gonogo.arithmetic import reductions
from gonogo.arithmetic.elementwise import elementwise, flushed, stored
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.products import product
from gonogo.arithmetic.program import NOTHING_STORED, USE, Program
from gonogo.arithmetic.quantity import (
    Array,
    Quantity,
    as_source,
    concatenated,
    is_zero,
    sum_of,
    viewed,
    without_singles,
)
from gonogo.arithmetic.values import Inputs, source_value, value_of
from gonogo.graph import OPERATIONS, Graph, Node

REPEATING = ("broadcast_to", "gather", "take_along_axis", "sliding_window_view")
"""Views by which one element may become several."""


class Replay:
    """The quantities of a graph's nodes, each evaluated once, when an output needs it.

    Attributes:
        quantities: by node id. A node's own noise is noise here, also where other nodes share it.
        has_overflow: whether a finite value that isn't an output is stored as inf.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Inputs,
        program: Program = NOTHING_STORED,
        base: Replay | None = None,
    ) -> None:
        """Prepare a replay.

        Args:
            graph: the kernel.
            inputs: its tensors by name.
            program: how it is computed.
            base: a replay of the same graph and inputs by another program, from which nodes are
                taken that the two programs compute alike.
        """
        self.graph, self.inputs, self.program = graph, inputs, program
        self.quantities: dict[int, Quantity] = {}
        self.has_overflow = False
        self._base = base
        self._from_base: set[int] = set()
        self._uses = Counter(arg.id for node in graph.nodes for arg in node.args)
        self._sources: dict[int, Quantity] = {}
        self._computed_as: dict[int, Quantity] = {}
        """Quantities before they are stored, of nodes that some users read otherwise."""
        self._numbers: dict[int, Array] = dict(base._numbers) if base else {}
        """The values of parameters, and what they alone give, in float64."""

    def run(self, output: str) -> Quantity:
        """Return an output's quantity. Its `shared` has only errors that elements do share."""
        with np.errstate(all="ignore"):
            for node in self.graph.needed(output):
                if node.id not in self.quantities:
                    self.quantities[node.id] = self._of_base(node) or self._evaluated(node)
            return without_singles(self.quantities[self.graph.outputs[output].id])

    def _of_base(self, node: Node) -> Quantity | None:
        """Return the base's quantity of a node that both programs compute alike."""
        if self._base is None or node.id not in self._base.quantities:
            return None
        if self._is_read_otherwise(node) or not self.program.computes_alike(
            node, self._base.program
        ):
            return None
        if not all(arg.id in self._from_base for arg in node.args):
            return None
        self._from_base.add(node.id)
        return self._base.quantities[node.id]

    def _is_read_otherwise(self, node: Node) -> bool:
        return any(use.startswith(node.key + USE) for use in self.program.stored)

    def _evaluated(self, node: Node) -> Quantity:
        quantity = self._computed(node)
        if self.program.flush and node.kind == "float":
            quantity = flushed(quantity, self.program.narrow or "fp32")
        if self._is_read_otherwise(node):
            self._computed_as[node.id] = quantity
        stored_as = self.program.stored.get(node.key)
        if stored_as and node.kind == "float":
            before, quantity = quantity, stored(quantity, stored_as)
            if node not in self.graph.outputs.values():
                is_lost = np.isfinite(before.values) & ~np.isfinite(quantity.values)
                self.has_overflow |= bool(is_lost.any())
        return quantity

    def _computed(self, node: Node) -> Quantity:
        family = OPERATIONS[node.operation].family
        if family == "source":
            values = source_value(node, self.inputs)
            if node.operation != "input":
                self._numbers[node.id] = values
            is_number = node.operation != "input" and node.kind == "float"
            return Quantity(round_to(values, "fp32") if is_number else values)
        args = [self._argument(node, arg) for arg in node.args]
        if node.operation == "quantize":
            return stored(args[0], node.attributes["format"])
        if family == "elementwise":
            quantity = elementwise(node, args, self.program)
            return self._folded(node, quantity)
        if family == "view":
            return self._moved(node, args)
        if family == "product":
            return product(node, args[0], args[1], self.program)
        if family == "select":
            return reductions.selected(node, args[0])
        if family == "scan":
            return reductions.cumulated(node, args[0], self.program)
        reduced = reductions.variance if node.operation == "var" else reductions.summed
        return reduced(node, args[0], self.program)

    def _folded(self, node: Node, quantity: Quantity) -> Quantity:
        """Return a number's quantity: with slack up to what a host computes of parameters alone.

        A host computes 1 - beta in float64 and gives the kernel that; or the kernel does, in fp32.
        """
        if (
            node.shape
            or node.kind != "float"
            or any(arg.id not in self._numbers for arg in node.args)
        ):
            return quantity
        value = value_of(node, [self._numbers[arg.id] for arg in node.args])
        self._numbers[node.id] = value
        slack = np.abs(round_to(value, "fp32") - quantity.values)
        return replace(quantity, slack=sum_of(quantity.slack, slack))

    def _argument(self, node: Node, arg: Node) -> Quantity:
        """Return an argument's quantity: its noise is shared where its elements serve several."""
        stored_as = self.program.stored.get(arg.key + USE + node.key)
        if stored_as:
            return stored(self._computed_as[arg.id], stored_as)
        quantity = self.quantities[arg.id]
        if is_zero(quantity.noise):
            return quantity
        is_elementwise = OPERATIONS[node.operation].family == "elementwise"
        is_repeated = is_elementwise and quantity.values.size < int(np.prod(node.shape))
        if self._uses[arg.id] < 2 and not is_repeated and node.operation not in REPEATING:
            return quantity
        if arg.id not in self._sources:
            self._sources[arg.id] = as_source(quantity, arg.id)
        return self._sources[arg.id]

    def _moved(self, node: Node, args: list[Quantity]) -> Quantity:
        """Return the quantity of a view."""
        values = value_of(node, [arg.values for arg in args])
        if node.operation == "concatenate":
            return concatenated(args, values, node.attributes["axis"])
        first, indices = args[0], [arg.values for arg in args[1:]]

        def view(part: Array) -> Array:
            return value_of(node, [part, *indices])

        result = viewed(first, values, view)
        if all(is_zero(arg.slack) for arg in args[1:]):
            return result
        # an index that may be another one gives any element along its axis
        axes = node.attributes.get("axes", (node.attributes.get("axis"),))
        spread = np.broadcast_to(np.ptp(first.values, axis=axes, keepdims=True), first.values.shape)
        is_loose: Array = np.ones(values.shape, bool)
        if node.operation == "take_along_axis":
            is_loose = args[1].slack > 0
        slack = sum_of(result.slack, np.where(is_loose, view(spread), 0.0))
        return replace(result, slack=slack)
