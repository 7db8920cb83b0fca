"""NumPy kernels in float32: the right one, and those with a fault of the general table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.kernels.cases import Arrays, Case
from gonogo.arithmetic.evaluation import Evaluation
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.program import Program
from gonogo.faults.table import faults
from gonogo.graph import Graph, trace

FACTORS = (1e-3, -3e-3, 1e-2)
"""Sizes of faults whose size has to be chosen."""
NOTHING: Mapping[int, Any] = MappingProxyType({})


def numpy_kernel(case: Case) -> dict[str, Arrays]:
    """Return the outputs of the right kernel, by the name of the implementation."""
    return {"numpy": _outputs(case, case.graphs[0])}


def numpy_faults(case: Case, count: int) -> Iterator[tuple[str, Arrays]]:
    """Yield the outputs of a kernel's own mistakes, and of a number of faults of the table."""
    graph = case.graphs[0]
    for id, function in case.definition.mistakes.items():
        yield id, _outputs(case, trace(function, case.inputs, **case.arguments))
    random = np.random.default_rng(len(case.kernel) + len(case.form) + len(case.regime))
    known = {fault.id: fault for name in graph.outputs for fault in faults(graph, name)}
    for id in random.permutation(sorted(known))[:count]:
        fault = known[str(id)]
        if fault.is_fitted:
            fault = fault.sized(float(random.choice(FACTORS)))
        yield fault.id, _outputs(case, graph, fault.edits)


def _outputs(case: Case, graph: Graph, edits: Mapping[int, Any] = NOTHING) -> Arrays:
    """Return the outputs of a graph whose every value is rounded to float32, in the format."""
    stored = {node.key: "fp32" for node in graph.nodes if node.kind == "float"}
    evaluation = Evaluation(graph, case.inputs, Program(stored=stored), edits).run()
    return {name: round_to(evaluation.output(name), case.form) for name in graph.outputs}
