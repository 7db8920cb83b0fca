"""The registry of kernels: from a name to the kernel, whose file is imported when it is named.

Importing this module loads no NumPy. docs/own_kernel.md says how to add a kernel.

A kernel of another package, or of a file, is registered in one of two ways. A process that runs
the tests of its own user (a local command, pytest, gonogo.judge) calls `allow_installed`: a test
that names an installed kernel loads it. A process that parses the tests of others (the API,
background, a worker) calls `load` with what GONOGO_KERNELS lists, and knows no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels import installed
from gonogo.kernels.kernel import Kernel

SETTING = "GONOGO_KERNELS"
FILES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layernorm": "layernorm_fw layernorm_bw",
        "rmsnorm": "rmsnorm_fw rmsnorm_bw",
        "groupnorm": "groupnorm_fw groupnorm_bw",
        "batchnorm": "batchnorm_fw batchnorm_bw batchnorm_inference instancenorm",
        "norms": "add_layernorm add_rmsnorm gemma_rmsnorm rmsnorm_bias l2norm l2norm_bw",
        "softmax": "softmax softmax_bw log_softmax log_softmax_bw cross_entropy cross_entropy_bw",
        "attention": "attention attention_biased attention_masked attention_bw",
        "gelu": "gelu gelu_tanh gelu_bw gelu_tanh_bw geglu",
        "activations": "sigmoid tanh silu silu_bw swiglu relu leaky_relu relu6 hardswish",
        "elementwise": "add sub mul div exp log rsqrt reciprocal",
        "matmul": "matmul matmul_bw linear linear_bw linear_activation",
        "convolution": "conv1d conv2d",
        "pooling": "max_pool2d average_pool2d",
        "reductions": "sum mean variance max cumsum",
        "indexing": "embedding topk",
        "rotary": "rotary rotary_interleaved",
        "optimizer": "adam adamw",
        "quantization": "quantize_bf16 quantize_bfp8 quantize_int8 quantize_fp8",
    }
)
"""The files of this folder with the kernels in them. Nothing else lists kernels."""
SHIPPED: Final = MappingProxyType(
    {name: at for at, names in FILES.items() for name in names.split()}
)
"""Kernel -> file."""


class _Kernels(Mapping[str, Kernel]):
    """Every kernel by name: those that we ship, then others in the order of registration.

    A lookup may register an installed kernel, see `allow_installed`; iteration never does.
    """

    def __init__(self) -> None:
        self.registered: dict[str, Kernel] = {}
        self.sources: dict[str, str] = {}
        """Kernels that aren't shipped -> what `load` takes for them: a name, or a file's path."""
        self.finds_installed = False

    def __getitem__(self, name: str) -> Kernel:
        if name in SHIPPED and name not in self.registered:
            module = import_module(f"gonogo.kernels.{SHIPPED[name]}")
            self.registered |= {kernel.name: kernel for kernel in module.KERNELS}
        if name and name not in self.registered and self.finds_installed:
            self.load(name, "kernel")
        return self.registered[name]

    def load(self, name: str, field: str) -> bool:
        """Register a kernel of an installed package; return whether one offers it."""
        kernel = installed.load(name, field)
        if kernel is not None:
            register(kernel)
            self.sources[name] = name
        return kernel is not None

    def load_file(self, path: str, field: str) -> list[str]:
        """Register the kernels of a Python file; return their names."""
        kernels = installed.of_file(path, field)
        for kernel in kernels:
            if kernel.name in self and self.sources.get(kernel.name) != path:
                reason = f"its kernel {kernel.name!r} has the name of another one"
                raise FieldError(field, path, reason, limit="another name")
            self.registered[kernel.name] = kernel
            self.sources[kernel.name] = path
        return [kernel.name for kernel in kernels]

    def __contains__(self, name: object) -> bool:
        if name in SHIPPED or name in self.registered:
            return True
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*SHIPPED, *self.registered)))

    def __len__(self) -> int:
        return len(SHIPPED.keys() | self.registered.keys())


_kernels = _Kernels()
KERNELS: Mapping[str, Kernel] = _kernels
"""Every kernel by name: those that we ship, then others in the order of registration."""


def kernel_of(name: str) -> Kernel:
    """Return a kernel by its own name: "layernorm_bw_own" is layernorm_bw with `statistics: own`.

    Raises KeyError.
    """
    given = KERNELS.get(name.removesuffix("_own"))
    kernel = given.without_statistics if given is not None and given.name != name else given
    if kernel is None:
        raise KeyError(name)
    return kernel


def register(kernel: Kernel) -> None:
    """Make a kernel known to specs, judging, the emulator and the gauge.

    Raises ValueError if another kernel has its name.
    """
    known = _kernels.registered.get(kernel.name)
    if known != kernel and (known is not None or kernel.name in SHIPPED):
        raise ValueError(f"there is a kernel {kernel.name!r} already")
    _kernels.registered[kernel.name] = kernel


def unregister(name: str) -> None:
    """Remove a kernel, such as an unloaded plug-in's or a test's. Raises KeyError if unknown."""
    del _kernels.registered[name]
    _kernels.sources.pop(name, None)


def allow_installed(allowed: bool = True) -> None:
    """Let a test that names a kernel of an installed package load it, from now on.

    For processes that run their own user's tests only: whoever names a kernel then runs code of
    the package that offers it.
    """
    _kernels.finds_installed = allowed


def load(sources: Iterable[str]) -> None:
    """Register these kernels: names of installed packages' ones, and absolute paths of files.

    Those that are registered stay. Raises FieldError for a name that no installed package offers,
    a file that isn't there, or has no kernel or one with a name that is taken.
    """
    for name in sources:
        if installed.is_file(name):
            if not name.startswith("/"):
                raise FieldError(SETTING, name, "is a relative path", limit="an absolute path")
            _kernels.load_file(name, SETTING)
        elif name not in KERNELS and not _kernels.load(name, SETTING):
            limit = ", ".join(installed.names()) or "none: install its package here first"
            raise FieldError(SETTING, name, "no installed package offers this kernel", limit=limit)


def loaded() -> Mapping[str, str]:
    """Return the registered kernels that aren't shipped, with what a child process must `load`."""
    return MappingProxyType(_kernels.sources)


def named(text: str) -> str:
    """Return the name of the kernel that a user's command names: a name, or a file with one kernel.

    "softcap.py:softcap_bw" is one of several in a file. Raises FieldError.
    """
    path, _, name = text.partition(":")
    if not installed.is_file(path):
        return text
    names = _kernels.load_file(os.path.abspath(path), "kernel")
    if len(names) > 1 and not name:
        raise FieldError("kernel", text, "has several kernels", limit=f"{path}:{names[0]}")
    return fields.choice(name or names[0], names, "kernel")


def nameable() -> tuple[str, ...]:
    """Return the names that a test may use in this process."""
    others = installed.names() if _kernels.finds_installed else ()
    return tuple(dict.fromkeys((*KERNELS, *others)))


def emulated() -> tuple[str, ...]:
    """Return the names of all kernels' emulated builds, each once, in registration order."""
    every = (name for kernel in KERNELS.values() for name in kernel.listed_builds)
    return tuple(dict.fromkeys(every))
