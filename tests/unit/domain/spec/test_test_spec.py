"""Test specs: refused fields, the words of each refusal, and keys that never change."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from gonogo.arithmetic.formats import FORMATS
from gonogo.errors import Bug, FieldError
from gonogo.spec.canonical import key_of
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


GOLDEN = [
    (NIGHTLY, "v1-01cdbe75d15c7d190a38846b982f9380", "v1-0c448cfc2c2e8057c0605b9882b127bf"),
    (backward(), "v1-257b38df011936e3b1bbe74802004354", "v1-257b38df011936e3b1bbe74802004354"),
    (forward(tolerance={"y": {"rtol": 0.01, "pcc": 0.9999}, "mean": {"ulp": 2}}),
     "v1-824515781adba82cfea6ca6c1af3df01", "v1-10757b96e046e81b44856842c31d7ef4"),
    (
     backward(shape=[7], epsilon=1e-12, program="welford", memory={"sharded": [8, 4]},
     numerics={"input": {"x": "fp32"}, "statistics": "given", "srcb": "bf16"},
     inputs={"regime": "offset", "offset": 10, "dy": {"regime": "normal"}, "gamma": 1}),
     "v1-78a10d35e0d4a9a1f92aa5538c458134", "v1-78a10d35e0d4a9a1f92aa5538c458134"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "key", "workload_key"), GOLDEN)
def test_keys_are_the_same_for_ever(data: dict[str, Any], key: str, workload_key: str) -> None:
    """A failure here means that every stored history loses its test: change KEY_PREFIX's version
    instead."""
    spec = TestSpec.parse(data)
    assert (spec.key, spec.workload_key) == (key, workload_key)


SAME = [
    (NIGHTLY,
     {**dict(reversed(NIGHTLY.items())), "inputs": {}, "numerics": {}, "program": "default",
     "memory": "interleaved"}),
    (NIGHTLY,
     {**NIGHTLY, "shape": [3.0, 273, 1, 8462],
     "inputs": {"regime": "uniform", "low": -1.0, "high": 1.0}}),
    (NIGHTLY,
     {**NIGHTLY,
     "tolerance": {name: {"atol": 0.5, "rtol": 0.001} for name in ("dbeta", "dx", "dgamma")}}),
    (backward(tolerance={"rtol": 1e-3}),
     backward(tolerance={"atol": 0, "rtol": 1e-3, "pcc": None})),
    (backward(tolerance={"dx": {"rtol": 1e-3}, "dbeta": {}}),
     backward(tolerance={"dx": {"rtol": 1e-3, "atol": 0.0}})),
    (backward(tolerance={}), backward(tolerance=None)),
    (backward(tolerance={"dx": {}}), backward()),
    (
     backward(
     numerics={
     "input": {"x": "fp32", "gamma": "fp32", "mean": "fp32", "rstd": "fp32", "dy": "fp32"}}),
     backward(numerics={"input": "fp32"})),
    (backward(numerics={"input": {"x": "fp32", "dy": "bf16"}}),
     backward(numerics={"input": {"x": "fp32"}})),
    (forward(numerics={"statistics": "given"}), forward(numerics={"statistics": "own"})),
    (backward(inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}),
     backward(
     inputs={"x": {"regime": "constant", "value": 0.5}, "dy": {"regime": "constant", "value": 1.0},
     "gamma": 1.0})),
    (backward(inputs={"regime": "constant", "value": 2}),
     backward(
     inputs={"x": {"regime": "constant", "value": 2}, "dy": {"regime": "constant", "value": 2}})),
    (backward(inputs={"regime": "uniform", "low": -2}),
     backward(inputs={"low": -2, "high": 1, "regime": "uniform"})),
    (backward(inputs={"regime": "normal"}),
     backward(inputs={"regime": "normal", "mean": -0.0, "std": 1})),
    (backward(inputs={"gamma": {"regime": "uniform", "low": 0, "high": 1}}), backward()),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_test_written_differently_has_one_key(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert TestSpec.parse(one) == TestSpec.parse(other)
    assert TestSpec.parse(one).key == TestSpec.parse(other).key


def test_what_matters_changes_the_key_and_the_tolerance_alone_keeps_the_workload() -> None:
    base = TestSpec.parse(backward())
    changed = [
        {"shape": [2, 2, 64]},
        {"epsilon": 1e-5},
        {"numerics": {"fidelity": "hifi2"}},
        {"numerics": {"statistics": "own"}},
        {"inputs": {"regime": "normal"}},
        {"inputs": {"dy": 1}},
        {"memory": {"sharded": [1, 1]}},
        {"program": "legacy"},
    ]
    keys = {TestSpec.parse(backward(**change)).workload_key for change in changed}
    assert len(keys | {base.workload_key}) == len(changed) + 1
    loose = TestSpec.parse(backward(tolerance={"atol": 0.5}))
    assert loose.key != base.key
    assert loose.workload_key == base.workload_key


@pytest.mark.parametrize("data", [data for data, _, _ in GOLDEN] + [one for one, _ in SAME])
def test_the_canonical_form_is_plain_json_that_parses_to_the_same_spec(
    data: dict[str, Any],
) -> None:
    spec = TestSpec.parse(data)
    text = json.dumps(spec.canonical(), allow_nan=False)
    again = TestSpec.parse(json.loads(text))
    assert again == spec
    assert again.canonical() == spec.canonical()
    assert hash(again) == hash(spec)


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


def test_names_and_shapes_of_tensors() -> None:
    spec = TestSpec.parse(backward(shape=[3, 5, 64]))
    assert (spec.rows, spec.features, spec.elements) == (15, 64, 960)
    assert spec.outputs == ("dx", "dgamma", "dbeta")
    assert spec.input_names == ("x", "gamma", "mean", "rstd", "dy")
    assert [spec.shape_of(name) for name in ("dx", "gamma", "mean")] == [(3, 5, 64), (64,), (3, 5)]
    own_statistics = TestSpec.parse(backward(numerics={"statistics": "own"}))
    assert own_statistics.input_names == ("x", "gamma", "dy")
    row = TestSpec.parse(forward(shape=[7]))
    assert (row.rows, row.shape_of("mean"), row.input_names) == (1, (), ("x", "gamma", "beta"))
    assert row.numerics.statistics == "own"


def test_format_of_a_tensor() -> None:
    numerics = TestSpec.parse(backward(numerics={"input": {"x": "fp32"}})).numerics
    assert (numerics.format_of("x"), numerics.format_of("dy")) == ("fp32", "bf16")


def test_tolerance_of_an_output() -> None:
    spec = TestSpec.parse(backward(tolerance={"rtol": 1e-3, "ulp": 4}))
    assert spec.tolerance_for("dbeta") == Tolerance(rtol=1e-3, atol=0.0, ulp=4.0)
    spec = TestSpec.parse(backward(tolerance={"dx": {"pcc": 0.999}}))
    assert spec.tolerance_for("dx") == Tolerance(pcc=0.999)
    assert spec.tolerance_for("dx").allclose is None  # type: ignore[union-attr]
    assert spec.tolerance_for("dbeta") is None
    assert TestSpec.parse(backward()).tolerance_for("dx") is None
    exact = TestSpec.parse(backward(tolerance={"atol": 0}))
    assert exact.tolerance_for("dx").allclose == (0.0, 0.0)  # type: ignore[union-attr]


def test_regime_of_a_tensor() -> None:
    spec = TestSpec.parse(forward(inputs={"regime": "normal", "beta": 3}))
    assert (spec.regime("x").regime, spec.regime("beta")["value"], spec.regime("gamma")["low"]) == (
        "normal",
        3.0,
        0.0,
    )


def test_format_names_are_those_of_the_formats() -> None:
    assert set(FORMAT_NAMES) <= set(FORMATS)
    blocked = (name for name in FORMAT_NAMES if FORMATS[name].block > 1)
    assert tuple(blocked) == BLOCK_FORMATS


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({}, "v1-44136fa355b3678a1146ad16f7e8649e"),
        (None, "v1-74234e98afe7498fb5daf1f36ac2d78a"),
        (
         {"b": [1, 2.0, -0.0], "a": None, "\u20ac": True, "\U0001f600": 0,
         "\ufb33": '\u2028"\\/\x00\x1f\x7f\n\u00e9'}, "v1-ee660fba480518ffc7914ed81bbe0fa4"),
        (
         [*(1e21, 1e20, 123456789012345680000.0, 1e-7, 1.5e-7, 0.000001, 5e-324),
         *(1.7976931348623157e308, 0.1, 100.0, 333333333.3333333, -1e30, 1e16),
         12345678901234567.0], "v1-90aebf7677287c35f4deb9f8ad4742d5"),
        ([2**53 - 1, -(2**53) + 1, (1, (2,))], "v1-38aa5d7ad7eb750b15bc082f58faef7d"),
    ],
)  # fmt: skip
def test_keys_of_edge_cases_of_canonical_json_never_change(value: Any, key: str) -> None:
    """Two implementations agreed on these digests."""
    assert key_of(value) == key


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**53, {1: 2}, {1, 2}, b"x", "\ud800", {"\ud800": 1}]
)
def test_what_json_cannot_hold_has_no_key(value: Any) -> None:
    with pytest.raises(Bug):
        key_of(value)


def test_numbers_that_are_equal_give_equal_keys() -> None:
    assert key_of({"a": 1, "b": [2.0]}) == key_of({"b": [2], "a": 1.0})
    assert len(key_of({})) == len("v1-") + 32
