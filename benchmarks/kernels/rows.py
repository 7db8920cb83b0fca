"""Rows: how a library computes a kernel, as text that runs in the library's interpreter.

rows.yaml is the table of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Final

import yaml

TABLE: Final = Path(__file__).with_name("rows.yaml")
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
        formats: those in which the library has the kernel.
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
    """Yield every row of the table."""
    table = yaml.safe_load(TABLE.read_text("utf-8"))
    shared = table.pop("shared")
    for kernel, entries in table.items():
        for entry in entries:
            library = next(name for name in FORMATS if name in entry)
            wrong = entry.get("wrong", [])
            faults = [wrong] if isinstance(wrong, str) else wrong
            code, *edits = (Template(text).substitute(shared) for text in (entry[library], *faults))
            yield Row(
                kernel,
                library,
                code,
                tuple(entry.get("gradients", ())),
                tuple(edits),
                tuple(entry.get("formats", FORMATS[library])),
                tuple(entry.get("shape", ())),
                entry.get("parameters", {}),
            )
