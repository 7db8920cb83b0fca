"""The kernels that GoNoGo knows: a short file each. Nothing else in the product has formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gonogo.references import groupnorm, layernorm, rmsnorm, softmax
from gonogo.references.kernel import Kernel

KERNELS: Final[Mapping[str, Kernel]] = {
    kernel.name: kernel
    for module in (groupnorm, layernorm, rmsnorm, softmax)
    for kernel in module.KERNELS
}
"""Name -> kernel."""
