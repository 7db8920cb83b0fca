"""Result rows of LayerNorm kernels whose arithmetic nobody names, judged by replay: one that stays
in fp32 inside, and one that stores x^ in bf16."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec

TEST: dict[str, Any] = {
    "kernel": "layernorm_fw",
    "shape": [1, 1, 16, 256],
    "epsilon": 1e-5,
    "inputs": {"regime": "normal", "mean": 0, "std": 1},
    "numerics": {"input": "bf16", "output": "bf16"},
    "tolerance": {"rtol": 1.6e-2, "atol": 5e-2},
}
INSIDE = "fp32-inside"
STORED = "bf16: x^ stored"


def row(seed: int, *, stores: bool = False, repeat: int = 0) -> dict[str, Any]:
    """Return the result of a seed as a worker sends it; `stores`: the kernel rounds x^ to bf16."""
    return {
        "seed": seed,
        "repeat": repeat,
        "device": "lab-1/cpu:0",
        "host_run": f"run{seed:06d}",
        "position": 0,
        "duration_ms": 12.5,
        "message": None,
        **_judged(seed, stores),
    }


@cache
def _judged(seed: int, stores: bool) -> dict[str, Any]:
    test = TestSpec.parse(TEST)
    raw = generate(test, seed)
    given = quantise(test, raw)
    outputs = {"y": _rounded(_normalized(given, test.epsilon, stores))}
    return judge(test, raw, given, outputs, arithmetic=None, produced=("y",)).to_json()


def _normalized(
    given: dict[str, NDArray[np.float32]], epsilon: float, stores: bool
) -> NDArray[np.float32]:
    x = given["x"]
    centered = x - x.mean(axis=1, keepdims=True, dtype=np.float32)
    variance = (centered**2).mean(axis=1, keepdims=True, dtype=np.float32)
    normalized = centered / np.sqrt(variance + np.float32(epsilon))
    if stores:
        normalized = _rounded(normalized)
    scaled: NDArray[np.float32] = normalized * given["gamma"] + given["beta"]
    return scaled


def _rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values.astype(bfloat16).astype(np.float32)
