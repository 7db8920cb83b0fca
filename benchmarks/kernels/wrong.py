"""NumPy kernels in float32: the right one, and those with a fault of the general table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.kernels.cases import Case
from benchmarks.kernels.libraries import Result
from gonogo.arithmetic.evaluation import Evaluation
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.program import Program
from gonogo.faults.changes import Fault
from gonogo.faults.table import STORED, faults, is_of_input
from gonogo.graph import Graph, trace

FACTORS = (1e-3, -3e-3, 1e-2)
"""Sizes of faults whose size has to be chosen."""
FAULTS = 2
"""Faults of the table for each case."""
NOTHING: Mapping[int, Any] = MappingProxyType({})


def numpy_kernel(case: Case) -> Result:
    """Return the outputs of the right kernel."""
    return _result(case, case.graphs[0])


def numpy_fault(case: Case, number: int) -> tuple[str, Result]:
    """Return the id and the outputs of a wrong kernel, counted from 0.

    The kernel's own mistakes come first, then FAULTS of the table, drawn at random; the id of one
    with a size is written as id=size.
    """
    graph, mistakes = case.graphs[0], list(case.kernel.mistakes.items())
    if number < len(mistakes):
        name, function = mistakes[number]
        return name, _result(case, trace(function, case.inputs, **case.arguments))
    random = case.random()
    known = {fault.id: fault for name in graph.outputs for fault in dishonest(graph, name)}
    sizes = random.choice(FACTORS, FAULTS)
    chosen = random.permutation(sorted(known))[number - len(mistakes)]
    fault, size = known[str(chosen)], float(sizes[number - len(mistakes)])
    if not fault.is_fitted:
        return fault.id, _result(case, graph, fault.edits)
    return f"{fault.id}={size}", _result(case, graph, fault.sized(size).edits)


def dishonest(graph: Graph, output: str) -> list[Fault]:
    """Return the faults of the table that no right kernel in 16 bits has.

    Such a kernel may store a value that is no input in as many digits, rounded or truncated.
    """
    honest = {kind for kind in STORED if kind != "stored-fp8"}
    return [
        fault
        for fault in faults(graph, output)
        if is_of_input(fault) or fault.id.partition(":")[0] not in honest
    ]


def _result(case: Case, graph: Graph, edits: Mapping[int, Any] = NOTHING) -> Result:
    """Return the outputs of a graph whose every value is rounded to float32, in the format."""
    stored = {node.key: "fp32" for node in graph.nodes if node.kind == "float"}
    evaluation = Evaluation(graph, case.inputs, Program(stored=stored), edits).run()
    outputs = {name: round_to(evaluation.output(name), case.form) for name in graph.outputs}
    return Result(outputs, dict.fromkeys(outputs, case.form))
