"""Run a build: its outputs to the bit, and the float64 function of what it computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program
from gonogo.arithmetic.matrix_unit import TILE
from gonogo.emulator.builds import KINDS, Build, builds_of, divided, started, value
from gonogo.emulator.spoiling import REGISTER, hang_or_crash, spoiled
from gonogo.faults.changes import Edit, Elementwise, Factor
from gonogo.graph import Graph, Spec, trace
from gonogo.references import KERNELS
from gonogo.references.wormhole import Options

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

    Raises KeyError for an unknown build. Doesn't return from one that hangs or crashes.
    """
    built = builds_of(test.kernel)[build]
    if built.fate:
        hang_or_crash(built.fate)
    graph, inputs = graph_of(test, given, built.groups), shaped_inputs(test, given)
    kind = KINDS[test.kernel]
    edits = built.edits(graph, kind)
    if built.is_stale and position:
        edits = started(REGISTER.lanes())(graph, kind)
    dataflow = KERNELS[_name(test, given)].wormhole
    program = dataflow.program(graph, options_of(test, built))
    rules = {
        graph.nodes[id].key: replace(program.rules[graph.nodes[id].key], divisor=divisor)
        for id, divisor in divided(graph, kind, built).items()
    }
    program = replace(program, rules={**program.rules, **rules})
    evaluation = Evaluation(graph, inputs, program, edits).run()
    first = kind.outputs[0]
    outputs = _flat(test, graph, evaluation)
    is_flat = given["x"].shape == test.flat_shape_of("x")
    rows = np.ascontiguousarray(given["x"].reshape(outputs[first].shape), np.float32)
    REGISTER.leave(outputs[first])
    outputs |= {first: spoiled(outputs[first], rows, built.spoiling)}
    if is_flat:
        return outputs
    return {name: values.reshape(test.shape_of(name)) for name, values in outputs.items()}


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of what a build computes, flat.

    It is the reference for builds without a fault of logic. How far it lies from that says whether
    a fault can show with these inputs. Where a tile of NaN is planted, it is NaN.
    """
    built = builds_of(test.kernel)[build]
    graph, inputs = graph_of(test, given, built.groups), shaped_inputs(test, given)
    kind = KINDS[test.kernel]
    edits = built.edits(graph, kind)
    if built.is_stale:
        more = TILE * STALE / test.features
        edits = value(kind.sums[0], Elementwise(lambda total: total + more))(graph, kind)
    for id, divisor in divided(graph, kind, built).items():
        node = graph.nodes[id]
        count = math.prod(node.args[0].shape) / math.prod(node.shape)
        edits[id] = Edit(node, Factor(count / divisor - 1))
    outputs = _flat(test, graph, Evaluation(graph, inputs, edits=edits).run())
    first = kind.outputs[0]
    rows = np.ascontiguousarray(given["x"].reshape(outputs[first].shape), np.float32)
    return outputs | {first: spoiled(outputs[first], rows, built.spoiling)}


def options_of(test: TestSpec, build: Build | None = None) -> Options:
    """Return what a build is run with by a test's numerics."""
    numerics, narrow_sums = test.numerics, build is not None and build.narrow_sums
    return Options(
        {name: numerics.format_of(name) for name in test.input_names},
        numerics.output,
        numerics.buffers,
        numerics.accumulate,
        "bf16" if narrow_sums else numerics.accumulate,
        numerics.fidelity,
        numerics.srcb,
    )


def question_of(test: TestSpec, given: Arrays) -> tuple[Graph, Arrays, Program]:
    """Return the graph by which a Wormhole computes a test's kernel, its inputs and its program."""
    graph = graph_of(test, given)
    program = KERNELS[_name(test, given)].wormhole.program(graph, options_of(test))
    return graph, shaped_inputs(test, given), program


def graph_of(test: TestSpec, given: Arrays, groups: int = 1) -> Graph:
    """Return the graph of a test's kernel as a Wormhole computes it.

    groups: how many times as many groups of channels it has, where they can be halved.
    """
    parameters: dict[str, Any] = {}
    if test.kernel == "groupnorm_fw":
        count = int(test.parameter("num_groups"))
        parameters["num_groups"] = count * (1 if test.shape[1] // count % groups else groups)
    if "rstd" not in given:
        parameters["epsilon"] = test.epsilon
    shapes = tuple((name, array.shape) for name, array in shaped_inputs(test, given).items())
    return _graph(_name(test, given), shapes, tuple(parameters.items()))


def _name(test: TestSpec, given: Arrays) -> str:
    is_own = test.kernel.endswith("_bw") and "rstd" not in given
    return f"{test.kernel}_own" if is_own else test.kernel


@lru_cache(maxsize=64)
def _graph(
    name: str, shapes: tuple[tuple[str, tuple[int, ...]], ...], parameters: tuple[Any, ...]
) -> Graph:
    kernel = KERNELS[name]
    specs = {tensor: Spec(shape) for tensor, shape in shapes}
    return trace(kernel.wormhole.way or kernel.reference, specs, **dict(parameters))


def shaped_inputs(test: TestSpec, given: Arrays) -> Arrays:
    """Return inputs in the shapes of the kernel's reference."""
    if test.kernel == "groupnorm_fw":
        return {name: array.reshape(test.shape_of(name)) for name, array in given.items()}
    rows = {name: array.reshape(test.flat_shape_of(name)) for name, array in given.items()}
    return {
        name: array[:, None] if name in ("mean", "rstd") else array for name, array in rows.items()
    }


def _flat(test: TestSpec, graph: Graph, evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    outputs = {}
    for name in graph.outputs:
        values = evaluation.output(name)
        shape = test.flat_shape_of(name)
        step = values.size // int(np.prod(shape))  # of half groups, the first ones' statistics
        outputs[name] = values.reshape(-1)[::step].reshape(shape)
    return outputs
