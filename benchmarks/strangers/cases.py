"""The tests that strangers run: small and loose enough to be green, in several regimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.test_spec import TestSpec

LOOSE = {"atol": 0.5}
NORMAL = {
    "regime": "normal",
    "gamma": {"regime": "normal", "mean": 1, "std": 0.1},
    "beta": {"regime": "normal", "std": 0.1},
}
OFFSET = {"regime": "uniform", "x": {"regime": "offset", "offset": 4}, "beta": {"regime": "normal"}}
FP32 = {"input": "fp32", "output": "fp32"}


@dataclass(frozen=True)
class Case:
    """A test, and whether the mean of its rows is large against their deviation."""

    name: str
    test: TestSpec
    offset: bool = False


def _case(
    name: str, kernel: str, shape: list[int], inputs: dict[str, Any], numerics: dict[str, Any]
) -> Case:
    if kernel == "layernorm_bw":
        inputs = {key: value for key, value in inputs.items() if key != "beta"}
    data = {
        "kernel": kernel,
        "shape": shape,
        "inputs": inputs,
        "numerics": numerics,
        "tolerance": LOOSE,
    }
    return Case(
        f"{kernel}-{'x'.join(map(str, shape))}-{name}",
        TestSpec.parse(data),
        "x" in inputs,
    )


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        _case("uniform-bf16", "layernorm_fw", [64, 96], {}, {}),
        _case("normal-bf16", "layernorm_fw", [33, 263], NORMAL, {}),
        _case("uniform-bf16", "layernorm_fw", [5, 1024], {}, {}),
        _case("uniform-fp32", "layernorm_fw", [33, 263], {}, FP32),
        _case("offset-bf16", "layernorm_fw", [64, 96], OFFSET, {}),
        _case("normal-fp32", "layernorm_fw", [5, 1024], NORMAL, FP32),
        _case("normal-bf16", "layernorm_fw", [128, 160], NORMAL, {}),
        _case("uniform-bf16", "layernorm_bw", [64, 96], {}, {}),
        _case("normal-bf16", "layernorm_bw", [33, 263], NORMAL, {}),
        _case("uniform-bf16", "layernorm_bw", [5, 1024], {}, {}),
        _case("uniform-fp32", "layernorm_bw", [33, 263], {}, FP32),
        _case("offset-own-bf16", "layernorm_bw", [33, 263], OFFSET, {"statistics": "own"}),
        _case("normal-fp32", "layernorm_bw", [5, 1024], NORMAL, FP32),
        _case("uniform-bf16", "layernorm_bw", [128, 160], {}, {}),
    )
}
