"""The arithmetics that a build may declare, by name.

A declared arithmetic is the only one that may explain the build's outputs. Without one it is found
for each output.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gonogo import fields
from gonogo.errors import FieldError

TT_TRAIN, TTNN, WORMHOLE = "tt-train", "ttnn", "wormhole"
NAMES: Mapping[str, str] = MappingProxyType(
    {
        TT_TRAIN: "tt-train's dataflow on a Wormhole, by the test's numerics",
        TTNN: "that of ttnn's own operations on a Wormhole, by the test's numerics",
        WORMHOLE: "operation by operation on a Wormhole, by the test's numerics",
        "fused": "one kernel in fp32 that stores nothing in between",
        "eager": "each operation's result is stored in the format of the tensors",
        "stored-xhat": "x^ is stored in the format of the tensors, the rest is fp32",
    }
)
"""Name -> what it means. Most are programs of single kernels; see the kernel's page."""
ALLOWED = f"one of {', '.join(NAMES)}"
MAX_CHARS = 64


def canonical(value: object, path: str = "arithmetic") -> str | None:
    """Return the name of a declared arithmetic; None stays None. Raises FieldError."""
    if value is None:
        return None
    if not isinstance(value, str) or value.strip() not in NAMES:
        known = fields.did_you_mean(value, NAMES) if isinstance(value, str) else ""
        raise FieldError(path, value, "is not an arithmetic" + known, limit=ALLOWED)
    return value.strip()
