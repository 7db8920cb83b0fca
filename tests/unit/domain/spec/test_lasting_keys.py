"""Keys that never change: every stored history belongs to one of these digests.

A failure here means that stored histories lose their tests: change KEY_PREFIX's version instead.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gonogo.errors import Bug
from gonogo.spec.canonical import key_of
from parsed_tests import parse_test


def bw(**changes: Any) -> dict[str, Any]:
    return {"kernel": "layernorm_bw", "shape": [4, 64], **changes}


def fw(**changes: Any) -> dict[str, Any]:
    return bw(kernel="layernorm_fw", **changes)


def group(*shape: int, **changes: Any) -> dict[str, Any]:
    return {"kernel": "groupnorm_fw", "shape": list(shape), **changes}


def chosen(**selection: Any) -> dict[str, Any]:
    return {"selection": selection}


SPREAD = {"atol": 0.5, "frobenius": 0.001}
KEYS: list[tuple[dict[str, Any], str, str]] = [
    (bw(), "257b38df011936e3b1bbe74802004354", ""),
    (fw(), "10757b96e046e81b44856842c31d7ef4", ""),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "epsilon": 1e-05},
     "f01966d503be6af06eafb2a9e81422ab", ""),
    ({"kernel": "rmsnorm_bw", "shape": [2, 3, 96], "numerics": {"statistics": "own"}},
     "ae2c315007f4a5f836c8fc6569331902", ""),
    (group(2, 8, 4, 4, parameters={"num_groups": 4}), "7a650deda0a37fde6b41de29b59d2560", ""),
    (group(2, 8, 4, 4, parameters={"num_groups": 1}), "d794f0db306e54a64d440ff741dc3801", ""),
    (group(2, 8, numerics={"input": "fp16", "output": "fp32"}, inputs={"beta": 2}),
     "1e8e83c93906b04b717a954547b205f2", ""),
    (bw(shape=[3.0, 273, 1, 8462], tolerance={"rtol": 0.001, "atol": 0.5}),
     "01cdbe75d15c7d190a38846b982f9380", "0c448cfc2c2e8057c0605b9882b127bf"),
    (bw(numerics={"input": {"x": "fp32", "mean": "bf16"}, "output": "bfp8_b", "fidelity": "lofi",
                  "buffers": "bfp8_b", "layout": "tile"}), "b2db12beae5f49e26ac2615eec29b02b", ""),
    (bw(numerics={"input": dict.fromkeys(("x", "gamma", "mean", "rstd", "dy"), "tf32"),
                  "accumulate": "bf16", "srcb": "bf16"}), "a232f4d96c1080184e4cd83f45664c9b", ""),
    (fw(numerics={"statistics": "given", "layout": "row_major"}, program="legacy"),
     "149670955ae3cfabe970eec1fc19b54c", ""),
    (fw(tolerance={"y": {"rtol": 0.01, "pcc": 0.9999}, "mean": {"ulp": 2}, "rstd": {}}),
     "824515781adba82cfea6ca6c1af3df01", "10757b96e046e81b44856842c31d7ef4"),
    (bw(tolerance={"dx": SPREAD, "dgamma": SPREAD, "dbeta": SPREAD}),
     "22e08d6726277db386258a72434684ed", "257b38df011936e3b1bbe74802004354"),
    (bw(inputs={"regime": "hot_tile", "tile": 1.0, "value": 100, "dy": {"regime": "ramp"},
                "gamma": {"regime": "normal", "mean": 1, "std": 0.1}}),
     "f1715c2d49a9493d1244879daedef773", ""),
    (bw(inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}),
     "18d1693ab4c38256b3bbaebe4543e4f1", ""),
    (bw(inputs={"regime": "offset", "offset": 10000.0, "std": 0, "dy": -0.0}),
     "22673d3f6b840a66b81cac9e2381e5b7", ""),
    (bw(inputs={"regime": "exact"}, epsilon=2.0**-20), "2012def2b3ab936d383c3bad7119c1a6", ""),
    (bw(inputs={"low": -2, "high": 2.5, "gamma": {"low": 0}}, memory={"sharded": [8, 4.0]},
        program="welford"), "38bd0357eea0b4c17670d50c61b78106", ""),
    (bw(inputs={"x": {"regime": "normal"}, "dy": {}}, epsilon=1),
     "dd66cdfb5e5398f01eee0b279bbd1a11", ""),
    (bw(shape=[7], epsilon=1e-12, program="welford", memory={"sharded": [8, 4]},
        numerics={"input": {"x": "fp32"}, "statistics": "given", "srcb": "bf16"},
        inputs={"regime": "offset", "offset": 10, "dy": {"regime": "normal"}, "gamma": 1}),
     "78a10d35e0d4a9a1f92aa5538c458134", ""),
    (fw(inputs={"low": 3e-39, "high": 3.3895313892515355e38},
        tolerance={"atol": 1e-300, "pcc": -1, "ulp": 1e21}),
     "ac8e843340724554617b12925134e7f4", "1ac25e25a504c1dac4250893bdc1e0b1"),
    (chosen(), "532c21035675293d890126cddb8e5f0e", ""),
    (chosen(suite="nightly"), "61d08d7fb8ac88d8890a0969cd5c91fb", ""),
    (chosen(suite="nightly", filter="LayerNorm*", shuffle=7),
     "f1e941765c0a61737b8c251c14cd4d74", ""),
    (chosen(suite="nightly", filter="LayerNorm*:-*.slow", shuffle=True),
     "da05dce12f0251a0dfa1160f90d0aabf", ""),
    (chosen(suite="staged", stages=["api", "kernels"]), "7bfb858c6f0f9854c14dc217cd76c4be", ""),
    (chosen(suite="staged", stages=["kernels", "api"], shuffle=0),
     "fe7457d248395bf105514e4f1887022e", ""),
]  # fmt: skip
"""A test as one writes it, its key, and its workload's where that is another one."""


@pytest.mark.parametrize(("data", "key", "workload_key"), KEYS)
def test_keys_are_the_same_for_ever(data: dict[str, Any], key: str, workload_key: str) -> None:
    test = parse_test(data)
    assert (test.key, test.workload_key) == (f"v1-{key}", f"v1-{workload_key or key}")
    again = parse_test(json.loads(json.dumps(test.canonical(), allow_nan=False)))
    assert (again, again.key, hash(again)) == (test, test.key, hash(test))


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({}, "v1-44136fa355b3678a1146ad16f7e8649e"),
        (None, "v1-74234e98afe7498fb5daf1f36ac2d78a"),
        ({"b": [1, 2.0, -0.0], "a": None, "\u20ac": True, "\U0001f600": 0,
          "\ufb33": '\u2028"\\/\x00\x1f\x7f\n\u00e9'}, "v1-ee660fba480518ffc7914ed81bbe0fa4"),
        ([1e21, 1e20, 123456789012345680000.0, 1e-7, 1.5e-7, 0.000001, 5e-324,
          1.7976931348623157e308, 0.1, 100.0, 333333333.3333333, -1e30, 1e16, 12345678901234567.0],
         "v1-90aebf7677287c35f4deb9f8ad4742d5"),
        ([2**53 - 1, -(2**53) + 1, (1, (2,))], "v1-38aa5d7ad7eb750b15bc082f58faef7d"),
    ],
)  # fmt: skip
def test_two_implementations_of_canonical_json_agree_on_its_digests(value: Any, key: str) -> None:
    assert key_of(value) == key


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**53, {1: 2}, {1, 2}, b"x", "\ud800", {"\ud800": 1}]
)
def test_what_json_cannot_hold_has_no_key(value: Any) -> None:
    with pytest.raises(Bug):
        key_of(value)
