"""A kernel's graph as data: its nodes, their names, JSON, and a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gonogo.graph.operations import OPERATIONS, Kind, Shape, decode_constant

SIGNS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "matmul": "@",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
"""Operations that formulas show by a sign between their arguments."""
UNSEEN = ("reshape", "transpose", "broadcast_to")
"""Operations that formulas leave out: they only arrange what they are given."""
DEPTH = 4
"""Operations inside each other that a formula shows; deeper ones are shown by their numbers."""


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a kernel.

    Attributes:
        id: its place in the graph, from 0.
        operation: its name in the table of operations.
        args: the nodes whose values it takes.
        attributes: what else the operation takes, as plain data that JSON can hold.
        name: the first local variable that held its value, unique in the graph.
        shape: the shape of its value.
        kind: what its value holds: "float", "int" or "bool".
    """

    id: int
    operation: str
    args: tuple[Node, ...] = field(repr=False)
    attributes: Mapping[str, Any]
    name: str | None
    shape: Shape
    kind: Kind

    @property
    def key(self) -> str:
        """The text by which programs and faults name the node: its name, else its number."""
        return self.name or f"#{self.id}"

    @property
    def label(self) -> str:
        """The name, or the formula of a node without one."""
        return self._formula(DEPTH)

    @property
    def row(self) -> dict[str, Any]:
        """The node as plain data, with the numbers of its arguments."""
        return {
            "operation": self.operation,
            "args": [arg.id for arg in self.args],
            "attributes": dict(self.attributes),
            "name": self.name,
            "shape": self.shape,
            "kind": self.kind,
        }

    def _formula(self, depth: int) -> str:
        if self.name:
            return self.name
        if self.operation == "constant":
            value = decode_constant(**self.attributes)
            return f"{value.item():g}" if value.ndim == 0 else f"constant {self.key}"
        if self.operation in UNSEEN:
            return self.args[0]._formula(depth)
        if depth == 0:
            return self.key
        parts = [arg._formula(depth - 1) for arg in self.args]
        if self.operation in SIGNS:
            return f"({f' {SIGNS[self.operation]} '.join(parts)})"
        if self.operation == "negative":
            return f"-{parts[0]}"
        return f"{self.operation}({', '.join(parts)})"


@dataclass(frozen=True, eq=False)
class Mistake:
    """A wrong kernel in the place of one.

    Attributes:
        id: that of the fault.
        label: the sentence that says what is wrong.
        graph: what it computes, of the same inputs.
        program: how a device computes that, a gonogo.arithmetic.Program; None: as in float64.
    """

    id: str
    label: str
    graph: Graph
    program: Any = None


@dataclass(frozen=True, eq=False)
class Graph:
    """The operations of a kernel, each after its arguments, and the outputs by their names.

    name: what computes them, in words: those of the traced function.
    mistakes: what wrong kernels of this one compute, which no edit of its operations gives. They
        are no part of its JSON.
    """

    nodes: tuple[Node, ...]
    outputs: Mapping[str, Node]
    name: str = ""
    mistakes: tuple[Mistake, ...] = ()

    @cached_property
    def inputs(self) -> dict[str, Node]:
        """The nodes of the kernel's tensors, by name."""
        return {node.key: node for node in self.nodes if node.operation == "input"}

    @cached_property
    def parameters(self) -> dict[str, Node]:
        """The nodes of the kernel's floats, such as epsilon, by name."""
        return {node.key: node for node in self.nodes if node.operation == "parameter"}

    def needed(self, *outputs: str) -> list[Node]:
        """Return the nodes that outputs (all, if none is named) depend on, arguments first."""
        waiting = [self.outputs[name] for name in outputs or self.outputs]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node.id not in seen:
                seen.add(node.id)
                waiting.extend(node.args)
        return [node for node in self.nodes if node.id in seen]

    def users(self, node: Node) -> list[Node]:
        """Return the nodes that take a node's value."""
        return self._users[node.id]

    @cached_property
    def _users(self) -> list[list[Node]]:
        users: list[list[Node]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for arg in {arg.id for arg in node.args}:
                users[arg].append(node)
        return users

    @cached_property
    def digest(self) -> str:
        """A hash of all that the graph holds: equal where the kernels are."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the graph as JSON text, the same text for the same graph."""
        nodes = [node.row for node in self.nodes]
        outputs = {name: node.id for name, node in self.outputs.items()}
        data = {"nodes": nodes, "outputs": outputs}
        return json.dumps(data, allow_nan=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Return the graph of a JSON text. Raises ValueError if it is none."""
        try:
            data = json.loads(text)
            return cls.of_rows(data["nodes"], data["outputs"])
        except (KeyError, TypeError, IndexError, AttributeError) as problem:
            raise ValueError(f"the text is no graph: {problem!r}") from problem

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]], outputs: Mapping[str, int]) -> Graph:
        """Return the graph of its nodes' data, in which arguments are numbers of earlier nodes."""
        nodes: list[Node] = []
        for row in rows:
            if row["operation"] not in OPERATIONS:
                raise ValueError(f"the graph has an unknown operation, {row['operation']!r}")
            if any(not 0 <= arg < len(nodes) for arg in row["args"]):
                raise ValueError(f"node {len(nodes)} of the graph takes a later node's value")
            node = Node(
                id=len(nodes),
                operation=row["operation"],
                args=tuple(nodes[arg] for arg in row["args"]),
                attributes={name: _frozen(value) for name, value in row["attributes"].items()},
                name=row["name"],
                shape=_frozen(row["shape"]),
                kind=row["kind"],
            )
            nodes.append(node)
        return cls(tuple(nodes), {name: nodes[at] for name, at in outputs.items()})


def _frozen(value: Any) -> Any:
    """Return a value with tuples for lists, and Python's numbers for NumPy's."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value
