"""The kernels that GoNoGo knows: a short file each. Nothing else in the product has formulas."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from gonogo.errors import FieldError, in_words
from gonogo.references import groupnorm, layernorm, rmsnorm, softmax
from gonogo.references.kernel import Kernel
from gonogo.spec.kernels import registry

KERNELS: Final[Mapping[str, Kernel]] = {
    kernel.name: kernel
    for module in (groupnorm, layernorm, rmsnorm, softmax)
    for kernel in module.KERNELS
}
"""Name -> kernel."""


def kernel_of(name: str) -> Kernel:
    """Return a test's kernel: one of KERNELS, else that of an installed package, imported here.

    Raises FieldError where the package's reference can't be imported, or isn't a Kernel, and
    KeyError for a kernel that isn't registered.
    """
    if name in KERNELS:
        return KERNELS[name]
    place = registry.KERNELS[name].reference
    module, _, attribute = place.partition(":")
    try:
        kernel = getattr(import_module(module), attribute)
    except Exception as problem:
        reason = f"its reference {place!r} can't be imported: {in_words(problem)}"
        raise FieldError("kernel", name, reason, limit="MODULE:NAME") from problem
    if not isinstance(kernel, Kernel):
        reason = f"its reference {place!r} is no gonogo.references.kernel.Kernel"
        raise FieldError("kernel", name, reason)
    return kernel
