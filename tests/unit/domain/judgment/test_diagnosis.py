"""Faults on a sample, and a kernel's own wrong functions; test_answers.py has the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program, Replay, exact
from gonogo.arithmetic.formats import round_to
from gonogo.faults.table import faults
from gonogo.graph import Mistake, trace
from gonogo.judgment.diagnosis import diagnose
from gonogo.judgment.sample import Sample, cut_of, some_groups
from gonogo.kernels.softmax import softmax
from tests.unit.domain.judgment.kernels import small_kernel


@pytest.mark.parametrize("name", ["forward", "backward", "rmsnorm", "softmax", "cumsum"])
def test_a_fault_has_the_same_effect_on_a_sample_as_on_the_whole(name: str) -> None:
    (graph, *_), inputs = small_kernel(name)
    for output in graph.outputs:
        cut = cut_of(graph, output)
        assert cut is not None
        groups = np.array([0, 3, 4, cut.groups - 1])
        whole, part = Sample(graph, inputs, output), Sample(graph, inputs, output, cut, groups)
        table = list(faults(graph, output))
        assert len({fault.id for fault in table}) == len(table)
        for fault in table:
            # int8's scale and the sum over the columns of a sample are those of the sample
            if "int8" not in fault.id:
                expected = cut.part_of(whole.effect(fault), cut.outputs[output], groups)
                got = part.effect(fault)
                np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9, err_msg=fault.id)


def test_a_sample_stores_a_value_without_a_name_as_the_whole_does() -> None:
    x = np.random.default_rng(0).normal(size=(40, 8))
    # the nodes of z are not in the sample, whose own ones keep their numbers
    graph = trace(lambda x: {"z": np.exp(x) * 3.0, "y": np.sin(x) + x}, {"x": x})
    sine = next(node for node in graph.needed("y") if node.operation == "sin")
    program = Program(stored={sine.key: "bf16"})
    sample = Sample(graph, {"x": x}, "y", *some_groups(graph, "y", 8 * 16), program)
    whole = Sample(graph, {"x": x}, "y", program=program)
    assert (sample.right == sample.part_of(whole.right)).all()
    assert (sample.right != sample.part_of(np.sin(x) + x)).any()


@pytest.mark.parametrize("rows", [40, 2000])
def test_a_wrong_function_of_a_kernels_own_is_named(rows: int) -> None:
    def shared_total(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return {"y": e / np.sum(e), "other": e}

    def base_two(x: Any) -> Any:
        e = 2.0 ** (x - np.max(x, axis=-1, keepdims=True))
        return {"y": e / np.sum(e, axis=-1, keepdims=True)}

    inputs = {"x": round_to(np.random.default_rng(7).normal(0.3, 1.2, (rows, 200)), "fp32")}
    mistakes = tuple(
        Mistake(id, id, trace(function, inputs))
        for id, function in {"shared": shared_total, "base-2": base_two}.items()
    )
    graph = replace(trace(softmax, inputs), mistakes=mistakes)
    wrong = exact(mistakes[1].graph, inputs)[mistakes[1].graph.outputs["y"].id]
    quantity = Replay(graph, inputs).run("y")
    diagnosis = diagnose(graph, inputs, "y", round_to(wrong, "bf16"), "bf16", quantity)
    assert diagnosis.fault is not None, diagnosis.message
    assert diagnosis.fault.id == "base-2"
