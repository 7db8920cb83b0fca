"""A test's kernel as graphs, its inputs in their shapes, and its programs on a Wormhole."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo import fields
from gonogo.arithmetic import Evaluation, Program
from gonogo.errors import FieldError
from gonogo.faults.changes import Fault
from gonogo.faults.table import faults
from gonogo.graph import Graph, Mistake, Spec, trace
from gonogo.kernels.kernel import Function, Kernel, sentence_of
from gonogo.kernels.registry import KERNELS
from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.kernels.wormhole import GENERIC, Dataflow, Options
from gonogo.spec.arithmetic_names import TT_TRAIN, TTNN, WORMHOLE
from gonogo.spec.builds import EMULATOR, FAULT, Build, check_kernel, known_build

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
SIZE = 2.0**-6
"""The size of a wrong factor less 1, in builds that are named after one."""
TRACED = 64
"""Kernels in a shape whose graphs stay: a service judges a few tests many times."""


def kernel_of(test: TestSpec) -> Kernel:
    """Return a test's kernel: one that computes its own statistics is another one."""
    return KERNELS[test.kernel].with_statistics(test.numerics.statistics)


def shaped(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return inputs in the shapes of the kernel's reference; whole numbers are int64."""
    kernel = KERNELS[test.kernel]
    return {
        name: array.reshape(kernel.reference_shape_of(name, test.shape, test.parameters)).astype(
            np.int64 if name in kernel.whole else array.dtype, copy=False
        )
        for name, array in arrays.items()
    }


def parameters_of(test: TestSpec) -> dict[str, Any]:
    """Return the parameters of a test's reference: epsilon, and those that the kernel has."""
    kernel = KERNELS[test.kernel]
    names = inspect.signature(kernel.with_statistics(test.numerics.statistics).reference).parameters
    known = {"epsilon": test.epsilon, **kernel.completed(test.parameters)}
    return {name: value for name, value in known.items() if name in names}


def graphs_of(test: TestSpec) -> list[Graph]:
    """Return the graph of a test's reference, then those of other ways to compute the same."""
    kernel = kernel_of(test)
    return [_graph(test, function) for function in (kernel.reference, *kernel.ways)]


def exact_outputs(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of inputs, flat (TestSpec.flat_shape_of), by output."""
    inputs = shaped(test, arrays)
    graph = _graph(test, kernel_of(test).reference)
    outputs = {}
    for name in test.outputs:  # one by one: the values of all nodes would fill the memory
        values = Evaluation(graph, inputs).run(name).output(name)
        outputs[name] = np.asarray(values, np.float64).reshape(test.flat_shape_of(name))
    return outputs


def options_of(test: TestSpec) -> Options:
    """Return the options of a build on a Wormhole, from a test's numerics."""
    numerics = test.numerics
    return Options(
        {name: numerics.format_of(name) for name in test.float_names},
        numerics.output,
        numerics.buffers,
        numerics.accumulate,
        numerics.accumulate,
        numerics.fidelity,
        numerics.srcb,
    )


def declared(test: TestSpec, arithmetic: str) -> list[tuple[Graph, Program]]:
    """Return the graphs and programs of a declared arithmetic (gonogo.spec.arithmetic_names).

    ttnn has several of a kernel: which one runs depends on the memory of a core. Raises FieldError
    where the kernel has no such program.
    """
    kernel = kernel_of(test)
    if arithmetic in kernel.programs:
        graph = _graph(test, kernel.reference)
        return [
            (
                graph,
                kernel.programs[arithmetic](graph, test.numerics.format_of(test.float_names[0])),
            )
        ]
    if arithmetic == TT_TRAIN:
        return [on_wormhole(test, kernel.wormhole)]
    if arithmetic == TTNN and kernel_of(test).name in DATAFLOWS:
        every = [on_wormhole(test, flow) for flow in DATAFLOWS[kernel_of(test).name].values()]
        return [(graph, replace(program, is_of_card=True)) for graph, program in every]
    if arithmetic == WORMHOLE:
        return [on_wormhole(test, GENERIC)]
    reason = f"{test.kernel} has no such program"
    names = ", ".join((*kernel.programs, *programs_on_wormhole(test)))
    raise FieldError("arithmetic", arithmetic, reason, limit=names)


def programs_on_wormhole(test: TestSpec) -> list[str]:
    """Return the names of the arithmetics that a test's kernel has on a Wormhole."""
    ttnn = [TTNN] if kernel_of(test).name in DATAFLOWS else []
    return [TT_TRAIN, *ttnn, WORMHOLE]


def fault_names(test: TestSpec) -> dict[str, str]:
    """Return the sentences of a test's faults, by the names of the builds that have them."""
    return {name: fault.label for name, fault in _faults(test).items()}


def mutants(test: TestSpec) -> tuple[str, ...]:
    """Return the builds of a test's kernel but the right one, as a gauge runs them.

    Where the kernel lists none, the first fault of each kind is among them. Stored values aren't: a
    right kernel may store them.
    """
    kernel, kinds = KERNELS[test.kernel], dict[str, str]()
    for name in () if kernel.builds else fault_names(test):
        kinds.setdefault(re.sub(r"\d+", "", name.partition(FAULT)[0]), name)
    faults_ = [name for kind, name in kinds.items() if not kind.startswith("stored-")]
    return (*kernel.listed_builds[1:], *faults_)


def check_build(build: Build, test: TestSpec, path: str = "build") -> None:
    """Raise FieldError for a build of which the test can't say anything."""
    check_kernel(build, test.kernel, path)
    known = (*KERNELS[test.kernel].emulated_builds, *KERNELS[test.kernel].public_bugs)
    if build.executor == EMULATOR and build.name not in known:
        fault_of(test, build.name, path)


def check_emulated(name: str, test: TestSpec, path: str) -> None:
    """Raise FieldError for an emulated build that the test's kernel doesn't have."""
    build, kernel = known_build(name, EMULATOR), test.kernel
    if build is None:
        reason = f"unknown build of {kernel}"
        reason += fields.did_you_mean(name, KERNELS[kernel].emulated_builds)
        raise FieldError(path, name, reason, limit=f"those of `gonogo kernels show {kernel}`")
    check_build(build, test, path)


def fault_of(test: TestSpec, build: str, path: str = "build") -> Fault:
    """Return the fault of a test's kernel that a build of the emulator is named after.

    Raises FieldError where the kernel has no such fault in this shape.
    """
    known = _faults(test)
    if build not in known:
        reason = f"is no fault of {test.kernel} in this shape{fields.did_you_mean(build, known)}"
        limit = f"those of `gonogo kernels show {test.kernel}`"
        raise FieldError(path, build, reason, limit=limit)
    fault = known[build]
    return fault.sized(SIZE) if fault.is_fitted else fault


def _faults(test: TestSpec) -> dict[str, Fault]:
    graph = replace(on_wormhole(test, kernel_of(test).wormhole)[0], mistakes=())
    every = (fault for output in graph.outputs for fault in faults(graph, output))
    return {fault.id.replace(":", FAULT, 1): fault for fault in every}


def on_wormhole(test: TestSpec, dataflow: Dataflow, **parameters: Any) -> tuple[Graph, Program]:
    """Return the graph and the program of a dataflow; parameters: in the place of the test's."""
    function = dataflow.way or kernel_of(test).reference
    graph, options = _graph(test, function, **parameters), options_of(test)
    if graph.mistakes:
        wrong = (
            replace(one, program=GENERIC.program(one.graph, options)) for one in graph.mistakes
        )
        graph = replace(graph, mistakes=tuple(wrong))
    return graph, dataflow.program(graph, options)


def _graph(test: TestSpec, function: Any, **parameters: Any) -> Graph:
    kernel, values = kernel_of(test), tuple((parameters_of(test) | parameters).items())
    specs = tuple(
        (
            name,
            Spec(
                kernel.reference_shape_of(name, test.shape, test.parameters),
                "int" if name in kernel.whole else "float",
            ),
        )
        for name in test.input_names
    )
    mistakes = tuple(kernel.mistakes.items()) if function is kernel.reference else ()
    return _traced(function, specs, values, mistakes)


@lru_cache(maxsize=TRACED)
def _traced(
    function: Function,
    specs: tuple[tuple[str, Spec], ...],
    parameters: tuple[tuple[str, Any], ...],
    mistakes: tuple[tuple[str, Function], ...] = (),
) -> Graph:
    graph = trace(function, dict(specs), **dict(parameters))
    wrong = [
        Mistake(id, sentence_of(id, one), _traced(one, specs, parameters)) for id, one in mistakes
    ]
    return replace(graph, mistakes=tuple(wrong))
