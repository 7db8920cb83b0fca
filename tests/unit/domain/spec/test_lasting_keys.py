"""Fixed keys of varied tests: every stored history belongs to one of these digests.

A failure here means that stored histories lose their tests: change KEY_PREFIX's version instead.
"""

from __future__ import annotations

from typing import Any

import pytest

from parsed_tests import parse_test

KEYS: list[tuple[dict[str, Any], str, str]] = [
    ({"kernel": "layernorm_bw", "shape": [4, 64]}, "v1-257b38df011936e3b1bbe74802004354",
     "v1-257b38df011936e3b1bbe74802004354"),
    ({"kernel": "layernorm_fw", "shape": [4, 64]}, "v1-10757b96e046e81b44856842c31d7ef4",
     "v1-10757b96e046e81b44856842c31d7ef4"),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "epsilon": 1e-05},
     "v1-f01966d503be6af06eafb2a9e81422ab", "v1-f01966d503be6af06eafb2a9e81422ab"),
    ({"kernel": "rmsnorm_bw", "shape": [2, 3, 96], "numerics": {"statistics": "own"}},
     "v1-ae2c315007f4a5f836c8fc6569331902", "v1-ae2c315007f4a5f836c8fc6569331902"),
    ({"kernel": "groupnorm_fw", "shape": [2, 8, 4, 4], "parameters": {"num_groups": 4}},
     "v1-7a650deda0a37fde6b41de29b59d2560", "v1-7a650deda0a37fde6b41de29b59d2560"),
    ({"kernel": "groupnorm_fw", "shape": [2, 8, 4, 4], "parameters": {"num_groups": 1}},
     "v1-d794f0db306e54a64d440ff741dc3801", "v1-d794f0db306e54a64d440ff741dc3801"),
    (
     {"kernel": "groupnorm_fw", "shape": [2, 8], "numerics": {"input": "fp16", "output": "fp32"},
     "inputs": {"beta": 2}}, "v1-1e8e83c93906b04b717a954547b205f2",
     "v1-1e8e83c93906b04b717a954547b205f2"),
    (
     {"kernel": "layernorm_bw", "shape": [3.0, 273, 1, 8462],
     "tolerance": {"rtol": 0.001, "atol": 0.5}}, "v1-01cdbe75d15c7d190a38846b982f9380",
     "v1-0c448cfc2c2e8057c0605b9882b127bf"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "numerics": {"input": {"x": "fp32", "mean": "bf16"}, "output": "bfp8_b", "fidelity": "lofi",
     "buffers": "bfp8_b", "layout": "tile"}}, "v1-b2db12beae5f49e26ac2615eec29b02b",
     "v1-b2db12beae5f49e26ac2615eec29b02b"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "numerics": {
     "input": {"x": "tf32", "gamma": "tf32", "mean": "tf32", "rstd": "tf32", "dy": "tf32"},
     "accumulate": "bf16", "srcb": "bf16"}}, "v1-a232f4d96c1080184e4cd83f45664c9b",
     "v1-a232f4d96c1080184e4cd83f45664c9b"),
    (
     {"kernel": "layernorm_fw", "shape": [4, 64],
     "numerics": {"statistics": "given", "layout": "row_major"}, "program": "legacy"},
     "v1-149670955ae3cfabe970eec1fc19b54c", "v1-149670955ae3cfabe970eec1fc19b54c"),
    (
     {"kernel": "layernorm_fw", "shape": [4, 64],
     "tolerance": {"y": {"rtol": 0.01, "pcc": 0.9999}, "mean": {"ulp": 2}, "rstd": {}}},
     "v1-824515781adba82cfea6ca6c1af3df01", "v1-10757b96e046e81b44856842c31d7ef4"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "tolerance": {"dx": {"atol": 0.5, "frobenius": 0.001},
     "dgamma": {"atol": 0.5, "frobenius": 0.001}, "dbeta": {"atol": 0.5, "frobenius": 0.001}}},
     "v1-22e08d6726277db386258a72434684ed", "v1-257b38df011936e3b1bbe74802004354"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "inputs": {"regime": "hot_tile", "tile": 1.0, "value": 100, "dy": {"regime": "ramp"},
     "gamma": {"regime": "normal", "mean": 1, "std": 0.1}}}, "v1-f1715c2d49a9493d1244879daedef773",
     "v1-f1715c2d49a9493d1244879daedef773"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "inputs": {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}},
     "v1-18d1693ab4c38256b3bbaebe4543e4f1", "v1-18d1693ab4c38256b3bbaebe4543e4f1"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "inputs": {"regime": "offset", "offset": 10000.0, "std": 0, "dy": -0.0}},
     "v1-22673d3f6b840a66b81cac9e2381e5b7", "v1-22673d3f6b840a66b81cac9e2381e5b7"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64], "inputs": {"regime": "exact"},
     "epsilon": 9.5367431640625e-07}, "v1-2012def2b3ab936d383c3bad7119c1a6",
     "v1-2012def2b3ab936d383c3bad7119c1a6"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64],
     "inputs": {"low": -2, "high": 2.5, "gamma": {"low": 0}}, "memory": {"sharded": [8, 4.0]},
     "program": "welford"}, "v1-38bd0357eea0b4c17670d50c61b78106",
     "v1-38bd0357eea0b4c17670d50c61b78106"),
    (
     {"kernel": "layernorm_bw", "shape": [4, 64], "inputs": {"x": {"regime": "normal"}, "dy": {}},
     "epsilon": 1}, "v1-dd66cdfb5e5398f01eee0b279bbd1a11", "v1-dd66cdfb5e5398f01eee0b279bbd1a11"),
    (
     {"kernel": "layernorm_fw", "shape": [4, 64],
     "inputs": {"low": 3e-39, "high": 3.3895313892515355e38},
     "tolerance": {"atol": 1e-300, "pcc": -1, "ulp": 1e21}}, "v1-ac8e843340724554617b12925134e7f4",
     "v1-1ac25e25a504c1dac4250893bdc1e0b1"),
    ({"selection": {"suite": "nightly", "filter": "LayerNorm*:-*.slow", "shuffle": True}},
     "v1-da05dce12f0251a0dfa1160f90d0aabf", "v1-da05dce12f0251a0dfa1160f90d0aabf"),
    ({"selection": {"suite": "staged", "stages": ["kernels", "api"], "shuffle": 0}},
     "v1-fe7457d248395bf105514e4f1887022e", "v1-fe7457d248395bf105514e4f1887022e"),
]  # fmt: skip
"""A test as one writes it, its key, and its workload's."""


@pytest.mark.parametrize(("data", "key", "workload_key"), KEYS)
def test_keys_are_the_same_for_ever(data: dict[str, Any], key: str, workload_key: str) -> None:
    test = parse_test(data)
    assert (test.key, test.workload_key) == (key, workload_key)
    again = parse_test(test.canonical())
    assert (again, again.key, hash(again)) == (test, key, hash(test))
