"""The arithmetic models that kernels of libraries have, for the row "the name is right".

Sources: the code of the libraries for what their kernels store, and the programs here for the
composites.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

FP32_INSIDE: Final = "fp32-inside"


@dataclass(frozen=True)
class Stored:
    """The values that a kernel stores in 16 bits.

    required: a right name lists them. optional: it may list them too: their rounding may show on
    some inputs only, or it is that of the output itself.
    """

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


NOTHING: Final = Stored()
NORMALIZED: Final = Stored(frozenset({"x^"}), frozenset({"gamma x^"}))
SCALED: Final = Stored(frozenset({"x^", "gamma x^"}))
EVERYTHING: Final = Stored(
    frozenset({"mean", "x - mean", "rstd", "x^", "gamma x^"}),
    frozenset({"square", "variance", "variance + epsilon", "root"}),
)

EXPECTED: Final[tuple[tuple[str, str, str, Stored], ...]] = (
    (r".*", r"upcast", r"\w+_fw", NOTHING),
    (r"torch(-cuda)?", r"F\.layer_norm|native_layer_norm", r"layernorm_fw", NOTHING),
    (r"jax(-cuda)?", r"linen\.LayerNorm|linen\.RMSNorm", r"\w+_fw", NOTHING),
    (r"tensorflow", r"keras\.", r"\w+_fw", NOTHING),
    (r"mlx", r"fast\.layer_norm", r"layernorm_fw", SCALED),
    (r"tensorflow", r"fused_batch_norm", r"layernorm_fw", SCALED),
    (r"mlx", r"fast\.rms_norm", r"rmsnorm_fw", NORMALIZED),
    (r"cuda", r".*", r"\w+_fw", NOTHING),
    (r"torch|jax|liger", r"llama|gemma$|gemma \(|RMSNorm \(llama\)", r"rmsnorm_fw", NORMALIZED),
    (r"torch|jax", r"composite", r"layernorm_fw", EVERYTHING),
    # compilers for GPUs may leave out what a fused norm stores
    (r"\w+-cuda", r"llama$|gemma \(eager|RMSNorm \(llama\)", r"rmsnorm_fw", NORMALIZED),
    (r"\w+-cuda", r"composite( \(eager\))?$", r"layernorm_fw", EVERYTHING),
)
"""Library, kernel, kind (regular expressions) -> the values that the kernel stores in 16 bits."""


def expected(library: str, kernel: str, kind: str, number_format: str) -> Stored | None:
    """Return the values that a kernel stores; None where nobody knows."""
    if number_format == "fp32":
        return NOTHING
    for library_pattern, kernel_pattern, kind_pattern, stored in EXPECTED:
        if (
            re.fullmatch(library_pattern, library)
            and re.match(kernel_pattern, kernel)
            and re.fullmatch(kind_pattern, kind)
        ):
            return stored
    return None


def is_right_name(arithmetic: str, stored: Stored) -> bool:
    """Return whether a model's name lists these values, and no others.

    The names of several outputs are joined by "; ". Further parts, such as the order of sums, are
    ignored.
    """
    return all(_is_right_part(part, stored) for part in arithmetic.split("; "))


def _is_right_part(name: str, stored: Stored) -> bool:
    if name.startswith(FP32_INSIDE):
        return not stored.required
    match = re.match(r"[\w/-]+: (.*?) stored", name)
    if match is None:
        return False
    values = set(match[1].split(", "))
    return stored.required <= values <= stored.required | stored.optional
