"""The registry of kernels: from a name to the kernel's definition.

Their references are in gonogo.references, which is imported only when something is judged, so
importing this module loads no NumPy. docs/own_kernel.md says how to add a kernel.

A kernel of another package is registered in one of two ways. A process that runs the tests of its
own user (a local command, pytest, gonogo.judge) calls `allow_installed`: a test that names an
installed kernel loads it. A process that parses the tests of others (the API, background, a
worker) calls `load` with the names in GONOGO_KERNELS, and knows no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gonogo.errors import FieldError
from gonogo.spec.kernels import groupnorm, installed, layernorm, rmsnorm
from gonogo.spec.kernels.kernel import Kernel

SETTING = "GONOGO_KERNELS"


class _Kernels(Mapping[str, Kernel]):
    """Every registered kernel by name, in the order of registration.

    A lookup may register an installed kernel, see `allow_installed`; iteration never does.
    """

    def __init__(self) -> None:
        self.registered: dict[str, Kernel] = {}
        self.installed: set[str] = set()
        self.finds_installed = False

    def __getitem__(self, name: str) -> Kernel:
        if name and name not in self.registered and self.finds_installed:
            self.load(name, "kernel")
        return self.registered[name]

    def load(self, name: str, field: str) -> bool:
        """Register a kernel of an installed package; return whether one offers it."""
        kernel = installed.load(name, field)
        if kernel is not None:
            register(kernel)
            self.installed.add(name)
        return kernel is not None

    def __contains__(self, name: object) -> bool:
        return name in self.registered or (isinstance(name, str) and self.get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.registered)

    def __len__(self) -> int:
        return len(self.registered)


_kernels = _Kernels()
KERNELS: Mapping[str, Kernel] = _kernels
"""Every registered kernel by name, in the order of registration."""


def register(kernel: Kernel) -> None:
    """Make a kernel known to specs, judging, the emulator and the gauge.

    Raises ValueError if another kernel has its name.
    """
    known = _kernels.registered.get(kernel.name)
    if known is not None and known != kernel:
        raise ValueError(f"there is a kernel {kernel.name!r} already")
    _kernels.registered[kernel.name] = kernel


def unregister(name: str) -> None:
    """Remove a kernel, such as an unloaded plug-in's or a test's. Raises KeyError if unknown."""
    del _kernels.registered[name]
    _kernels.installed.discard(name)


def allow_installed(allowed: bool = True) -> None:
    """Let a test that names a kernel of an installed package load it, from now on.

    For processes that run their own user's tests only: whoever names a kernel then runs code of
    the package that offers it.
    """
    _kernels.finds_installed = allowed


def load(names: Iterable[str]) -> None:
    """Register these kernels of installed packages; those that are registered stay.

    Raises FieldError for a name that no installed package offers, or that can't be loaded.
    """
    for name in names:
        if name not in _kernels.registered and not _kernels.load(name, SETTING):
            limit = ", ".join(installed.names()) or "none: install its package here first"
            raise FieldError(SETTING, name, "no installed package offers this kernel", limit=limit)


def loaded() -> tuple[str, ...]:
    """Return the registered kernels of installed packages, for a child process to `load`."""
    return tuple(sorted(_kernels.installed))


def nameable() -> tuple[str, ...]:
    """Return the names that a test may use in this process."""
    others = installed.names() if _kernels.finds_installed else ()
    return tuple(dict.fromkeys((*_kernels.registered, *others)))


def emulated() -> tuple[str, ...]:
    """Return the names of all kernels' emulated builds, each once, in registration order."""
    return tuple(
        dict.fromkeys(name for kernel in _kernels.registered.values() for name in kernel.builds)
    )


for _kernel in (*layernorm.KERNELS, *rmsnorm.KERNELS, *groupnorm.KERNELS):
    register(_kernel)
