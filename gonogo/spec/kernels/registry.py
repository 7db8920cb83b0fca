"""The registry of kernels: from a name to the kernel's definition.

The computations are in gonogo.kernels. Their modules are imported only when they are needed, so
importing this module loads no NumPy. docs/kernels.md says how to add a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gonogo.spec.kernels import groupnorm, layernorm, rmsnorm
from gonogo.spec.kernels.kernel import Kernel

_kernels: dict[str, Kernel] = {}
KERNELS: Mapping[str, Kernel] = MappingProxyType(_kernels)
"""Every registered kernel by name, in the order of registration."""


def register(kernel: Kernel) -> None:
    """Make a kernel known to specs, judging, the emulator and the gauge.

    Raises ValueError if another kernel has its name.
    """
    known = _kernels.get(kernel.name)
    if known is not None and known != kernel:
        raise ValueError(f"there is a kernel {kernel.name!r} already")
    _kernels[kernel.name] = kernel


def unregister(name: str) -> None:
    """Remove a kernel, such as an unloaded plug-in's or a test's. Raises KeyError if unknown."""
    del _kernels[name]


def emulated() -> tuple[str, ...]:
    """Return the names of all kernels' emulated builds, each once, in registration order."""
    return tuple(dict.fromkeys(name for kernel in _kernels.values() for name in kernel.builds))


for _kernel in (*layernorm.KERNELS, *rmsnorm.KERNELS, *groupnorm.KERNELS):
    register(_kernel)
