"""Test specs: the same test however it is written, and the field that a refusal names."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from gonogo.arithmetic.formats import FORMATS
from gonogo.errors import FieldError
from gonogo.spec.numerics import BLOCK_FORMATS, FORMAT_NAMES
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance

NIGHTLY: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 273, 1, 8462],
    "epsilon": 1e-6,
    "numerics": {"input": "bf16", "output": "bf16", "accumulate": "fp32", "fidelity": "hifi4"},
    "inputs": {"regime": "uniform", "low": -1, "high": 1},
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}


def backward(**changes: Any) -> dict[str, Any]:
    return {"kernel": "layernorm_bw", "shape": [4, 64], **changes}


def forward(**changes: Any) -> dict[str, Any]:
    return {"kernel": "layernorm_fw", "shape": [4, 64], **changes}


def group(*shape: int, **changes: Any) -> dict[str, Any]:
    return {"kernel": "groupnorm_fw", "shape": list(shape), **changes}


def rms(**changes: Any) -> dict[str, Any]:
    return {"kernel": "rmsnorm_fw", "shape": [2, 6], **changes}


def exact(**changes: Any) -> dict[str, Any]:
    return forward(**{"inputs": {"regime": "exact"}, **changes})


def constant(value: float) -> dict[str, Any]:
    return {"regime": "constant", "value": value}


FP32 = dict.fromkeys(("x", "gamma", "mean", "rstd", "dy"), "fp32")
BEYOND = {"regime": "hot_tile", "tile": 2, "value": 1}
SAME = [
    (NIGHTLY, {**dict(reversed(NIGHTLY.items())), "inputs": {}, "numerics": {},
               "program": "default", "memory": "interleaved"}),
    (NIGHTLY, {**NIGHTLY, "shape": [3.0, 273, 1, 8462],
               "inputs": {"regime": "uniform", "low": -1.0, "high": 1.0}}),
    (NIGHTLY, {**NIGHTLY, "tolerance": {name: {"atol": 0.5, "rtol": 0.001}
                                        for name in ("dbeta", "dx", "dgamma")}}),
    (backward(tolerance={"rtol": 1e-3}),
     backward(tolerance={"atol": 0, "rtol": 1e-3, "pcc": None})),
    (backward(tolerance={"dx": {"rtol": 1e-3}, "dbeta": {}}),
     backward(tolerance={"dx": {"rtol": 1e-3, "atol": 0.0}})),
    (backward(tolerance={}), backward(tolerance=None)),
    (backward(tolerance={"dx": {}}), backward()),
    (backward(numerics={"input": FP32}), backward(numerics={"input": "fp32"})),
    (backward(numerics={"input": {"x": "fp32", "dy": "bf16"}}),
     backward(numerics={"input": {"x": "fp32"}})),
    (forward(numerics={"statistics": "given"}), forward(numerics={"statistics": "own"})),
    (backward(inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}),
     backward(inputs={"x": constant(0.5), "dy": constant(1.0), "gamma": 1.0})),
    (backward(inputs=constant(2)), backward(inputs={"x": constant(2), "dy": constant(2)})),
    (backward(inputs={"regime": "uniform", "low": -2}),
     backward(inputs={"low": -2, "high": 1, "regime": "uniform"})),
    (backward(inputs={"regime": "normal"}),
     backward(inputs={"regime": "normal", "mean": -0.0, "std": 1})),
    (backward(inputs={"gamma": {"regime": "uniform", "low": 0, "high": 1}}), backward()),
    (group(2, 8, 3, 3), group(2, 8, 3, 3, parameters={"num_groups": 1})),
    (exact(), exact(numerics={"input": "bf16"})),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_test_written_differently_has_one_key(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    spec = TestSpec.parse(one)
    assert spec == TestSpec.parse(other)
    assert spec.key == TestSpec.parse(other).key
    again = TestSpec.parse(json.loads(json.dumps(spec.canonical(), allow_nan=False)))
    assert (again, again.canonical()) == (spec, spec.canonical())


def test_what_matters_changes_the_key_and_the_tolerance_alone_keeps_the_workload() -> None:
    base = TestSpec.parse(backward())
    changed: list[dict[str, Any]] = [
        {"shape": [2, 2, 64]}, {"epsilon": 1e-5}, {"numerics": {"fidelity": "hifi2"}},
        {"numerics": {"statistics": "own"}}, {"inputs": {"regime": "normal"}},
        {"inputs": {"dy": 1}}, {"memory": {"sharded": [1, 1]}}, {"program": "legacy"},
    ]  # fmt: skip
    keys = {TestSpec.parse(backward(**change)).workload_key for change in changed}
    assert len(keys | {base.workload_key}) == len(changed) + 1
    loose = TestSpec.parse(backward(tolerance={"atol": 0.5}))
    assert (loose.key != base.key, loose.workload_key) == (True, base.workload_key)
    four = TestSpec.parse(group(2, 8, 3, 3, parameters={"num_groups": 4}))
    assert four.key != TestSpec.parse(group(2, 8, 3, 3)).key


def test_the_nightly_test_is_short_in_canonical_form() -> None:
    assert TestSpec.parse(NIGHTLY).canonical() == {
        "kernel": "layernorm_bw",
        "shape": [3, 273, 1, 8462],
        "tolerance": {"rtol": 0.001, "atol": 0.5},
    }


BAD = [
    (backward(kernel="layernorm"), "test.kernel", "layernorm_bw"),
    (backward(kernel=None), "test.kernel", "layernorm_bw"),
    (backward(color="red"), "test.color", "shape"),
    ({"kernel": "layernorm_bw"}, "test.shape", None),
    (backward(shape=[]), "test.shape", "dimensions"),
    (backward(shape=[1] * 9), "test.shape", "8"),
    (backward(shape="4,64"), "test.shape", "dimensions"),
    (backward(shape=[0, 64]), "test.shape.0", ">= 1"),
    (backward(shape=[4, -64]), "test.shape.1", ">= 1"),
    (backward(shape=[4, 64.5]), "test.shape.1", ">= 1"),
    (backward(shape=[4, True]), "test.shape.1", ">= 1"),
    (backward(shape=[4, math.inf]), "test.shape.1", ">= 1"),
    (backward(shape=[8193, 8193]), "test.shape", "67108864"),
    (backward(shape=[2**30] * 8), "test.shape", "67108864"),
    pytest.param(backward(shape=[10**4000] * 2), "test.shape", "67108864",
        id="more digits than Python writes"),
    (backward(epsilon=0), "test.epsilon", "> 0"),
    (backward(epsilon=-1e-6), "test.epsilon", "> 0"),
    (backward(epsilon=math.nan), "test.epsilon", "> 0"),
    (backward(epsilon="1e-6"), "test.epsilon", "> 0"),
    (backward(epsilon=True), "test.epsilon", "> 0"),
    (backward(epsilon=10**400), "test.epsilon", "> 0"),
    (backward(numerics={"input": "int8"}), "test.numerics.input", "bfp8_b"),
    (backward(numerics={"input": {"beta": "bf16"}}), "test.numerics.input.beta", "rstd"),
    (backward(numerics={"input": {"x": "f8"}}), "test.numerics.input.x", "bf16"),
    (backward(numerics={"statistics": "own", "input": {"mean": "fp32"}}),
     "test.numerics.input.mean", "gamma"),
    (backward(numerics={"fidelity": "hifi5"}), "test.numerics.fidelity", "hifi4"),
    (backward(numerics={"precision": "high"}), "test.numerics.precision", "accumulate"),
    (backward(numerics={"layout": "row_major", "input": "bfp8_b"}), "test.numerics.layout", "tile"),
    (backward(numerics=[]), "test.numerics", None),
    (backward(tolerance={"rtol": math.nan}), "test.tolerance.rtol", ">= 0"),
    (backward(tolerance={"rtol": -1e-3, "atol": 1}), "test.tolerance.rtol", ">= 0"),
    (backward(tolerance={"atol": math.inf}), "test.tolerance.atol", ">= 0"),
    (backward(tolerance={"atol": True}), "test.tolerance.atol", ">= 0"),
    (backward(tolerance={"pcc": 1.5}), "test.tolerance.pcc", "<= 1"),
    (backward(tolerance={"ulps": 1}), "test.tolerance.ulps", "frobenius"),
    (backward(tolerance={"y": {"atol": 1}}), "test.tolerance.y", "dgamma"),
    (backward(tolerance={"dx": {"atol": 1}, "rtol": 1}), "test.tolerance.rtol", "dgamma"),
    (backward(tolerance={"dx": {"atol": math.nan}}), "test.tolerance.dx.atol", ">= 0"),
    (backward(tolerance={"dx": 1}), "test.tolerance.dx", None),
    (backward(tolerance=0.5), "test.tolerance", None),
    (backward(inputs={"regime": "gaussian"}), "test.inputs.regime", "hot_tile"),
    (backward(inputs={"regime": "uniform", "low": 2}), "test.inputs.low", "<= 1"),
    (backward(inputs={"regime": "uniform", "low": math.nan}), "test.inputs.low", None),
    (backward(inputs={"regime": "uniform", "low": -3e38, "high": 3e38}), "test.inputs.high",
     "high - low"),
    (backward(inputs={"regime": "uniform", "mean": 0}), "test.inputs.mean", "low"),
    (backward(inputs={"regime": "normal", "std": -1}), "test.inputs.std", ">= 0"),
    (backward(inputs={"regime": "normal", "std": 1e38}), "test.inputs.std", "<= "),
    (backward(inputs={"regime": "constant", "value": math.inf}), "test.inputs.value", "<= "),
    (backward(inputs={"regime": "constant"}), "test.inputs.value", None),
    (backward(inputs={"regime": "constant", "x": 1}), "test.inputs.dy", None),
    (backward(inputs={"regime": "offset"}), "test.inputs.offset", None),
    (backward(inputs={"regime": "hot_tile", "tile": 2, "value": 1}), "test.inputs.tile", "<= 1"),
    (backward(inputs={"regime": "hot_tile", "tile": -1, "value": 1}), "test.inputs.tile", ">= 0"),
    (backward(inputs={"regime": "hot_tile", "tile": 0.5, "value": 1}), "test.inputs.tile", ">= 0"),
    (backward(inputs={"beta": 0}), "test.inputs.beta", "gamma"),
    (forward(inputs={"dy": 0}), "test.inputs.dy", "beta"),
    (backward(inputs={"gamma": {"regime": "ramp", "low": 3, "high": 2}}), "test.inputs.gamma.low",
     "<= 2"),
    (backward(inputs={"gamma": "ones"}), "test.inputs.gamma", None),
    (backward(inputs="uniform"), "test.inputs", None),
    (backward(memory="l1"), "test.memory", "interleaved"),
    (backward(memory={"sharded": [0, 8]}), "test.memory.sharded.0", ">= 1"),
    (backward(memory={"sharded": 8}), "test.memory.sharded", None),
    (backward(memory={"grid": [8, 8]}), "test.memory.grid", "sharded"),
    (backward(program="fast"), "test.program", "welford"),
    (backward(shape=[4, {}]), "test.shape.1", ">= 1"),
    (group(2, 6, parameters={"num_groups": 4}), "test.parameters.num_groups", None),
    (group(2, 6, parameters={"num_groups": 0}), "test.parameters.num_groups", None),
    (group(2, 6, parameters={"groups": 2}), "test.parameters.groups", None),
    (group(6), "test.shape", None),
    (group(2, 64, numerics={"output": "bfp8_b"}), "test.numerics.output", None),
    (group(2, 64, inputs={"gamma": BEYOND}), "test.inputs.gamma.tile", None),
    (rms(parameters={"num_groups": 2}), "test.parameters.num_groups", None),
    (rms(inputs={"beta": 1}), "test.inputs.beta", None),
    (rms(tolerance={"mean": {"atol": 1}}), "test.tolerance.mean", None),
    (rms(numerics={"statistics": "maybe"}), "test.numerics.statistics", None),
    (forward(parameters=3), "test.parameters", None),
    (exact(inputs={"regime": "exact", "gamma": 1}), "test.inputs.gamma", "regime"),
    (exact(inputs={"gamma": {"regime": "exact"}}), "test.inputs.gamma.regime", "only member"),
    (exact(numerics={"accumulate": "bf16"}), "test.numerics.accumulate", "fp32"),
    (exact(numerics={"fidelity": "hifi3"}), "test.numerics.fidelity", "hifi4"),
    (exact(numerics={"output": "bfp8_b"}), "test.numerics.output", "fp16"),
    (exact(numerics={"input": {"x": "bfp8_b"}}), "test.numerics.input.x", "fp16"),
    (exact(shape=[1, 2**20 + 1]), "test.shape", "1048576"),
    (exact(epsilon=2.0), "test.epsilon", "<= 1"),
    (exact(epsilon=1e-4, numerics={"input": "fp16"}), "test.epsilon", "<= 1.5"),
    ([], "test", None),
    (None, "test", None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "field", "limit"), BAD)
def test_bad_input_names_field_value_and_limit(data: Any, field: str, limit: str | None) -> None:
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(data)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    if limit is not None:
        assert limit in str(caught.value.limit)
        assert limit in str(caught.value)


def test_the_limit_of_elements_is_the_callers_and_stands_in_the_message() -> None:
    TestSpec.parse(backward(shape=[10, 10]), max_elements=100)
    with pytest.raises(
        FieldError,
        match=r"job\.test\.shape: has 110 elements \(allowed: 100 elements\); got \[10, 11\]",
    ):
        TestSpec.parse(backward(shape=[10, 11]), max_elements=100, path="job.test")


def test_constructing_a_spec_checks_it_too() -> None:
    with pytest.raises(ValidationError, match=r"shape\.0"):
        TestSpec(kernel="layernorm_bw", shape=(0, 4))
    spec = TestSpec(kernel="layernorm_bw", shape=(4, 64))
    assert spec == TestSpec.parse(backward())
    with pytest.raises(FieldError, match=r"^shape\.0"):
        spec.replace(shape=(0, 4))
    assert spec.replace(epsilon=1e-5) == TestSpec.parse(backward(epsilon=1e-5))


def test_a_huge_value_is_shown_in_part_only() -> None:
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(backward(program="x" * 100_000))
    assert len(str(caught.value)) < 300


def test_a_spec_says_names_shapes_formats_and_regimes_of_its_tensors() -> None:
    spec = TestSpec.parse(backward(shape=[3, 5, 64], numerics={"input": {"x": "fp32"}}))
    assert (spec.rows, spec.features, spec.elements) == (15, 64, 960)
    assert spec.outputs == ("dx", "dgamma", "dbeta")
    assert spec.input_names == ("x", "gamma", "mean", "rstd", "dy")
    assert [spec.shape_of(name) for name in ("dx", "gamma", "mean")] == [(3, 5, 64), (64,), (3, 5)]
    assert [spec.numerics.format_of(name) for name in ("x", "dy")] == ["fp32", "bf16"]
    own_statistics = TestSpec.parse(backward(numerics={"statistics": "own"}))
    assert own_statistics.input_names == ("x", "gamma", "dy")
    row = TestSpec.parse(forward(shape=[7], inputs={"regime": "normal", "beta": 3}))
    assert (row.rows, row.shape_of("mean"), row.input_names) == (1, (), ("x", "gamma", "beta"))
    assert row.numerics.statistics == "own"
    assert row.regime("x").regime == "normal"
    assert (row.regime("beta")["value"], row.regime("gamma")["low"]) == (3.0, 0.0)
    four = TestSpec.parse(group(2, 8, 3, 3, parameters={"num_groups": 4}))
    assert (four.rows, four.features, four.input_names) == (8, 18, ("x", "gamma", "beta"))
    shapes = [four.shape_of("mean"), four.flat_shape_of("y"), four.flat_shape_of("rstd")]
    assert shapes == [(2, 4), (8, 18), (8,)]
    drawn = TestSpec.parse(exact())
    assert {drawn.regime(name).regime for name in drawn.drawn_names} == {"exact"}


@pytest.mark.parametrize(
    ("tolerance", "dx", "dbeta"),
    [
        ({"rtol": 1e-3, "ulp": 4}, *[Tolerance(rtol=1e-3, atol=0.0, ulp=4.0)] * 2),
        ({"dx": {"pcc": 0.999}}, Tolerance(pcc=0.999), None),
        ({"atol": 0}, *[Tolerance(rtol=0.0, atol=0.0)] * 2),
        (None, None, None),
    ],
)
def test_an_output_has_its_own_tolerance_or_that_of_all(
    tolerance: Any, dx: Tolerance | None, dbeta: Tolerance | None
) -> None:
    spec = TestSpec.parse(backward(tolerance=tolerance))
    assert (spec.tolerance_for("dx"), spec.tolerance_for("dbeta")) == (dx, dbeta)


def test_format_names_are_those_of_the_formats() -> None:
    assert set(FORMAT_NAMES) <= set(FORMATS)
    blocked = (name for name in FORMAT_NAMES if FORMATS[name].block > 1)
    assert tuple(blocked) == BLOCK_FORMATS
