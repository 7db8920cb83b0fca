"""The tests that strangers run: small and loose enough to be green, in several regimes."""

from __future__ import annotations

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
        f"{kernel.removeprefix('layernorm_')} {'x'.join(map(str, shape))} {name}",
        TestSpec.parse(data),
        "x" in inputs,
    )


CASES: tuple[Case, ...] = (
    _case("bf16 uniform", "layernorm_fw", [64, 96], {}, {}),
    _case("bf16 normal", "layernorm_fw", [33, 519], NORMAL, {}),
    _case("bf16 uniform", "layernorm_fw", [5, 4096], {}, {}),
    _case("fp32 uniform", "layernorm_fw", [33, 519], {}, FP32),
    _case("bf16 offset", "layernorm_fw", [64, 96], OFFSET, {}),
    _case("fp32 normal", "layernorm_fw", [5, 4096], NORMAL, FP32),
    _case("bf16 normal", "layernorm_fw", [512, 160], NORMAL, {}),
    _case("bf16 uniform", "layernorm_bw", [64, 96], {}, {}),
    _case("bf16 normal", "layernorm_bw", [33, 519], NORMAL, {}),
    _case("bf16 uniform", "layernorm_bw", [5, 4096], {}, {}),
    _case("fp32 uniform", "layernorm_bw", [33, 519], {}, FP32),
    _case("bf16 offset own", "layernorm_bw", [33, 519], OFFSET, {"statistics": "own"}),
    _case("fp32 normal", "layernorm_bw", [5, 4096], NORMAL, FP32),
    _case("bf16 uniform", "layernorm_bw", [512, 160], {}, {}),
)
