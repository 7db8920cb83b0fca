"""Run a build: its outputs to the bit, and the float64 function of what it computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program
from gonogo.arithmetic.matrix_unit import TILE
from gonogo.emulator.build import Build, divided
from gonogo.emulator.builds import build_of, kind_of
from gonogo.emulator.edits import Edits, started, value
from gonogo.emulator.spoiling import REGISTER, hang_or_crash, spoiled
from gonogo.faults.changes import Edit, Factor
from gonogo.graph import Graph
from gonogo.kernels.wormhole import Dataflow, generic
from gonogo.workloads import fault_of, kernel_of, on_wormhole, options_of, shaped

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
STALE = 1.0
"""The content of a stale register's lanes in float64: the real one depends on what ran before."""


def run(
    test: TestSpec, given: Arrays, build: str, *, position: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Return the outputs of a build on an emulated Wormhole as float32, flat if the inputs are.

    Args:
        test: kernel, shape, numerics, epsilon.
        given: the inputs of the device, which the input formats can represent, by name.
        build: its name.
        position: how many runs came before in this process. Only `stale-register` uses it: the
            register is clear at 0.

    Raises FieldError for an unknown build. Doesn't return from one that hangs or crashes.
    """
    built = build_of(test, build)
    if built.fate:
        hang_or_crash(built.fate)
    graph, inputs, program = _question(test, given, built)
    kind = kind_of(test.kernel)
    edits = _edits(test, built, graph)
    if built.is_stale and position:
        edits = started(kind.sums[0], REGISTER.lanes())(graph)
    rules = {
        graph.nodes[id].key: replace(program.rules[graph.nodes[id].key], divisor=divisor)
        for id, divisor in divided(graph, built).items()
    }
    program = replace(program, rules={**program.rules, **rules})
    evaluation = Evaluation(graph, inputs, program, edits).run()
    outputs = _flat(test, graph, evaluation)
    REGISTER.leave(outputs[test.outputs[0]].reshape(test.matrix_shape_of(test.outputs[0])))
    outputs = _spoiled(test, given, built, outputs)
    x = test.input_names[0]
    if given[x].shape == test.flat_shape_of(x):
        return outputs
    return {name: values.reshape(test.shape_of(name)) for name, values in outputs.items()}


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of what a build computes, flat.

    It is the reference for builds without a fault of logic. How far it lies from that says whether
    a fault can show with these inputs. Where a tile of NaN is planted, it is NaN.
    """
    built = build_of(test, build)
    graph, inputs, _ = _question(test, given, built)
    kind = kind_of(test.kernel)
    edits = _edits(test, built, graph)
    if built.is_stale:
        more = TILE * STALE / test.features
        edits = value(kind.sums[0], lambda total: total + more)(graph)
    for id, divisor in divided(graph, built).items():
        node = graph.nodes[id]
        count = math.prod(node.args[0].shape) / math.prod(node.shape)
        edits[id] = Edit(node, Factor(count / divisor - 1))
    outputs = _flat(test, graph, Evaluation(graph, inputs, edits=edits).run())
    return _spoiled(test, given, built, outputs)


def _edits(test: TestSpec, build: Build, graph: Graph) -> Edits:
    if build.is_fault:
        return fault_of(test, build.name).of_operations
    return build.edits(graph)


def _spoiled(
    test: TestSpec, given: Arrays, build: Build, outputs: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return outputs, the first one spoiled as the build says."""
    if not build.spoiling:
        return outputs
    x, first = test.input_names[0], test.outputs[0]
    rows = np.ascontiguousarray(given[x].reshape(test.matrix_shape_of(x)), np.float32)
    values = spoiled(outputs[first].reshape(test.matrix_shape_of(first)), rows, build.spoiling)
    return outputs | {first: values.reshape(test.flat_shape_of(first))}


def _question(test: TestSpec, given: Arrays, build: Build) -> tuple[Graph, Arrays, Program]:
    """Return the graph by which a build computes a test's kernel, its inputs and its program."""
    inputs = shaped(test, given)
    dataflow = Dataflow(generic, build.way) if build.way else kernel_of(test).wormhole
    parameters: dict[str, Any] = {}
    if build.groups > 1:
        count = int(test.parameter("num_groups"))
        parameters["num_groups"] = count * (1 if test.shape[1] // count % 2 else build.groups)
    graph, program = on_wormhole(test, dataflow, **parameters)
    if build.narrow_sums:
        program = dataflow.program(graph, replace(options_of(test), totals="bf16"))
    return graph, inputs, program


def _flat(test: TestSpec, graph: Graph, evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    outputs = {}
    for name in graph.outputs:
        values = evaluation.output(name)
        shape = test.flat_shape_of(name)
        step = values.size // int(np.prod(shape))  # of half groups, the first ones' statistics
        outputs[name] = values.reshape(-1)[::step].reshape(shape)
    return outputs
