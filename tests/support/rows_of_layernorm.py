"""Result rows of LayerNorm kernels whose arithmetic nobody declared: one that stores nothing
inside, and one that stores x^."""

from __future__ import annotations

from typing import Any

from gonogo.spec.verdicts import JUDGE

TEST: dict[str, Any] = {
    "kernel": "layernorm_fw",
    "shape": [1, 1, 16, 256],
    "epsilon": 1e-5,
    "inputs": {"regime": "normal", "mean": 0, "std": 1},
    "numerics": {"input": "bf16", "output": "bf16"},
    "tolerance": {"rtol": 1.6e-2, "atol": 5e-2},
}
INSIDE = "nothing stored"
STORED = "xhat stored in bf16"
CHANGE = f'was "{INSIDE}", is "{STORED}"'
LIMIT = "a common factor below 0.03 %"


def row(seed: int, *, stores: bool = False, repeat: int = 0) -> dict[str, Any]:
    """Return the result of a seed as a worker sends it; `stores`: the kernel stores x^."""
    judgment = {"verdict": "pass", "explanation": "explained"}
    y = {
        **judgment,
        "tolerance_ratio": 0.1,
        "rounding_ratio": 0.9,
        "rms": 0.01,
        "distance": 2.5,
        "count": 16 * 256,
        "digest": f"{2 * seed + stores:016x}",
        "arithmetic": STORED if stores else INSIDE,
        "is_wide": False,
        "detection_limits": [LIMIT],
    }
    place = {"device": "lab-1/cpu:0", "host_run": f"run{seed:06d}", "position": 0}
    ran = {"duration_ms": 12.5, "message": None, "arithmetic": None, "judge": JUDGE}
    return {"seed": seed, "repeat": repeat, **judgment, **place, **ran, "outputs": {"y": y}}
