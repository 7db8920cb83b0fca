"""Products, attention, windows, reductions, indices, Adam and quantization: right and wrong."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo.arithmetic.evaluation import Evaluation
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.program import Program
from gonogo.errors import FieldError
from gonogo.graph import trace
from gonogo.kernels.kernel import Function
from gonogo.kernels.registry import FILES, KERNELS

Array = NDArray[Any]
Arrays = Mapping[str, Array]
FILE_NAMES = (
    "attention convolution indexing matmul optimizer pooling quantization reductions rotary"
)


@dataclass(frozen=True)
class Case:
    """A kernel, its first input's shape, its parameters, and a mistake; "": a factor of 1.01."""

    name: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    mistake: str = ""

    def arguments(self) -> dict[str, Any]:
        known = {"epsilon": 1e-6, **KERNELS[self.name].completed(self.parameters)}
        names = inspect.signature(KERNELS[self.name].reference).parameters
        return {name: value for name, value in known.items() if name in names}

    def inputs(self, form: str) -> Arrays:
        kernel, random = KERNELS[self.name], np.random.default_rng(3)
        parameters, arrays = kernel.completed(self.parameters), {}
        for name in kernel.inputs:
            shape = kernel.shape_of(name, self.shape, parameters)
            if name in kernel.whole:
                bound = kernel.whole[name](self.shape, parameters)
                arrays[name] = random.integers(0, bound, shape, np.int32)
                continue
            low = 0.0 if name in kernel.regimes else -1.0
            arrays[name] = round_to(random.uniform(low, 1.0, shape), form).astype(np.float32)
        return arrays

    def outputs(self, inputs: Arrays, form: str, function: Function) -> Arrays:
        """Return what a kernel in float32 gives, in a format."""
        graph = trace(function, inputs, **self.arguments())
        stored = {node.key: "fp32" for node in graph.nodes if node.kind == "float"}
        evaluation = Evaluation(graph, inputs, Program(stored=stored)).run()
        return {name: round_to(evaluation.output(name), form) for name in graph.outputs}

    def judged(self, inputs: Arrays, outputs: Arrays, form: str) -> gonogo.Judgment:
        kernel = KERNELS[self.name]
        return gonogo.judge(
            reference=kernel.reference,
            ways=kernel.ways,
            inputs=inputs,
            outputs={name: array.astype(np.float32) for name, array in outputs.items()},
            parameters=self.arguments(),
            numerics={"output": form},
        )


CASES = (
    Case("matmul", (24, 40), {"columns": 16}),
    Case("matmul_bw", (2, 8, 16)),
    Case("linear", (3, 8, 24), {"features": 10}),
    Case("linear_bw", (16, 24)),
    Case("linear_activation", (8, 24), {"activation": "silu"}, "bias-behind-activation"),
    Case("attention", (1, 2, 24, 16), {"causal": True}),
    Case("attention", (1, 2, 4, 8), {"share": 2, "keys": 70}),
    Case("attention_biased", (1, 1, 12, 8), {}, "scaled-bias"),
    Case("attention_masked", (1, 1, 12, 8)),
    Case("attention_bw", (1, 1, 12, 8)),
    Case("conv1d", (2, 3, 20), {"size": 3, "stride": 2, "padding": 2}, "flipped"),
    Case("conv2d", (1, 3, 7, 7), {"channels": 6}, "flipped"),
    Case("max_pool2d", (2, 3, 12, 12), {}, "zero-padded"),
    Case("average_pool2d", (2, 3, 12, 12), {"size": 2, "padding": 0}),
    Case("sum", (32, 50)),
    Case("mean", (32, 50)),
    Case("variance", (32, 50)),
    Case("max", (32, 50), {}, "of-sizes"),
    Case("cumsum", (8, 80), {}, "exclusive"),
    Case("embedding", (4, 8), {"rows": 50, "width": 12}),
    Case("topk", (16, 40), {"k": 5}, "rising"),
    Case("rotary", (2, 12, 16), {}, "interleaved"),
    Case("rotary_interleaved", (2, 12, 16), {}, "halves"),
    Case("adam", (16, 24), {}, "uncorrected"),
    Case("adamw", (16, 24), {"step": 1}, "penalty"),
    Case("quantize_bf16", (16, 40)),
    Case("quantize_bfp8", (16, 40)),
    Case("quantize_int8", (16, 40), {}, "truncated"),
    Case("quantize_fp8", (16, 40), {}, "scale-of-tensor"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.shape}")
def test_right_kernels_are_explained_and_a_fault_is_not(case: Case) -> None:
    kernel = KERNELS[case.name]
    for form in ("fp32", "bf16"):
        inputs = case.inputs(form)
        right = case.outputs(inputs, form, kernel.reference)
        for name, array in right.items():
            assert array.shape == kernel.shape_of(name, case.shape, case.parameters), name
        assert case.judged(inputs, right, form).verdict == "pass", form
        for way in kernel.ways:
            other = case.outputs(inputs, "fp32", way)
            assert all(np.allclose(other[name], right[name], 0.05, 0.05) for name in right), way
    first, *_ = right
    if case.mistake:
        wrong = case.outputs(inputs, form, kernel.mistakes[case.mistake])
    else:
        wrong = {**right, first: round_to(1.01 * right[first], form)}
    assert case.judged(inputs, wrong, form).verdict == "pass_by_tolerance"


def test_products_may_be_added_in_any_order_and_need_all_terms() -> None:
    case, random = Case("matmul", (64, 256), {"columns": 64}), np.random.default_rng(5)
    inputs = {
        name: random.uniform(-1, 1, array.shape).astype(np.float32)
        for name, array in case.inputs("fp32").items()
    }
    a, b = inputs.values()
    terms = a.T[:, :, None] * b[:, None, :]
    running = np.add.accumulate(terms, axis=0)[-1]
    backward = np.add.accumulate(terms[::-1], axis=0)[-1]
    for y in (a @ b, running, backward):
        assert case.judged(inputs, {"y": y}, "fp32").verdict == "pass"
    wrong = running - np.where(np.arange(64) == 9, terms[-1], 0)
    assert case.judged(inputs, {"y": wrong}, "fp32").verdict == "pass_by_tolerance"


def test_every_kernel_of_these_files_has_a_case() -> None:
    names = {name for file in FILE_NAMES.split() for name in FILES[file].split()}
    assert {case.name for case in CASES} == names


@pytest.mark.parametrize(
    ("name", "shape", "parameters", "message"),
    [
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
