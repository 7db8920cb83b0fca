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

Data = dict[str, Any]


def bw(**changes: Any) -> Data:
    return {"kernel": "layernorm_bw", "shape": [4, 64], **changes}


def fw(**changes: Any) -> Data:
    return {"kernel": "layernorm_fw", "shape": [4, 64], **changes}


def rms(**changes: Any) -> Data:
    return {"kernel": "rmsnorm_fw", "shape": [2, 6], **changes}


def group(*shape: int, **changes: Any) -> Data:
    return {"kernel": "groupnorm_fw", "shape": list(shape), **changes}


def exact(**changes: Any) -> Data:
    return fw(**{"inputs": {"regime": "exact"}, **changes})


def backward(*changes: Data) -> list[Data]:
    return [bw(**change) for change in changes]


def drawn(**inputs: Any) -> Data:
    return bw(inputs=inputs)


def numerics(**numerics: Any) -> Data:
    return bw(numerics=numerics)


def hot(tile: float) -> Data:
    return {"regime": "hot_tile", "tile": tile, "value": 1}


FP32 = dict.fromkeys(("x", "gamma", "mean", "rstd", "dy"), "fp32")
TWO, HALF = {"regime": "constant", "value": 2}, {"regime": "constant", "value": 0.5}
LOOSE = {"rtol": 1e-3, "atol": 0.5}
NIGHTLY = bw(shape=[3, 273, 1, 8462], tolerance=LOOSE)
WHOLE: Data = {
    **dict(reversed(NIGHTLY.items())),
    "epsilon": 1e-6,
    "numerics": {"input": "bf16", "output": "bf16", "accumulate": "fp32", "fidelity": "hifi4"},
    "inputs": {"regime": "uniform", "low": -1, "high": 1},
    "program": "default",
    "memory": "interleaved",
}
PER_OUTPUT = {name: {"atol": 0.5, "rtol": 0.001} for name in ("dbeta", "dx", "dgamma")}
SAME = [
    [NIGHTLY, WHOLE, {**WHOLE, "inputs": {}, "numerics": {}}],
    [NIGHTLY, {**NIGHTLY, "shape": [3.0, 273, 1, 8462]}, {**NIGHTLY, "tolerance": PER_OUTPUT}],
    [bw(tolerance={"rtol": 1e-3}), bw(tolerance={"atol": 0, "rtol": 1e-3, "pcc": None})],
    backward(
        {"tolerance": {"dx": {"rtol": 1e-3}, "dbeta": {}}},
        {"tolerance": {"dx": {"rtol": 1e-3, "atol": 0.0}}},
    ),
    backward({}, {"tolerance": {}}, {"tolerance": None}, {"tolerance": {"dx": {}}}),
    [numerics(input=FP32), numerics(input="fp32")],
    [numerics(input={"x": "fp32", "dy": "bf16"}), numerics(input={"x": "fp32"})],
    [fw(numerics={"statistics": "given"}), fw(numerics={"statistics": "own"})],
    [drawn(regime="constant", x=0.5, dy=2, gamma=1), drawn(x=HALF, dy=TWO, gamma=1.0)],
    [bw(inputs=TWO), drawn(x=TWO, dy=TWO)],
    [drawn(regime="uniform", low=-2), drawn(low=-2, high=1, regime="uniform")],
    [drawn(regime="normal"), drawn(regime="normal", mean=-0.0, std=1)],
    [drawn(gamma={"regime": "uniform", "low": 0, "high": 1}), bw()],
    [group(2, 8, 3, 3), group(2, 8, 3, 3, parameters={"num_groups": 1})],
    [exact(), exact(numerics={"input": "bf16"})],
]


@pytest.mark.parametrize("spellings", SAME)
def test_the_same_test_written_differently_has_one_key(spellings: list[Data]) -> None:
    first, *others = map(TestSpec.parse, spellings)
    for other in others:
        assert (other, other.key) == (first, first.key)
    again = TestSpec.parse(json.loads(json.dumps(first.canonical(), allow_nan=False)))
    assert (again, again.canonical()) == (first, first.canonical())


def test_the_nightly_test_is_short_in_canonical_form() -> None:
    assert TestSpec.parse(WHOLE).canonical() == NIGHTLY


def test_what_matters_changes_the_key_and_the_tolerance_alone_keeps_the_workload() -> None:
    tests = backward(
        {},
        {"shape": [2, 2, 64]},
        {"epsilon": 1e-5},
        {"numerics": {"fidelity": "hifi2"}},
        {"numerics": {"statistics": "own"}},
        {"inputs": {"regime": "normal"}},
        {"inputs": {"dy": 1}},
        {"memory": {"sharded": [1, 1]}},
        {"program": "legacy"},
    )
    tests += [group(2, 8, 3, 3), group(2, 8, 3, 3, parameters={"num_groups": 4})]
    assert len({TestSpec.parse(test).workload_key for test in tests}) == len(tests)
    base, loose = TestSpec.parse(bw()), TestSpec.parse(bw(tolerance={"atol": 0.5}))
    assert (loose.key != base.key, loose.workload_key) == (True, base.workload_key)


BAD: list[tuple[Any, str, str | None]] = [
    (bw(kernel=None), "kernel", "layernorm_bw"),
    *((bw(shape=shape), "shape", "dimensions") for shape in ([], "4,64")),
    (bw(shape=[1] * 9), "shape", "8"),
    (bw(shape=[0, 64]), "shape.0", ">= 1"),
    *((bw(shape=[4, n]), "shape.1", ">= 1") for n in (-64, 64.5, True, math.inf, {})),
    *((bw(shape=shape), "shape", "67108864") for shape in ([8193] * 2, [2**30] * 8)),
    *((bw(epsilon=n), "epsilon", "> 0") for n in (0, -1e-6, math.nan, "1e-6", True, 10**400)),
    (numerics(input={"beta": "bf16"}), "numerics.input.beta", "rstd"),
    (numerics(input={"x": "f8"}), "numerics.input.x", "bf16"),
    (numerics(statistics="own", input={"mean": "fp32"}), "numerics.input.mean", "gamma"),
    (numerics(fidelity="hifi5"), "numerics.fidelity", "hifi4"),
    (numerics(precision="high"), "numerics.precision", "accumulate"),
    (numerics(layout="row_major", input="bfp8_b"), "numerics.layout", "tile"),
    (bw(numerics=[]), "numerics", None),
    *((bw(tolerance={"rtol": n}), "tolerance.rtol", ">= 0") for n in (math.nan, -1e-3)),
    *((bw(tolerance={"atol": n}), "tolerance.atol", ">= 0") for n in (math.inf, True)),
    (bw(tolerance={"pcc": 1.5}), "tolerance.pcc", "<= 1"),
    (bw(tolerance={"ulps": 1}), "tolerance.ulps", "frobenius"),
    (bw(tolerance={"half\ud800": 1}), "tolerance.half?", "frobenius"),
    (bw(tolerance={"y": {"atol": 1}}), "tolerance.y", "dgamma"),
    (bw(tolerance={"dx": {"atol": 1}, "rtol": 1}), "tolerance.rtol", "dgamma"),
    (bw(tolerance={"dx": {"atol": math.nan}}), "tolerance.dx.atol", ">= 0"),
    (bw(tolerance={"dx": 1}), "tolerance.dx", None),
    (bw(tolerance=0.5), "tolerance", None),
    (drawn(regime="gaussian"), "inputs.regime", "hot_tile"),
    (drawn(regime="uniform", low=2), "inputs.low", "<= 1"),
    (drawn(regime="uniform", low=math.nan), "inputs.low", None),
    (drawn(regime="uniform", low=-3e38, high=3e38), "inputs.high", "high - low"),
    (drawn(regime="uniform", mean=0), "inputs.mean", "low"),
    (drawn(regime="normal", std=-1), "inputs.std", ">= 0"),
    (drawn(regime="normal", std=1e38), "inputs.std", "<= "),
    (drawn(regime="constant", value=math.inf), "inputs.value", "<= "),
    (drawn(regime="constant"), "inputs.value", None),
    (drawn(regime="constant", x=1), "inputs.dy", None),
    (drawn(regime="offset"), "inputs.offset", None),
    (bw(inputs=hot(2)), "inputs.tile", "<= 1"),
    *((bw(inputs=hot(tile)), "inputs.tile", ">= 0") for tile in (-1, 0.5)),
    (drawn(beta=0), "inputs.beta", "gamma"),
    (fw(inputs={"dy": 0}), "inputs.dy", "beta"),
    (drawn(gamma={"regime": "ramp", "low": 3, "high": 2}), "inputs.gamma.low", "<= 2"),
    (drawn(gamma="ones"), "inputs.gamma", None),
    (bw(inputs="uniform"), "inputs", None),
    (bw(memory="l1"), "memory", "interleaved"),
    (bw(memory={"sharded": 8}), "memory.sharded", None),
    (bw(memory={"grid": [8, 8]}), "memory.grid", "sharded"),
    (bw(program="fast"), "program", "welford"),
    *((group(2, 6, parameters={"num_groups": n}), "parameters.num_groups", None) for n in (4, 0)),
    (group(2, 6, parameters={"groups": 2}), "parameters.groups", None),
    (group(6), "shape", None),
    (group(2, 64, numerics={"output": "bfp8_b"}), "numerics.output", None),
    (group(2, 64, inputs={"gamma": hot(2)}), "inputs.gamma.tile", None),
    (rms(parameters={"num_groups": 2}), "parameters.num_groups", None),
    (rms(inputs={"beta": 1}), "inputs.beta", None),
    (rms(tolerance={"mean": {"atol": 1}}), "tolerance.mean", None),
    (rms(numerics={"statistics": "maybe"}), "numerics.statistics", None),
    (fw(parameters=3), "parameters", None),
    (exact(inputs={"regime": "exact", "gamma": 1}), "inputs.gamma", "regime"),
    (exact(inputs={"gamma": {"regime": "exact"}}), "inputs.gamma.regime", "only member"),
    (exact(numerics={"accumulate": "bf16"}), "numerics.accumulate", "fp32"),
    (exact(numerics={"fidelity": "hifi3"}), "numerics.fidelity", "hifi4"),
    (exact(numerics={"output": "bfp8_b"}), "numerics.output", "fp16"),
    (exact(numerics={"input": {"x": "bfp8_b"}}), "numerics.input.x", "fp16"),
    (exact(shape=[1, 2**20 + 1]), "shape", "1048576"),
    (exact(epsilon=2.0), "epsilon", "<= 1"),
    (exact(epsilon=1e-4, numerics={"input": "fp16"}), "epsilon", "<= 1.5"),
    ([], "", None),
]


@pytest.mark.parametrize(("data", "field", "limit"), BAD, ids=range(len(BAD)))
def test_bad_input_names_field_value_and_limit(data: Any, field: str, limit: str | None) -> None:
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(data)
    path = f"test.{field}" if field else "test"
    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")
    assert limit is None or (limit in str(caught.value.limit) and limit in str(caught.value))


def test_constructing_a_spec_checks_it_too() -> None:
    with pytest.raises(ValidationError, match=r"shape\.0"):
        TestSpec(kernel="layernorm_bw", shape=(0, 4))
    spec = TestSpec(kernel="layernorm_bw", shape=(4, 64))
    assert spec == TestSpec.parse(bw())
    with pytest.raises(FieldError, match=r"^shape\.0"):
        spec.replace(shape=(0, 4))
    assert spec.replace(epsilon=1e-5) == TestSpec.parse(bw(epsilon=1e-5))


def test_a_spec_says_names_shapes_formats_and_regimes_of_its_tensors() -> None:
    spec = TestSpec.parse(bw(shape=[3, 5, 64], numerics={"input": {"x": "fp32"}}))
    assert (spec.rows, spec.features, spec.elements) == (15, 64, 960)
    assert spec.outputs == ("dx", "dgamma", "dbeta")
    assert spec.input_names == ("x", "gamma", "mean", "rstd", "dy")
    assert [spec.shape_of(name) for name in ("dx", "gamma", "mean")] == [(3, 5, 64), (64,), (3, 5)]
    assert [spec.numerics.format_of(name) for name in ("x", "dy")] == ["fp32", "bf16"]
    own_statistics = TestSpec.parse(numerics(statistics="own"))
    assert own_statistics.input_names == ("x", "gamma", "dy")
    row = TestSpec.parse(fw(shape=[7], inputs={"regime": "normal", "beta": 3}))
    assert (row.rows, row.shape_of("mean"), row.input_names) == (1, (), ("x", "gamma", "beta"))
    assert (row.numerics.statistics, row.regime("x").regime) == ("own", "normal")
    assert (row.regime("beta")["value"], row.regime("gamma")["low"]) == (3.0, 0.0)
    four = TestSpec.parse(group(2, 8, 3, 3, parameters={"num_groups": 4}))
    assert (four.rows, four.features, four.input_names) == (8, 18, ("x", "gamma", "beta"))
    shapes = [four.shape_of("mean"), four.flat_shape_of("y"), four.flat_shape_of("rstd")]
    assert shapes == [(2, 4), (8, 18), (8,)]
    every = TestSpec.parse(exact())
    assert {every.regime(name).regime for name in every.drawn_names} == {"exact"}


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
    spec = TestSpec.parse(bw(tolerance=tolerance))
    assert (spec.tolerance_for("dx"), spec.tolerance_for("dbeta")) == (dx, dbeta)


def test_format_names_are_those_of_the_formats() -> None:
    assert set(FORMAT_NAMES) <= set(FORMATS)
    assert tuple(name for name in FORMAT_NAMES if FORMATS[name].block > 1) == BLOCK_FORMATS
