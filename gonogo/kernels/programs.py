"""Programs of known implementations: what they store follows from a kernel's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gonogo.arithmetic.program import Program
from gonogo.graph import OPERATIONS, Graph, Node

ProgramOf = Callable[[Graph, str], Program]
"""A function of a kernel's graph and the format of its tensors."""


def fused(graph: Graph, form: str) -> Program:
    """Return the program of one kernel that computes in fp32 and stores its outputs alone.

    So do the norms of torch, jax and onnxruntime, and most that are written in Triton.
    """
    return Program()


def eager(graph: Graph, form: str) -> Program:
    """Return the program of a framework that runs one operation after the other.

    Each stores its result. 1 / sqrt(a) is one of them, rsqrt.
    """
    results = {node.key: form for node in graph.nodes if OPERATIONS[node.operation].half_steps}
    roots = [node.args[1].key for node in graph.nodes if is_reciprocal_root(node)]
    return Program(stored={key: form for key in results if key not in roots})


def is_reciprocal_root(node: Node) -> bool:
    """Return whether a node is 1 / sqrt(a)."""
    return (
        node.operation == "divide"
        and node.args[0].operation == "constant"
        and node.args[1].operation == "sqrt"
    )


def stored_xhat(graph: Graph, form: str) -> Program:
    """Return the program that computes x^ in fp32 and stores it before it is scaled.

    So do the RMSNorms of Llama, T5 and their like.
    """
    return Program(stored={"xhat": form})


PROGRAMS: Final[dict[str, ProgramOf]] = {"fused": fused, "eager": eager}
"""Programs that any kernel may have."""
