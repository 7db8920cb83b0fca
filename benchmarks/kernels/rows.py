"""Rows: how a library computes a kernel, as text that runs in the library's interpreter.

Each family of kernels has a file of them in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

FAMILIES: Final = ["norm", "activation", "elementwise", "softmax", "product", "other"]
"""Their modules end in _rows and have ROWS."""
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("fp32", "bf16", "fp16"),
    "jax": ("fp32", "bf16", "fp16"),
    "onnxruntime": ("fp32", "fp16"),
}
"""The formats that a library has on a CPU."""


@dataclass(frozen=True)
class Row:
    """An expression of a library that computes a kernel.

    Attributes:
        kernel: the kernel's name in the registry.
        library: "torch", "jax" or "onnxruntime".
        code: statements. They read the kernel's tensors and parameters by name and set its outputs
            by name, such as "y = F.gelu(x)". torch code has `torch` and `F`; jax code has `jax` and
            `jnp`, and is compiled; onnxruntime's has `op(type, *inputs, **attributes)`, which
            returns one output, or `outputs=2` of them, as a list.
        gradients: inputs, for a backward kernel: the code sets `y`, and the outputs are d<input>,
            the gradients of sum(y dy).
        faults: wrong code in the place of `code`: each a small edit.
        formats: those in which the library has the kernel; (): all of the library's.
        shape: that of the first input; (): the kernel's example.
        parameters: those that aren't the kernel's defaults.
    """

    kernel: str
    library: str
    code: str
    gradients: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


def rows() -> Iterator[Row]:
    """Yield the rows of every family."""
    for name in FAMILIES:
        yield from import_module(f"benchmarks.kernels.{name}_rows").ROWS
