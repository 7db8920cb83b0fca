"""Graphs of kernels: a plain NumPy function, traced into operations that interpreters evaluate."""

from gonogo.graph.data import Graph, Mistake, Node
from gonogo.graph.functions import erf, erfc, quantize
from gonogo.graph.operations import OPERATIONS, Operation
from gonogo.graph.refusals import TraceError
from gonogo.graph.tracing import Spec, trace

__all__ = [
    "OPERATIONS",
    "Graph",
    "Mistake",
    "Node",
    "Operation",
    "Spec",
    "TraceError",
    "erf",
    "erfc",
    "quantize",
    "trace",
]
