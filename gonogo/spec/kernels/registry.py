"""The registry of kernels: from a name to what a test spec must know of the kernel.

What each kernel computes is in gonogo.kernels, which its numerics are imported from when they are
needed: importing this module loads no NumPy. docs/kernels.md says how to add a kernel.
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
    """Make a kernel known to specs, judging, the emulator and the gauge. Raises ValueError for a
    name that another kernel has.
    """
    known = _kernels.get(kernel.name)
    if known is not None and known != kernel:
        raise ValueError(f"there is a kernel {kernel.name!r} already")
    _kernels[kernel.name] = kernel


def unregister(name: str) -> None:
    """Forget a kernel (a plug-in's that is unloaded, a test's). Raises KeyError for an unknown
    one.
    """
    del _kernels[name]


def emulated() -> tuple[str, ...]:
    """Names of the emulator's builds, of all kernels: each once, in the order of registration."""
    return tuple(dict.fromkeys(name for kernel in _kernels.values() for name in kernel.builds))


for _kernel in (*layernorm.KERNELS, *rmsnorm.KERNELS, *groupnorm.KERNELS):
    register(_kernel)
