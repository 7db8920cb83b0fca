"""NumPy kernels in float32: the right one, and those with a fault of the general table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.kernels.cases import Case
from benchmarks.kernels.libraries import Result
from gonogo.arithmetic.evaluation import Evaluation
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.program import Program
from gonogo.faults.table import faults
from gonogo.graph import Graph, trace

FACTORS = (1e-3, -3e-3, 1e-2)
"""Sizes of faults whose size has to be chosen."""
COUNT = 2
"""Faults of the table for each case."""
NOTHING: Mapping[int, Any] = MappingProxyType({})


def numpy_kernel(case: Case) -> Result:
    """Return the outputs of the right kernel."""
    return _result(case, case.graphs[0])


def numpy_faults(case: Case) -> Iterator[tuple[str, Result]]:
    """Yield a kernel's own mistakes, and some faults of the table, by their ids."""
    graph = case.graphs[0]
    for id, function in case.kernel.mistakes.items():
        yield id, _result(case, trace(function, case.inputs, **case.arguments))
    random = case.random()
    known = {fault.id: fault for name in graph.outputs for fault in faults(graph, name)}
    for id in random.permutation(sorted(known))[:COUNT]:
        fault = known[str(id)]
        if fault.is_fitted:
            fault = fault.sized(float(random.choice(FACTORS)))
        yield fault.id, _result(case, graph, fault.edits)


def _result(case: Case, graph: Graph, edits: Mapping[int, Any] = NOTHING) -> Result:
    """Return the outputs of a graph whose every value is rounded to float32, in the format."""
    stored = {node.key: "fp32" for node in graph.nodes if node.kind == "float"}
    evaluation = Evaluation(graph, case.inputs, Program(stored=stored), edits).run()
    outputs = {name: round_to(evaluation.output(name), case.form) for name in graph.outputs}
    return Result(outputs, dict.fromkeys(outputs, case.form))
