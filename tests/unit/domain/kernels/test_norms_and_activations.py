"""Norms, softmax, activations and elementwise kernels: right in two formats, and a fault each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo.arithmetic.formats import round_to
from gonogo.errors import FieldError
from gonogo.kernels import (
    activations,
    batchnorm,
    elementwise,
    gelu,
    groupnorm,
    norms,
    softmax,
)
from gonogo.kernels.kernel import Kernel
from gonogo.kernels.registry import KERNELS

Arrays = Mapping[str, NDArray[Any]]
FILES = (activations, batchnorm, elementwise, gelu, groupnorm, norms, softmax)
TESTED = {kernel.name: kernel for file in FILES for kernel in file.KERNELS}
SHAPE, IMAGE = (12, 64), (3, 8, 4, 6)
PARAMETERS = {"groupnorm_fw": {"num_groups": 4}, "groupnorm_bw": {"num_groups": 4}}
EPSILON = 1e-5


def _shape(kernel: Kernel) -> tuple[int, ...]:
    return IMAGE if len(kernel.example) == 4 else SHAPE


def _drawn(kernel: Kernel) -> Arrays:
    """Return inputs of a kernel in bf16, as its file says."""
    random = np.random.default_rng(7)
    parameters = kernel.completed(PARAMETERS.get(kernel.name, {}))
    inputs: dict[str, NDArray[Any]] = {}
    for name in kernel.inputs:
        shape = kernel.shape_of(name, _shape(kernel), parameters)
        regime = kernel.regimes.get(name, {})
        if name in kernel.whole:
            bound = kernel.whole[name](_shape(kernel), parameters)
            inputs[name] = random.integers(0, bound, shape, np.int32)
        elif regime.get("regime") == "uniform":
            inputs[name] = random.uniform(regime["low"], regime["high"], shape)
        else:
            inputs[name] = random.normal(0, regime.get("std", 1.0), shape)
    return {
        name: array if name in kernel.whole else round_to(array, "bf16").astype(np.float32)
        for name, array in inputs.items()
    }


def _arguments(kernel: Kernel) -> dict[str, Any]:
    has_epsilon = "epsilon" in inspect.signature(kernel.reference).parameters
    epsilon = {"epsilon": EPSILON} if has_epsilon else {}
    return kernel.completed(PARAMETERS.get(kernel.name, {})) | epsilon


def _judged(kernel: Kernel, inputs: Arrays, outputs: Arrays, form: str) -> gonogo.Judgment:
    return gonogo.judge(
        reference=kernel.reference,
        ways=list(kernel.ways),
        inputs=inputs,
        outputs=outputs,
        parameters=_arguments(kernel),
        numerics={"input": {n: form for n in inputs if n not in kernel.whole}, "output": form},
    )


def _numpy(kernel: Kernel, inputs: Arrays) -> Arrays:
    """Return the outputs of the kernel's own function in NumPy's float32."""
    arguments = {
        name: np.float32(value) if isinstance(value, float) else value
        for name, value in _arguments(kernel).items()
    }
    outputs = kernel.reference(**inputs, **arguments)
    return {name: np.asarray(values, np.float32) for name, values in outputs.items()}


@pytest.mark.parametrize("name", TESTED)
def test_a_right_kernel_is_explained_and_a_fault_is_not(name: str) -> None:
    kernel = TESTED[name]
    inputs = _drawn(kernel)
    right = _numpy(kernel, inputs)
    parameters = PARAMETERS.get(name, {})
    for output, values in right.items():
        shape = kernel.shape_of(output, _shape(kernel), kernel.completed(parameters))
        assert tuple(size for size in values.shape if size > 1) == shape, output
    assert tuple(right) == kernel.outputs
    assert _judged(kernel, inputs, right, "fp32").explanation == "explained"
    rounded = {output: round_to(values, "bf16") for output, values in right.items()}
    assert _judged(kernel, inputs, rounded, "bf16").explanation == "explained"
    first = kernel.outputs[0]
    wrong = right | {first: right[first] * np.float32(1.001)}
    assert _judged(kernel, inputs, wrong, "fp32").explanation == "unexplained"


@pytest.mark.parametrize(
    ("name", "id"), [(name, id) for name, kernel in TESTED.items() for id in kernel.mistakes]
)
def test_a_mistake_is_flagged(name: str, id: str) -> None:
    kernel = TESTED[name]
    inputs = _drawn(kernel)
    outputs = kernel.mistakes[id](**inputs, **_arguments(kernel))
    wrong = {output: np.asarray(values, np.float32) for output, values in outputs.items()}
    assert _judged(kernel, inputs, wrong, "fp32").explanation == "unexplained"


def test_every_way_equals_the_reference_in_exact_arithmetic() -> None:
    for kernel in TESTED.values():
        inputs = {
            name: array if name in kernel.whole else array.astype(np.float64)
            for name, array in _drawn(kernel).items()
        }
        right = kernel.reference(**inputs, **_arguments(kernel))
        for way in kernel.ways:
            for name, values in way(**inputs, **_arguments(kernel)).items():
                scale = np.abs(right[name]).max()
                np.testing.assert_allclose(values, right[name], rtol=0, atol=1e-11 * scale)


def test_the_registry_knows_them_all() -> None:
    assert {name: KERNELS[name] for name in TESTED} == TESTED


@pytest.mark.parametrize(
    ("name", "shape", "parameters", "field"),
    [
        ("groupnorm_bw", (2, 6, 4), {"num_groups": 4}, "parameters.num_groups"),
        ("instancenorm", (2, 6), {}, "shape"),
        ("batchnorm_bw", (6,), {}, "shape"),
    ],
)
def test_an_impossible_shape_is_refused(
    name: str, shape: tuple[int, ...], parameters: dict[str, int], field: str
) -> None:
    with pytest.raises(FieldError) as refused:
        TESTED[name].shapes(shape, parameters)
    assert refused.value.field == field
