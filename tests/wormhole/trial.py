"""Run one LayerNorm on the simulated Wormhole and compare it with NumPy.

The simulator's Python runs this as a script; it exits with 0 when the result is right.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import ttnn

ROWS = FEATURES = 32
EPSILON = 1e-5
BOUND = 0.06
"""Four units in the last place of bf16 at 4, the largest value here."""


def main() -> int:
    """Return 0 when the kernel's result is a LayerNorm's."""
    rng = np.random.default_rng(0)
    x, gamma, beta = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((ROWS, FEATURES), (1, FEATURES), (1, FEATURES))
    )
    device = ttnn.open_device(device_id=0)

    def upload(array: Any) -> Any:
        return ttnn.to_device(ttnn.Tensor(array, ttnn.bfloat16).to(ttnn.TILE_LAYOUT), device)

    y = ttnn.layer_norm(upload(x), weight=upload(gamma), bias=upload(beta), epsilon=EPSILON)
    result = ttnn.to_dtype(ttnn.from_device(y), ttnn.float32).to(ttnn.ROW_MAJOR_LAYOUT).to_numpy()
    ttnn.close_device(device)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + EPSILON
    ) * gamma + beta
    worst = float(np.abs(result - expected).max())
    print(f"layer_norm on the simulated Wormhole: largest error {worst:.4f}")
    return 0 if worst < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
