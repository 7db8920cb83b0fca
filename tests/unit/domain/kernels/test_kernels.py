"""Every kernel that we ship: its functions fit its spec, and right ones are told from wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator, workloads
from gonogo.arithmetic import Evaluation, Program
from gonogo.arithmetic.formats import round_to
from gonogo.errors import FieldError
from gonogo.graph import trace
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.kernels.kernel import Function
from gonogo.kernels.registry import KERNELS, kernel_of
from gonogo.spec.test_spec import TestSpec

Arrays = dict[str, NDArray[Any]]
PAGE = Path(__file__).parents[4] / "docs/kernels.md"
SMALL: Mapping[str, tuple[list[int], dict[str, Any]]] = {
    "groupnorm_fw": ([3, 8, 4, 6], {"num_groups": 4}),
    "groupnorm_bw": ([3, 8, 4, 6], {"num_groups": 4}),
    "matmul": ([24, 40], {"columns": 16}),
    "matmul_bw": ([2, 8, 16], {}),
    "linear": ([3, 8, 24], {"features": 10}),
    "linear_activation": ([8, 24], {"activation": "silu"}),
    "attention": ([1, 2, 24, 16], {"causal": True, "share": 2}),
    "attention_biased": ([1, 1, 12, 8], {"keys": 70}),
    "conv1d": ([2, 3, 20], {"size": 3, "stride": 2, "padding": 2}),
    "conv2d": ([1, 3, 7, 7], {"channels": 6}),
    "max_pool2d": ([2, 3, 12, 12], {}),
    "average_pool2d": ([2, 3, 12, 12], {"size": 2, "padding": 0}),
    "embedding": ([4, 8], {"rows": 50, "width": 12}),
    "topk": ([16, 40], {"k": 5}),
    "rotary": ([2, 12, 16], {}),
    "rotary_interleaved": ([2, 12, 16], {}),
    "adamw": ([16, 24], {"step": 2}),
}
"""Shapes and parameters of kernels whose cases aren't SHAPES[their number of axes]."""
SHAPES = {2: [12, 64], 3: [2, 3, 20], 4: [3, 8, 4, 6]}
VARIANTS = [(name, "given") for name in KERNELS] + [
    (name, "own") for name, kernel in KERNELS.items() if kernel.without_statistics
]
MISTAKES = [(name, id) for name, kernel in KERNELS.items() for id in kernel.mistakes]


def small(name: str, form: str = "fp32", statistics: str = "given") -> TestSpec:
    shape, parameters = SMALL.get(name, (SHAPES[len(KERNELS[name].example)], {}))
    numerics = {"input": form, "output": form, "statistics": statistics}
    fields = {"shape": shape, "parameters": parameters, "numerics": numerics, "epsilon": 1e-3}
    return TestSpec.parse({"kernel": name, **fields})


def drawn(test: TestSpec) -> tuple[Arrays, Arrays]:
    raw = generate(test, 3)
    return raw, quantise(test, raw)


def computed(test: TestSpec, given: Arrays, function: Function) -> Arrays:
    """Return what a function gives in NumPy's float32, rounded to the test's format."""
    inputs, parameters = workloads.shaped(test, given), workloads.parameters_of(test)
    if test.kernel.startswith("quantize"):  # its rounding has no array function
        graph = trace(function, inputs, **parameters)
        stored = {node.key: "fp32" for node in graph.nodes if node.kind == "float"}
        evaluation = Evaluation(graph, inputs, Program(stored=stored)).run()
        outputs = {name: evaluation.output(name) for name in graph.outputs}
    else:
        single = {
            name: np.float32(value) if isinstance(value, float) else value
            for name, value in parameters.items()
        }
        outputs = {name: np.asarray(a, "f4") for name, a in function(**inputs, **single).items()}
    return {
        name: round_to(values, test.numerics.output).astype("f4").reshape(test.shape_of(name))
        for name, values in outputs.items()
    }


def judged(test: TestSpec, raw: Arrays, given: Arrays, outputs: Arrays) -> SeedJudgement:
    return judge(test, raw, given, outputs, arithmetic=None, with_limits=False, with_faults=False)


@pytest.mark.parametrize(("name", "statistics"), VARIANTS)
def test_a_right_kernel_is_explained_in_two_formats_and_a_factor_is_not(
    name: str, statistics: str
) -> None:
    for form in ("bf16", "fp32"):
        test = small(name, form, statistics)
        raw, given = drawn(test)
        outputs = computed(test, given, workloads.kernel_of(test).reference)
        assert judged(test, raw, given, outputs).explanation == "explained", form
    first = test.outputs[0]
    wrong = outputs | {first: outputs[first] * np.float32(1.001)}
    assert judged(test, raw, given, wrong).explanation == "unexplained"


@pytest.mark.parametrize(("name", "id"), MISTAKES)
def test_a_mistake_is_flagged(name: str, id: str) -> None:
    test = small(name)
    raw, given = drawn(test)
    wrong = computed(test, given, KERNELS[name].mistakes[id])
    assert judged(test, raw, given, wrong).explanation == "unexplained"


@pytest.mark.parametrize(("name", "statistics"), VARIANTS)
def test_every_way_gives_the_reference_s_values_in_float64(name: str, statistics: str) -> None:
    test = small(name, statistics=statistics)
    inputs = workloads.shaped(test, generate(test, 0))
    first, *others = (Evaluation(graph, inputs).run() for graph in workloads.graphs_of(test))
    for output in test.outputs if others else ():
        right = first.output(output)
        for other in others:
            np.testing.assert_allclose(other.output(output), right, rtol=1e-9, atol=1e-9)


def test_a_way_says_how_it_differs() -> None:
    names = [graph.name for graph in workloads.graphs_of(small("layernorm_fw"))]
    assert {"layernorm", "two pass, divided", "one pass, scaled"} <= set(names)


@pytest.mark.parametrize(("name", "statistics"), VARIANTS)
def test_no_two_ways_of_a_kernel_have_one_name(name: str, statistics: str) -> None:
    names = [graph.name for graph in workloads.graphs_of(small(name, statistics=statistics))]
    assert len(set(names)) == len(names), names


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
    raw, given = drawn(test)
    answers = {}
    for build in ("correct", wrong):
        outputs = emulator.run(test, given, build)
        assert all(outputs[name].shape == test.flat_shape_of(name) for name in test.outputs)
        answers[build] = judge(test, raw, given, outputs, arithmetic="tt-train", with_limits=False)
    assert answers["correct"].explanation == "explained"
    assert answers[wrong].explanation == "unexplained"
    faults = [str(output.statistics.get("fault")) for output in answers[wrong].outputs.values()]
    assert words in " ".join(faults)


def test_products_may_be_added_in_any_order_and_need_all_terms() -> None:
    fields = {"shape": [32, 96], "parameters": {"columns": 32}}
    numerics = {"input": "fp32", "output": "fp32"}
    test = TestSpec.parse({"kernel": "matmul", "numerics": numerics, **fields})
    raw, given = drawn(test)
    a, b = given.values()
    terms = a.T[:, :, None] * b[:, None, :]
    running = np.add.accumulate(terms, axis=0)[-1]
    backward = np.add.accumulate(terms[::-1], axis=0)[-1]
    short = running - np.where(np.arange(32) == 9, terms[-1], 0)
    verdicts = [
        judged(test, raw, given, {"y": y}).verdict for y in (a @ b, running, backward, short)
    ]
    assert verdicts == ["pass", "pass", "pass", "pass_by_tolerance"]


def test_whole_numbers_are_drawn_below_their_bound() -> None:
    fields = {"shape": [50, 40], "parameters": {"rows": 7, "width": 3}}
    test = TestSpec.parse({"kernel": "embedding", **fields})
    indices = drawn(test)[1]["indices"]
    assert (indices.dtype, indices.min(), indices.max()) == (np.int32, 0, 6)
    with pytest.raises(FieldError, match=r"inputs\.indices"):
        test.parse({**test.canonical(), "inputs": {"indices": 1}})


def test_a_kernel_s_regime_is_the_default_of_its_tensor_alone() -> None:
    plain = TestSpec.parse({"kernel": "div", "shape": [4, 8]})
    assert (plain.regime("a").low, plain.regime("b").low) == (-1, 0.25)
    normal = TestSpec.parse({"kernel": "div", "shape": [4, 8], "inputs": {"regime": "normal"}})
    assert (normal.regime("a").regime, normal.regime("b")) == ("normal", plain.regime("b"))


@pytest.mark.parametrize(
    ("name", "shape", "parameters", "message"),
    [
        ("groupnorm_bw", (2, 6, 4), {"num_groups": 4}, "parameters.num_groups"),
        ("instancenorm", (2, 6), {}, "shape: "),
        ("batchnorm_bw", (6,), {}, "shape: "),
        ("matmul", (8,), {}, "shape: is no matrix's"),
        ("attention", (1, 3, 8, 8), {"share": 2}, "parameters.share: doesn't divide the 3 heads"),
        ("attention", (1, 1, 8, 8), {"causal": True, "keys": 4}, "parameters.keys: are fewer"),
        ("conv2d", (1, 3, 4, 4), {"size": 9}, "parameters.size: is too large"),
        ("topk", (4, 4), {"k": 5}, "parameters.k: is too large"),
        ("rotary", (4, 5), {}, "shape: has no pairs"),
    ],
)
def test_a_shape_that_a_kernel_cannot_have_is_refused(
    name: str, shape: tuple[int, ...], parameters: Mapping[str, Any], message: str
) -> None:
    kernel = KERNELS[name]
    with pytest.raises(FieldError, match=message):
        kernel.shapes(shape, kernel.completed(parameters))


def test_a_build_that_is_no_fault_in_this_shape_is_refused() -> None:
    test = TestSpec.parse({"kernel": "softmax", "shape": [4, 40]})
    workloads.check_emulated("without-tile-1/total", test, "build")
    for name in ("without-tile-2/total", "missing/gamma@y", "no-such-build"):
        with pytest.raises(FieldError) as caught:
            workloads.check_emulated(name, test, "build")
        assert caught.value.limit == "those of `gonogo kernels show softmax`"


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norms_are_their_formulas_and_gradients_the_slopes_of_the_forward_pass(kind: str) -> None:
    random = np.random.default_rng(1)
    x, dy, direction = random.normal(size=(3, 4, 6))
    gamma, beta = random.normal(size=(2, 6))
    forward, backward = (kernel_of(f"{kind}_{way}").reference for way in ("fw", "bw_own"))
    if kind == "layernorm":
        forward = partial(forward, beta=beta)
    centered, shift = (x - x.mean(1, keepdims=True), beta) if kind == "layernorm" else (x, 0)

    def total(step: float) -> float:
        y = forward(x=x + step * direction, gamma=gamma, epsilon=1e-3)["y"]
        return float((y * dy).sum())

    xhat = centered / np.sqrt(np.square(centered).mean(1, keepdims=True) + 1e-3)
    right = forward(x=x, gamma=gamma, epsilon=1e-3)["y"]
    np.testing.assert_allclose(right, gamma * xhat + shift, rtol=1e-12)
    gradients = backward(x=x, gamma=gamma, dy=dy, epsilon=1e-3)
    slope = (total(1e-5) - total(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, (gradients["dx"] * direction).sum(), rtol=1e-7)


def test_group_norm_of_one_group_is_layernorm_of_each_sample() -> None:
    x = np.random.default_rng(1).normal(size=(2, 6, 5))
    y = KERNELS["groupnorm_fw"].reference(x, np.ones(6), np.zeros(6), 1e-3, 1)["y"]
    rows = x.reshape(2, 30)
    right = KERNELS["layernorm_fw"].reference(rows, np.ones(30), np.zeros(30), 1e-3)["y"]
    np.testing.assert_allclose(y.reshape(2, 30), right, rtol=1e-12)
