"""A test's kernel as graphs, its inputs in their shapes, and its programs on a Wormhole."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program
from gonogo.errors import FieldError
from gonogo.graph import Graph, Spec, trace
from gonogo.kernels.kernel import Kernel, of_rows
from gonogo.kernels.registry import KERNELS
from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.kernels.wormhole import GENERIC, Dataflow, Options
from gonogo.spec.arithmetic_names import TT_TRAIN, TTNN, WORMHOLE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
OPERATIONS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "layernorm_fw": ("ttnn.layer_norm", "ttnn.layer_norm, large", "moreh.layer_norm"),
        "rmsnorm_fw": ("ttnn.rms_norm", "ttnn.rms_norm, large"),
        "groupnorm_fw": ("ttnn.group_norm",),
        "softmax": ("ttnn.softmax", "ttnn.softmax, large", "ttnn.softmax, not stable"),
        "layernorm_bw": ("moreh.layer_norm_backward", "ttnn.generic_op"),
    }
)
"""ttnn's operations of each kernel; rows that don't fit a core have a large one."""
TRACED = 64
"""Kernels in a shape whose graphs stay: a service judges a few tests many times."""


def kernel_of(test: TestSpec) -> Kernel:
    """Return a test's kernel: one that computes its own statistics is another one."""
    return KERNELS[test.kernel].with_statistics(test.numerics.statistics)


def shaped(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return inputs in the shapes of the kernel's reference.

    Those of a kernel of rows are (rows, features), (rows, 1) and (features,).
    """
    if KERNELS[test.kernel].shapes is not of_rows:
        return {name: array.reshape(test.shape_of(name)) for name, array in arrays.items()}
    rows = {name: array.reshape(test.flat_shape_of(name)) for name, array in arrays.items()}
    return {
        name: array[:, None] if test.is_per_row(name) else array for name, array in rows.items()
    }


def parameters_of(test: TestSpec) -> dict[str, Any]:
    """Return the parameters of a test's reference: epsilon, and those that the kernel has."""
    kernel = KERNELS[test.kernel]
    names = inspect.signature(kernel.with_statistics(test.numerics.statistics).reference).parameters
    known = {"epsilon": test.epsilon, **kernel.completed(test.parameters)}
    return {name: value for name, value in known.items() if name in names}


def graphs_of(test: TestSpec, inputs: Arrays) -> list[Graph]:
    """Return the graph of a test's reference, then those of other ways to compute the same.

    inputs: those that `shaped` returns.
    """
    kernel = kernel_of(test)
    return [_graph(test, inputs, function) for function in (kernel.reference, *kernel.ways)]


def exact_outputs(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of inputs, flat (TestSpec.flat_shape_of), by output."""
    inputs = shaped(test, arrays)
    graph = _graph(test, inputs, kernel_of(test).reference)
    outputs = {}
    for name in test.outputs:  # one by one: the values of all nodes would fill the memory
        values = Evaluation(graph, inputs).run(name).output(name)
        outputs[name] = np.asarray(values, np.float64).reshape(test.flat_shape_of(name))
    return outputs


def options_of(test: TestSpec) -> Options:
    """Return what a build on a Wormhole is run with by a test's numerics."""
    numerics = test.numerics
    return Options(
        {name: numerics.format_of(name) for name in test.input_names},
        numerics.output,
        numerics.buffers,
        numerics.accumulate,
        numerics.accumulate,
        numerics.fidelity,
        numerics.srcb,
    )


def declared(test: TestSpec, inputs: Arrays, arithmetic: str) -> list[tuple[Graph, Program]]:
    """Return the graphs and programs of a declared arithmetic (gonogo.spec.arithmetic_names).

    ttnn has several of a kernel: which one runs depends on the memory of a core. Raises FieldError
    where the kernel has no such program.
    """
    kernel = kernel_of(test)
    if arithmetic in kernel.programs:
        graph = _graph(test, inputs, kernel.reference)
        return [(graph, kernel.programs[arithmetic](graph, test.numerics.format_of("x")))]
    if arithmetic == TT_TRAIN:
        return [on_wormhole(test, inputs, kernel.wormhole)]
    if arithmetic == TTNN and kernel_of(test).name in OPERATIONS:
        flows = [DATAFLOWS[name] for name in OPERATIONS[kernel_of(test).name]]
        every = [on_wormhole(test, inputs, flow) for flow in flows]
        return [(graph, replace(program, is_of_card=True)) for graph, program in every]
    if arithmetic == WORMHOLE:
        return [on_wormhole(test, inputs, GENERIC)]
    reason = f"{test.kernel} has no such program"
    names = ", ".join((*kernel.programs, *programs_on_wormhole(test)))
    raise FieldError("arithmetic", arithmetic, reason, limit=names)


def programs_on_wormhole(test: TestSpec) -> list[str]:
    """Return the names of the arithmetics that a test's kernel has on a Wormhole."""
    ttnn = [TTNN] if kernel_of(test).name in OPERATIONS else []
    return [TT_TRAIN, *ttnn, WORMHOLE]


def on_wormhole(
    test: TestSpec, inputs: Arrays, dataflow: Dataflow, **parameters: Any
) -> tuple[Graph, Program]:
    """Return the graph and the program of a dataflow; parameters: in the place of the test's."""
    function = dataflow.way or kernel_of(test).reference
    graph = _graph(test, inputs, function, **parameters)
    return graph, dataflow.program(graph, options_of(test))


def _graph(test: TestSpec, inputs: Arrays, function: Any, **parameters: Any) -> Graph:
    shapes = tuple((name, inputs[name].shape) for name in test.input_names)
    return _traced(function, shapes, tuple((parameters_of(test) | parameters).items()))


@lru_cache(maxsize=TRACED)
def _traced(function: Any, shapes: Shapes, parameters: tuple[tuple[str, Any], ...]) -> Graph:
    return trace(function, {name: Spec(shape) for name, shape in shapes}, **dict(parameters))
