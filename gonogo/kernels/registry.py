"""The registry of kernels: from a name to the kernel, whose file is imported when it is named.

Importing this module loads no NumPy. docs/own_kernel.md says how to add a kernel.

A kernel of another package is registered in one of two ways. A process that runs the tests of its
own user (a local command, pytest, gonogo.judge) calls `allow_installed`: a test that names an
installed kernel loads it. A process that parses the tests of others (the API, background, a
worker) calls `load` with the names in GONOGO_KERNELS, and knows no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

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
        "l2norm": "l2norm l2norm_bw",
        "fused_norms": "add_layernorm add_rmsnorm gemma_rmsnorm rmsnorm_bias",
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
        self.installed: set[str] = set()
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
            self.installed.add(name)
        return kernel is not None

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
    kernel = given.own if given is not None and given.name != name else given
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
        if name not in KERNELS and not _kernels.load(name, SETTING):
            limit = ", ".join(installed.names()) or "none: install its package here first"
            raise FieldError(SETTING, name, "no installed package offers this kernel", limit=limit)


def loaded() -> tuple[str, ...]:
    """Return the registered kernels of installed packages, for a child process to `load`."""
    return tuple(sorted(_kernels.installed))


def nameable() -> tuple[str, ...]:
    """Return the names that a test may use in this process."""
    others = installed.names() if _kernels.finds_installed else ()
    return tuple(dict.fromkeys((*KERNELS, *others)))


def emulated() -> tuple[str, ...]:
    """Return the names of all kernels' emulated builds, each once, in registration order."""
    every = (name for kernel in KERNELS.values() for name in kernel.listed_builds)
    return tuple(dict.fromkeys(every))
