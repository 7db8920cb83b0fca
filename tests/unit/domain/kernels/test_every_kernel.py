"""Every kernel that we ship: its spec and its functions agree, and the emulator runs it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo import emulator, workloads
from gonogo.arithmetic import Evaluation
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec

PAGE = Path(__file__).parents[4] / "docs/kernels.md"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_s_functions_give_the_shapes_that_its_spec_states(name: str) -> None:
    kernel = KERNELS[name]
    test = TestSpec.parse({"kernel": name, "shape": list(kernel.example)})
    assert TestSpec.parse(test.canonical()) == test
    assert set(kernel.regimes) <= set(kernel.drawn_floats)
    assert all(test.bound_of(whole) for whole in kernel.whole)
    for graph in workloads.graphs_of(test):
        sizes = {output: math.prod(node.shape) for output, node in graph.outputs.items()}
        for output in test.outputs:
            assert sizes[output] == math.prod(test.shape_of(output)), output
    assert f"| `{name}` |" in PAGE.read_text()


VARIANTS = [(name, "given") for name in KERNELS] + [
    (name, "own") for name, kernel in KERNELS.items() if kernel.without_statistics
]


@pytest.mark.parametrize(("name", "statistics"), VARIANTS)
def test_every_way_gives_the_reference_s_values_in_float64(name: str, statistics: str) -> None:
    fields = {"kernel": name, "shape": list(KERNELS[name].example)}
    test = TestSpec.parse(fields | {"numerics": {"statistics": statistics}})
    inputs = workloads.shaped(test, generate(test, 0))
    first, *others = (Evaluation(graph, inputs).run() for graph in workloads.graphs_of(test))
    for output in test.outputs if others else ():
        right = first.output(output)
        for other in others:
            np.testing.assert_allclose(other.output(output), right, rtol=1e-9, atol=1e-9)


ODD: list[tuple[dict[str, Any], str, str]] = [
    (
        {"kernel": "matmul", "shape": [33, 70], "parameters": {"columns": 40}},
        "without-tile-0/y",
        "leaves out tile 0 of 3",
    ),
    ({"kernel": "embedding", "shape": [5, 7]}, "shifted+1/table", "1 columns too early"),
    ({"kernel": "adam", "shape": [9, 40]}, "uncorrected", "leaves out the corrections"),
    ({"kernel": "topk", "shape": [6, 50], "parameters": {"k": 5}}, "smallest", "smallest"),
    (
        {"kernel": "attention_masked", "shape": [1, 2, 9, 16]},
        "missing/product@scores",
        "product is missing",
    ),
    ({"kernel": "mean", "shape": [4, 3, 65]}, "without-last/y", "leaves out the last column"),
]


@pytest.mark.parametrize(("fields", "wrong", "words"), ODD, ids=lambda value: str(value)[:24])
def test_kernels_with_tensors_of_any_shape_are_emulated_and_judged(
    fields: dict[str, Any], wrong: str, words: str
) -> None:
    test = TestSpec.parse(fields)
    raw = generate(test, 1)
    given = quantise(test, raw)
    answers = {}
    for build in ("correct", wrong):
        outputs = emulator.run(test, given, build)
        assert all(outputs[name].shape == test.flat_shape_of(name) for name in test.outputs)
        answers[build] = judge(test, raw, given, outputs, arithmetic="tt-train", with_limits=False)
    assert answers["correct"].explanation == "explained"
    assert answers[wrong].explanation == "unexplained"
    faults = " ".join(
        str(output.statistics.get("fault")) for output in answers[wrong].outputs.values()
    )
    assert words in faults


def test_whole_numbers_are_drawn_below_their_bound() -> None:
    test = TestSpec.parse(
        {"kernel": "embedding", "shape": [50, 40], "parameters": {"rows": 7, "width": 3}}
    )
    indices = quantise(test, generate(test, 0))["indices"]
    assert (indices.dtype, indices.min(), indices.max()) == (np.int32, 0, 6)
    with pytest.raises(FieldError, match=r"inputs\.indices"):
        test.parse({**test.canonical(), "inputs": {"indices": 1}})


def test_a_kernel_s_regime_is_the_default_of_its_tensor_alone() -> None:
    plain = TestSpec.parse({"kernel": "div", "shape": [4, 8]})
    assert plain.regime("a").low == -1
    assert plain.regime("b").low is not None
    assert plain.regime("b").low > 0
    normal = TestSpec.parse({"kernel": "div", "shape": [4, 8], "inputs": {"regime": "normal"}})
    assert (normal.regime("a").regime, normal.regime("b")) == ("normal", plain.regime("b"))


def test_a_build_that_is_no_fault_in_this_shape_is_refused() -> None:
    test = TestSpec.parse({"kernel": "softmax", "shape": [4, 40]})
    workloads.check_emulated("without-tile-1/total", test, "build")
    for name in ("without-tile-2/total", "missing/gamma@y", "no-such-build"):
        with pytest.raises(FieldError) as caught:
            workloads.check_emulated(name, test, "build")
        assert caught.value.limit == "those of `gonogo kernels show softmax`"
