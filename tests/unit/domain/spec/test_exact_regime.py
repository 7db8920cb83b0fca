"""The regime `exact` in a test's spec: canonical, and refused where no inputs are exact."""

from __future__ import annotations

from typing import Any

import pytest

from exact_kernels import exact_test
from gonogo.errors import FieldError
from gonogo.spec.test_spec import TestSpec


def test_the_regime_is_canonical_and_all_tensors_have_it() -> None:
    test = exact_test("layernorm_fw", 4, 64)
    assert test.canonical()["inputs"] == {"regime": "exact"}
    assert TestSpec.parse(test.canonical()) == test
    assert {test.regime(name).regime for name in test.drawn_names} == {"exact"}


@pytest.mark.parametrize(
    ("fields", "field", "limit"),
    [
        ({"inputs": {"regime": "exact", "gamma": 1}}, "test.inputs.gamma", "regime"),
        ({"inputs": {"gamma": {"regime": "exact"}}}, "test.inputs.gamma.regime", "only member"),
        ({"numerics": {"accumulate": "bf16"}}, "test.numerics.accumulate", "fp32"),
        ({"numerics": {"fidelity": "hifi3"}}, "test.numerics.fidelity", "hifi4"),
        ({"numerics": {"output": "bfp8_b"}}, "test.numerics.output", "fp16"),
        ({"numerics": {"input": {"x": "bfp8_b"}}}, "test.numerics.input.x", "fp16"),
        ({"shape": [1, 2**20 + 1]}, "test.shape", "1048576"),
        ({"epsilon": 2.0}, "test.epsilon", "<= 1"),
        ({"epsilon": 1e-4, "numerics": {"input": "fp16"}}, "test.epsilon", "<= 1.5"),
    ],
)
def test_a_test_that_cannot_be_exact_is_refused(
    fields: dict[str, Any], field: str, limit: str
) -> None:
    data = {"kernel": "layernorm_fw", "shape": [4, 64], "inputs": {"regime": "exact"}} | fields
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(data)
    assert caught.value.field == field
    assert limit in str(caught.value.limit)
