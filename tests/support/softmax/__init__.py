"""A toy kind of kernel, registered by a test through the public entry: softmax over the last
dimension, with a temperature."""

from __future__ import annotations

from gonogo.spec import fields
from gonogo.spec.kernels.kernel import Kernel, Parameter

TEMPERATURE = Parameter(
    lambda value, path: fields.number(value, path, above=0.0), 1.0, "what x is divided by"
)
KERNEL = Kernel(
    "softmax_fw",
    ("y",),
    ("x",),
    f"{__name__}.reference:KERNEL",
    ("correct", "without-tile-0/total", "missing/temperature@scaled"),
    parameters={"temperature": TEMPERATURE},
)
