"""The arithmetic models that kernels of libraries have, for the row "the name is right".

Sources: 7-truth.md for the stored values of libraries; `mutants.SOURCES` for the sources here.
"""

from __future__ import annotations

import re
from typing import Final

FP32_INSIDE: Final = "fp32-inside"

EXPECTED: Final[tuple[tuple[str, str, str, tuple[str, ...]], ...]] = (
    (r".*", r"upcast", r".*", ()),
    (r"torch", r"F\.layer_norm|native_layer_norm", r"layernorm_fw", ()),
    (r"jax", r"linen\.LayerNorm|linen\.RMSNorm", r"\w+_fw", ()),
    (r"tensorflow", r"keras\.", r"\w+_fw", ()),
    (r"mlx", r"fast\.layer_norm", r"layernorm_fw", ("x^", "gamma x^")),
    (r"tensorflow", r"fused_batch_norm", r"layernorm_fw", ("x^", "gamma x^")),
    (r"mlx", r"fast\.rms_norm", r"rmsnorm_fw", ("x^",)),
    (r"torch|jax|liger", r"llama|gemma|RMSNorm \(llama\)", r"rmsnorm_fw", ("x^",)),
    (
        r"torch|jax",
        r"composite",
        r"layernorm_fw",
        ("mean", "x - mean", "rstd", "x^", "gamma x^"),
    ),
)
"""Library, kernel, kind (regular expressions) -> the values that the kernel stores in 16 bits."""


def expected(library: str, kernel: str, kind: str, number_format: str) -> tuple[str, ...] | None:
    """Return the values that a kernel stores; () for none of them; None where nobody knows."""
    if number_format == "fp32":
        return ()
    for library_pattern, kernel_pattern, kind_pattern, stored in EXPECTED:
        if (
            re.fullmatch(library_pattern, library)
            and re.match(kernel_pattern, kernel)
            and re.fullmatch(kind_pattern, kind)
        ):
            return stored
    return None


def is_right_name(arithmetic: str, stored: tuple[str, ...]) -> bool:
    """Return whether a model's name says that these values are stored, and no others."""
    if not stored:
        return arithmetic.startswith(FP32_INSIDE)
    match = re.fullmatch(r"16-bit: (.*) stored", arithmetic)
    return match is not None and set(match[1].split(", ")) == set(stored)
