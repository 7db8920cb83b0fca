"""The registry of kernels: name -> what a spec must know of it, and its numerics. A kind of kernel
is a folder here and a name in KINDS.

docs/kernels.md says how to add one. Importing this loads no NumPy; `numerics` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gonogo.kernels.kernel import Kernel

if TYPE_CHECKING:
    from gonogo.kernels.kind import Numerics
    from gonogo.tests import TestSpec

KINDS = ("layernorm", "rmsnorm", "groupnorm")
"""The folders here; each has the `KERNELS` of its kind. The emulator's builds are ordered by them:
append."""

_kernels: dict[str, Kernel] = {}
KERNELS: Mapping[str, Kernel] = MappingProxyType(_kernels)
"""Every registered kernel by name, in the order of registration."""


def register(kernel: Kernel) -> None:
    """Make a kernel known to specs, judging, the emulator and the gauge. Raises ValueError for a
    name that another kernel has."""
    known = _kernels.get(kernel.name)
    if known is not None and known != kernel:
        raise ValueError(f"there is a kernel {kernel.name!r} already")
    _kernels[kernel.name] = kernel


def unregister(name: str) -> None:
    """Forget a kernel (a plug-in's that is unloaded, a test's). Raises KeyError for an unknown
    one."""
    del _kernels[name]


def emulated() -> tuple[str, ...]:
    """Names of the emulator's builds, of all kernels: each once, in the order of registration."""
    return tuple(dict.fromkeys(name for kernel in _kernels.values() for name in kernel.builds))


def numerics(test: TestSpec) -> Numerics:
    """What can be computed for a test's kernel."""
    kernel = _kernels[test.kernel]
    found: Mapping[str, Numerics] = importlib.import_module(kernel.numerics).NUMERICS
    return found[kernel.name]


for _kind in KINDS:
    for _each in importlib.import_module(f"{__name__}.{_kind}").KERNELS:
        register(_each)
