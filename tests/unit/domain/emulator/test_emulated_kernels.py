"""The emulated kernels: they reproduce the published figures, and rows don't depend on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs

Array = NDArray[np.float32]


def spec(
    kernel: str = "layernorm_bw", shape: tuple[int, ...] = (40, 100), **fields: Any
) -> TestSpec:
    return TestSpec.parse({"kernel": kernel, "shape": list(shape), **fields})


def inputs(test: TestSpec, seed: int = 0) -> dict[str, Array]:
    return quantise(test, generate(test, seed))


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name].view(np.uint32), other[name].view(np.uint32)) for name in one
    )


def constant(features: int, srcb: str = "tf32") -> tuple[TestSpec, dict[str, Array]]:
    """Return the published reproduction: dy = gamma = 1, x = 0.5."""
    test = spec(
        shape=(2, features),
        numerics={"srcb": srcb},
        inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1},
    )
    return test, inputs(test)


def largest_dx(features: int, build: str, srcb: str = "tf32") -> float:
    test, given = constant(features, srcb)
    return float(np.abs(emulator.run(test, given, build)["dx"]).max())


@pytest.mark.parametrize(
    ("features", "published"), [(2048, 1000.0), (4096, 1000.0), (8192, 1000.0), (8462, 992.0)]
)
def test_double_subtract_gives_the_device_figures_to_the_digit(
    features: int, published: float
) -> None:
    assert largest_dx(features, "double-subtract") == published


def test_the_published_988_is_what_a_bf16_srcb_gives() -> None:
    assert largest_dx(8462, "double-subtract", srcb="bf16") == 988.0


@pytest.mark.parametrize(
    ("features", "expected"), [(2048, 968.0), (4096, 984.0), (8192, 992.0), (8462, 996.0)]
)
def test_last_two_tiles_gives_other_figures_so_that_explanation_is_refuted(
    features: int, expected: float
) -> None:
    assert largest_dx(features, "last-two-tiles") == expected


def test_the_right_kernel_is_off_by_the_truncated_reciprocal_only() -> None:
    assert largest_dx(8462, "correct") == 3.421875
    assert largest_dx(8192, "correct") == 0.0


def test_a_right_forward_kernel_can_lose_a_constant_row() -> None:
    test = spec(
        "layernorm_fw", (2, 20), inputs={"regime": "constant", "x": 0.5, "gamma": 1, "beta": 0}
    )
    outputs = emulator.run(test, inputs(test), "correct")
    assert outputs["mean"][0] == np.float32(0.498046875)
    assert outputs["y"][0, 0] == np.float32(0.890625)


def test_the_nightly_test_in_small_has_the_published_error() -> None:
    test = spec(shape=(64, 8462))
    raw = generate(test, 0)
    outputs, golden = emulator.run(test, quantise(test, raw), "correct"), exact_outputs(test, raw)
    error = outputs["dx"] - golden["dx"]
    assert np.sqrt((error**2).mean()) == pytest.approx(1.72e-3, rel=0.03)
    assert np.abs(error).max() <= 0.0140
    assert 1 - np.corrcoef(outputs["dx"].ravel(), golden["dx"].ravel())[0, 1] == pytest.approx(
        4.4e-6, rel=0.05
    )


@pytest.mark.parametrize(
    ("kernel", "in_srcb"), [("layernorm_fw", False), ("rmsnorm_fw", True), ("groupnorm_fw", True)]
)
def test_only_layernorm_scales_by_an_rstd_that_srcb_does_not_truncate(
    kernel: str, in_srcb: bool
) -> None:
    numerics = {"buffers": "fp32", "output": "fp32", "srcb": "bf16"}
    affine = {"gamma": {"regime": "constant", "value": 1}}
    if kernel != "rmsnorm_fw":
        affine["beta"] = {"regime": "constant", "value": 0}
    test = spec(kernel, numerics=numerics, inputs=affine)
    given = inputs(test)
    outputs = emulator.run(test, given, "correct")
    x = given["x"] - (0.0 if kernel == "rmsnorm_fw" else given["x"].mean(axis=1, keepdims=True))
    y = outputs["y"].reshape(x.shape)
    scale = np.vecdot(x, y) / np.vecdot(x, x)
    rstd = outputs["rstd"].reshape(-1)
    expected = round_to(rstd, "bf16", "zero") if in_srcb else rstd
    assert np.allclose(scale, expected, rtol=2**-9)
    assert not np.allclose(rstd, round_to(rstd, "bf16", "zero"), rtol=2**-8)


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
@pytest.mark.parametrize(
    ("numerics", "allowed"),
    [
        ({}, 0.02),
        ({"input": "fp32", "output": "fp32", "buffers": "fp32"}, 0.004),
        ({"output": "bfp8_b"}, 0.04),
        ({"input": "bfp8_b", "buffers": "bfp8_b", "output": "bfp8_b"}, 0.06),
        ({"fidelity": "lofi"}, 0.06),
        ({"accumulate": "bf16"}, 0.04),
    ],
)
def test_the_right_kernel_stays_near_its_reference_in_every_arithmetic(
    kernel: str, numerics: dict[str, str], allowed: float
) -> None:
    test = spec(kernel, (64, 321), numerics=numerics)
    given = inputs(test)
    outputs, golden = emulator.run(test, given, "correct"), exact_outputs(test, given)
    for name in test.outputs:
        scale = np.abs(golden[name]).max()
        assert np.abs(outputs[name] - golden[name]).max() <= allowed * scale, name


def test_outputs_are_in_the_output_format() -> None:
    for kernel in ("layernorm_bw", "layernorm_fw"):
        for output in ("bf16", "fp16", "tf32"):
            test = spec(kernel, numerics={"output": output})
            for a in emulator.run(test, inputs(test), "correct").values():
                assert np.array_equal(a, round_to(a, output))


@pytest.mark.parametrize("shape", [(1, 1), (1, 31), (33, 1), (2, 3, 1, 20), (5,)])
def test_any_shape_runs_and_outputs_have_the_shapes_of_the_inputs(shape: tuple[int, ...]) -> None:
    for kernel in ("layernorm_bw", "layernorm_fw"):
        test = spec(kernel, shape)
        given = {name: a.reshape(test.shape_of(name)) for name, a in inputs(test).items()}
        outputs = emulator.run(test, given, "correct")
        assert {name: a.shape for name, a in outputs.items()} == {
            name: test.shape_of(name) for name in test.outputs
        }
        assert all(a.dtype == np.float32 and np.isfinite(a).all() for a in outputs.values())


def test_rows_do_not_depend_on_their_neighbours_or_on_the_number_of_rows() -> None:
    test = spec(shape=(70, 100))
    given = inputs(test)
    whole = emulator.run(test, given, "correct")["dx"]
    part = {
        name: a[35:70] if name in ("x", "dy", "mean", "rstd") else a for name, a in given.items()
    }
    assert np.array_equal(emulator.run(spec(shape=(35, 100)), part, "correct")["dx"], whole[35:70])


def test_a_backward_kernel_can_make_its_own_statistics() -> None:
    test = spec(numerics={"statistics": "own"})
    given = inputs(test)
    assert "mean" not in given
    outputs, golden = emulator.run(test, given, "correct"), exact_outputs(test, given)
    assert np.abs(outputs["dx"] - golden["dx"]).max() < 0.05


def test_the_srcb_switch_matters_only_where_formats_mix() -> None:
    test, given = constant(8462)
    other, _ = constant(8462, "bf16")
    assert not same(emulator.run(test, given, "correct"), emulator.run(other, given, "correct"))
    forward, switched = spec("layernorm_fw"), spec("layernorm_fw", numerics={"srcb": "bf16"})
    assert same(
        emulator.run(forward, inputs(forward), "correct"),
        emulator.run(switched, inputs(forward), "correct"),
    )
    mixed = {"input": {"gamma": "fp32"}}
    forward, switched = (
        spec("layernorm_fw", numerics=mixed),
        spec("layernorm_fw", numerics=mixed | {"srcb": "bf16"}),
    )
    assert not same(
        emulator.run(forward, inputs(forward), "correct"),
        emulator.run(switched, inputs(forward), "correct"),
    )
