"""Kernels of one's own: in a Python file, or in an installed package.

A file has `KERNEL = Kernel(...)`, or several in KERNELS. A package has entry points of the group
`gonogo.kernels`: the name of one is the kernel's, and its value leads to a `Kernel`. Nothing is
imported before somebody names a kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location

from gonogo.errors import FieldError, in_words
from gonogo.kernels.kernel import Kernel

GROUP = "gonogo.kernels"


def is_file(source: str) -> bool:
    """Return whether a kernel is named by a Python file's path."""
    return source.endswith(".py")


def of_file(path: str, field: str) -> tuple[Kernel, ...]:
    """Run a Python file; return its kernels.

    field: what names the file, for the message. Raises FieldError where it can't be run, or has
    none.
    """
    name = f"gonogo_kernels_of_file_{path.rpartition('/')[2].removesuffix('.py')}"
    spec = spec_from_file_location(name, path)
    assert spec is not None  # the suffix is .py
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # where inspect looks for it
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise FieldError(field, path, f"can't be loaded: {in_words(problem)}") from problem
    kernels = getattr(module, "KERNELS", None) or (getattr(module, "KERNEL", None),)
    if not all(isinstance(kernel, Kernel) for kernel in kernels):
        limit = "KERNEL = gonogo.kernels.kernel.Kernel(...), or a tuple KERNELS of them"
        raise FieldError(field, path, "has no kernel", limit=limit)
    return tuple(kernels)


def names() -> tuple[str, ...]:
    """Return the names of the kernels that installed packages offer; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def package_of(point: EntryPoint) -> str:
    """Return the package of an entry point for people, such as "gonogo-l2norm 0.1"."""
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def load(name: str, field: str) -> Kernel | None:
    """Return the kernel of that name from the package that offers it; None if none does.

    field: what names the kernel, for the message. Raises FieldError where the package can't be
    imported or offers something else, or where two packages offer the name.
    """
    points = _different(entry_points(group=GROUP, name=name))
    if not points:
        return None
    packages = " and ".join(sorted(map(package_of, points)))
    if len(points) > 1:
        raise FieldError(field, name, f"is offered by {packages}", limit="one package")
    (point,) = points
    try:
        kernel = point.load()
    except Exception as problem:
        reason = f"can't be loaded from {packages}: {in_words(problem)}"
        raise FieldError(field, name, reason) from problem
    if not isinstance(kernel, Kernel) or kernel.name != name:
        offer = f"the kernel {kernel.name!r}" if isinstance(kernel, Kernel) else repr(kernel)
        reason = f"{packages} offers {offer} under this name"
        limit = f"{point.value} is a gonogo.kernels.kernel.Kernel named {name!r}"
        raise FieldError(field, name, reason, limit=limit)
    return kernel


def _different(points: Sequence[EntryPoint]) -> tuple[EntryPoint, ...]:
    """Return the entry points without repetitions, as of a package that is on the path twice."""
    return tuple({(point.value, package_of(point)): point for point in points}.values())
