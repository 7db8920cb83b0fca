"""Faults on a sample, and a kernel's own wrong functions; test_answers.py has the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program, Replay, exact
from gonogo.arithmetic.formats import round_to
from gonogo.faults.table import faults
from gonogo.graph import Graph, Mistake, trace
from gonogo.judgment.diagnosis import diagnose
from gonogo.judgment.fits import Output, TracedKernel
from gonogo.judgment.parts import parts
from gonogo.judgment.sample import Sample, cut_of, some_groups
from gonogo.judgment.tiles import SumErrors
from gonogo.kernels.registry import KERNELS
from gonogo.kernels.softmax import softmax
from tests.unit.domain.judgment.kernels import Array, small_kernel


@pytest.mark.parametrize("name", ["forward", "backward", "rmsnorm", "softmax", "cumsum"])
def test_a_fault_has_the_same_effect_on_a_sample_as_on_the_whole(name: str) -> None:
    (graph, *_), inputs = small_kernel(name)
    same_on_a_sample(graph, inputs)


def test_a_fault_along_an_axis_of_whole_blocks_has_the_same_effect_on_a_sample() -> None:
    inputs = {"x": np.random.default_rng(0).normal(size=(80, 6))}
    graph = trace(lambda x: {"y": np.mean(x.reshape(20, 4, 6), axis=1)}, inputs)
    same_on_a_sample(graph, inputs)


def same_on_a_sample(graph: Graph, inputs: dict[str, Array]) -> None:
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


@pytest.mark.parametrize(
    ("name", "rows", "searched", "confirmed"),
    [
        ("softmax", 64, [0, 8, 16, 25, 33, 42, 50, 58], [4, 12, 21, 29, 37, 46, 54, 63]),
        ("softmax", 4, [0, 2], [1, 3]),
        ("softmax", 3, [0], [0]),  # too few to be parted: both are the whole
        ("sum", 1, [0], [0]),
    ],
)
def test_stored_values_are_searched_on_some_groups_and_confirmed_on_others(
    name: str, rows: int, searched: list[int], confirmed: list[int]
) -> None:
    _, inputs = small_kernel(name)
    inputs = {"x": inputs["x"][:rows]}
    graph = trace(KERNELS[name].reference, inputs)
    values = np.zeros(graph.outputs["y"].shape)
    both = parts(Output(TracedKernel([graph], inputs), "y", values, "fp32"), graph, values)
    assert [part.sample.groups.tolist() for part in both] == [searched, confirmed]
    assert (both[0] is both[1]) is (rows < 4)


def test_an_error_that_no_fault_explains_has_no_size() -> None:
    (graph, *_), inputs = small_kernel("softmax")
    quantity = Replay(graph, inputs).run("y")
    noise = 1 + 0.1 * np.random.default_rng(0).normal(size=quantity.values.shape)
    diagnosis = diagnose(graph, inputs, "y", quantity.values * noise, "fp32", quantity)
    assert (diagnosis.fault, diagnosis.size) == (None, 1.0)


@pytest.mark.parametrize(("sharpest", "is_tried"), [(4e-5, True), (6e-5, False)])
def test_terms_are_sought_where_few_choices_fit_by_chance(sharpest: float, is_tried: bool) -> None:
    """Errors that are smaller than their deviation say nothing, beside a sharp one."""
    node = small_kernel("sum")[0][0].outputs["y"]
    one, deviation = np.ones(4), np.array([sharpest / 4, 1.0, 2.0, 3.0])
    errors = SumErrors(node, one, deviation, one, np.ones((4, 64)), -1, 1.0, is_free=True)
    assert bool(list(errors.faults())) is is_tried
