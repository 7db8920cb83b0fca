"""A toy kernel that a test registers: softmax over the last axis, with a temperature."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo import fields
from gonogo.kernels.kernel import Kernel, Parameter


def softmax(x: Any, temperature: Any) -> dict[str, Any]:
    """Return exp(x / temperature) by its sum."""
    scaled = x / temperature
    e = np.exp(scaled - np.max(scaled, axis=-1, keepdims=True))
    total = np.sum(e, axis=-1, keepdims=True)
    y = e / total
    return {"y": y}


TEMPERATURE = Parameter(
    lambda value, path: fields.number(value, path, above=0.0), 1.0, "what x is divided by"
)
KERNEL = Kernel(
    "softmax_fw",
    softmax,
    ("y",),
    parameters={"temperature": TEMPERATURE},
    builds=("correct", "without-tile-0/total", "missing/temperature@scaled"),
)
