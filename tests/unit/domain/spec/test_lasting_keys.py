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

KEYS = """
257b38df011936e3b1bbe74802004354 layernorm_bw 4x64 {}
10757b96e046e81b44856842c31d7ef4 layernorm_fw 4x64 {}
f01966d503be6af06eafb2a9e81422ab rmsnorm_fw 2x6 {"epsilon": 1e-05}
ae2c315007f4a5f836c8fc6569331902 rmsnorm_bw 2x3x96 {"numerics": {"statistics": "own"}}
7a650deda0a37fde6b41de29b59d2560 groupnorm_fw 2x8x4x4 {"parameters": {"num_groups": 4}}
d794f0db306e54a64d440ff741dc3801 groupnorm_fw 2x8x4x4 {"parameters": {"num_groups": 1}}
1e8e83c93906b04b717a954547b205f2 groupnorm_fw 2x8
    {"numerics": {"input": "fp16", "output": "fp32"}, "inputs": {"beta": 2}}
01cdbe75d15c7d190a38846b982f9380 layernorm_bw 3.0x273x1x8462
    {"tolerance": {"rtol": 0.001, "atol": 0.5}}
b2db12beae5f49e26ac2615eec29b02b layernorm_bw 4x64
    {"numerics": {"input": {"x": "fp32", "mean": "bf16"}, "output": "bfp8_b", "fidelity": "lofi",
    "buffers": "bfp8_b", "layout": "tile"}}
a232f4d96c1080184e4cd83f45664c9b layernorm_bw 4x64
    {"numerics": {"input": {"x": "tf32", "gamma": "tf32", "mean": "tf32", "rstd": "tf32",
    "dy": "tf32"}, "accumulate": "bf16", "srcb": "bf16"}}
149670955ae3cfabe970eec1fc19b54c layernorm_fw 4x64
    {"numerics": {"statistics": "given", "layout": "row_major"}, "program": "legacy"}
824515781adba82cfea6ca6c1af3df01 layernorm_fw 4x64
    {"tolerance": {"y": {"rtol": 0.01, "pcc": 0.9999}, "mean": {"ulp": 2}, "rstd": {}}}
22e08d6726277db386258a72434684ed layernorm_bw 4x64
    {"tolerance": {"dx": {"atol": 0.5, "frobenius": 0.001}, "dgamma": {"atol": 0.5,
    "frobenius": 0.001}, "dbeta": {"atol": 0.5, "frobenius": 0.001}}}
f1715c2d49a9493d1244879daedef773 layernorm_bw 4x64
    {"inputs": {"regime": "hot_tile", "tile": 1.0, "value": 100, "dy": {"regime": "ramp"},
    "gamma": {"regime": "normal", "mean": 1, "std": 0.1}}}
18d1693ab4c38256b3bbaebe4543e4f1 layernorm_bw 4x64
    {"inputs": {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}}
22673d3f6b840a66b81cac9e2381e5b7 layernorm_bw 4x64
    {"inputs": {"regime": "offset", "offset": 10000.0, "std": 0, "dy": -0.0}}
2012def2b3ab936d383c3bad7119c1a6 layernorm_bw 4x64
    {"inputs": {"regime": "exact"}, "epsilon": 9.5367431640625e-07}
38bd0357eea0b4c17670d50c61b78106 layernorm_bw 4x64
    {"inputs": {"low": -2, "high": 2.5, "gamma": {"low": 0}}, "memory": {"sharded": [8, 4.0]},
    "program": "welford"}
dd66cdfb5e5398f01eee0b279bbd1a11 layernorm_bw 4x64
    {"inputs": {"x": {"regime": "normal"}, "dy": {}}, "epsilon": 1}
78a10d35e0d4a9a1f92aa5538c458134 layernorm_bw 7
    {"epsilon": 1e-12, "program": "welford", "memory": {"sharded": [8, 4]},
    "numerics": {"input": {"x": "fp32"}, "statistics": "given", "srcb": "bf16"},
    "inputs": {"regime": "offset", "offset": 10, "dy": {"regime": "normal"}, "gamma": 1}}
ac8e843340724554617b12925134e7f4 layernorm_fw 4x64
    {"inputs": {"low": 3e-39, "high": 3.3895313892515355e38},
    "tolerance": {"atol": 1e-300, "pcc": -1, "ulp": 1e21}}
532c21035675293d890126cddb8e5f0e selection - {}
61d08d7fb8ac88d8890a0969cd5c91fb selection - {"suite": "nightly"}
f1e941765c0a61737b8c251c14cd4d74 selection -
    {"suite": "nightly", "filter": "LayerNorm*", "shuffle": 7}
da05dce12f0251a0dfa1160f90d0aabf selection -
    {"suite": "nightly", "filter": "LayerNorm*:-*.slow", "shuffle": true}
7bfb858c6f0f9854c14dc217cd76c4be selection - {"suite": "staged", "stages": ["api", "kernels"]}
fe7457d248395bf105514e4f1887022e selection -
    {"suite": "staged", "stages": ["kernels", "api"], "shuffle": 0}
"""
"""A key, and its test: kernel, shape and other fields, or the members of a selection."""
WORKLOADS = {
    "01cdbe75d15c7d190a38846b982f9380": "0c448cfc2c2e8057c0605b9882b127bf",
    "824515781adba82cfea6ca6c1af3df01": "10757b96e046e81b44856842c31d7ef4",
    "22e08d6726277db386258a72434684ed": "257b38df011936e3b1bbe74802004354",
    "ac8e843340724554617b12925134e7f4": "1ac25e25a504c1dac4250893bdc1e0b1",
}
"""A key, and its workload's where that is another one."""


@pytest.mark.parametrize("line", KEYS.replace("\n    ", " ").strip().splitlines())
def test_keys_are_the_same_for_ever(line: str) -> None:
    key, kernel, shape, fields = line.split(" ", 3)
    members = json.loads(fields)
    if kernel == "selection":
        test = parse_test({"selection": members})
    else:
        sizes = [json.loads(size) for size in shape.split("x")]
        test = parse_test({"kernel": kernel, "shape": sizes, **members})
    assert (test.key, test.workload_key) == (f"v1-{key}", f"v1-{WORKLOADS.get(key, key)}")
    again = parse_test(json.loads(json.dumps(test.canonical(), allow_nan=False)))
    assert (again, again.key, hash(again)) == (test, test.key, hash(test))


WORDS = {"b": [1, 2.0, -0.0], "a": None, "\u20ac": True, "\U0001f600": 0}
SMALL = [1e-7, 1.5e-7, 0.000001, 5e-324, 1.7976931348623157e308, 0.1, 100.0, 333333333.3333333]
LARGE = [1e21, 1e20, 123456789012345680000.0]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({}, "44136fa355b3678a1146ad16f7e8649e"),
        (None, "74234e98afe7498fb5daf1f36ac2d78a"),
        ({**WORDS, "\ufb33": '\u2028"\\/\x00\x1f\x7f\n\u00e9'}, "ee660fba480518ffc7914ed81bbe0fa4"),
        ([*LARGE, *SMALL, -1e30, 1e16, 12345678901234567.0], "90aebf7677287c35f4deb9f8ad4742d5"),
        ([2**53 - 1, -(2**53) + 1, (1, (2,))], "38aa5d7ad7eb750b15bc082f58faef7d"),
    ],
)
def test_two_implementations_of_canonical_json_agree_on_its_digests(value: Any, key: str) -> None:
    assert key_of(value) == f"v1-{key}"


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**53, {1: 2}, {1, 2}, b"x", "\ud800", {"\ud800": 1}]
)
def test_what_json_cannot_hold_has_no_key(value: Any) -> None:
    with pytest.raises(Bug):
        key_of(value)
