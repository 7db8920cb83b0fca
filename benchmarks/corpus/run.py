"""A run: its identity, how its kernel is asked about, and whether the kernel is right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

SIZE: Final = 10_000
"""About so many runs are in the corpus where every library is installed; `--sample` divides it."""
TOLERANCES: Final[Mapping[str, Mapping[str, float]]] = {
    "fp32": {"rtol": 1.3e-6, "atol": 1e-5},
    "bf16": {"rtol": 1.6e-2, "atol": 1e-5},
    "fp16": {"rtol": 1e-3, "atol": 1e-5},
}
"""The defaults of torch.testing.assert_close, which many tests use."""
LOOSE: Final[Mapping[str, float]] = {"rtol": 0.02, "atol": 0.5}
"""The tolerance of other formats: what is wrong there passes as a rule."""
CLEAR: Final[Mapping[str, float]] = {"fp32": 1.25}
"""Format -> how far beyond the worst right kernel's error a fault is clear, where nobody knows
what the kernel stores."""
CLEAR_16: Final = 2.0
"""The same for the other formats, and for kernels that store 16-bit values."""
LEAST_CHANGED: Final = 3
"""Elements that a small fault changes."""


@dataclass(frozen=True)
class Run:
    """One kernel on one seed of a case.

    Attributes:
        source: the module of `sources` that makes it.
        kernel: the implementation.
        case: kernel, shape, regime and format, joined by hyphens.
        seed: the seed of the inputs.
        edit: what makes the kernel wrong; empty for a right one.
    """

    source: str
    kernel: str
    case: str
    seed: int
    edit: str = ""

    @classmethod
    def of(cls, name: str) -> Run:
        """Return the run of an id; a kernel's name may hold slashes."""
        source, _, rest = name.partition("/")
        kernel, case, seed, edit = rest.rsplit("/", 3)
        return cls(source, kernel, case, int(seed), edit)

    @property
    def id(self) -> str:
        """The name in tables; the same on every machine."""
        return "/".join((self.source, self.kernel, self.case, str(self.seed), self.edit))

    @property
    def kind(self) -> str:
        """The name of the kernel in the registry."""
        return self.case.split("-")[0]

    @property
    def format(self) -> str:
        """The format of the outputs."""
        return self.case.rpartition("-")[2]

    @property
    def place(self) -> float:
        """A number from 0 to 1 that depends on the id alone: runs are judged in this order."""
        return int(hashlib.sha256(self.id.encode()).hexdigest()[:12], 16) / 16**12


@dataclass(frozen=True)
class Question:
    """The part of a test beside its outputs: a kernel, its inputs and the test's fields.

    Attributes:
        kernel: its name in the registry.
        inputs: in the shapes of the reference.
        numerics: as in a test's spec.
        parameters: the arguments of the reference beside the inputs.
        tolerance: rtol and atol.
        arithmetic: the declared program; None: it is sought.
    """

    kernel: str
    inputs: Arrays
    numerics: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    arithmetic: str | None = None


@dataclass(frozen=True)
class Label:
    """Whether a kernel is right, and how visible its fault is.

    Attributes:
        size: "right"; "listed" (right, but these inputs break its method: see the reason); "clear"
            (an error far above the worst right kernel's), "localized" (few elements, by a step or
            more), "small" (fewer, but at least LEAST_CHANGED elements differ) or "hidden" (nothing
            that counts).
        group: "fp32-inside" or "16-bit-storing"; empty where nobody knows.
        fault: its id in the fault table; empty: it has none.
        reason: why a right kernel is listed.
    """

    size: str
    group: str = ""
    fault: str = ""
    reason: str = ""


def size_of(
    wrong: Arrays, right: Arrays, exact: Arrays, worst: Mapping[str, float], factor: float
) -> str:
    """Return "clear", "small" or "hidden" for a wrong kernel's outputs.

    Args:
        wrong: the outputs.
        right: those of the same kernel without its fault.
        exact: those of the function in float64.
        worst: output -> the largest absolute error of right kernels on these inputs.
        factor: how many times that error is clear.
    """
    changed = sum(int((wrong[name] != right[name]).sum()) for name in wrong)
    if changed < LEAST_CHANGED:
        return "hidden"
    errors, twins = errors_of(wrong, exact), errors_of(right, exact)
    is_clear = any(
        error > factor * max(worst.get(name, 0.0), twins[name]) for name, error in errors.items()
    )
    return "clear" if is_clear else "small"


def errors_of(outputs: Arrays, exact: Arrays) -> dict[str, float]:
    """Return the largest absolute error of each output; infinite where a value isn't finite."""
    errors = {}
    for name, values in outputs.items():
        with np.errstate(all="ignore"):
            wide = np.asarray(values, np.float64).reshape(exact[name].shape)
            largest = float(np.abs(wide - exact[name]).max(initial=0.0))
        errors[name] = largest if np.isfinite(largest) else np.inf
    return errors


def digest_of(outputs: Arrays) -> str:
    """Return eight hexadecimal digits that change with any bit of the outputs."""
    digest = hashlib.sha256()
    for name, values in sorted(outputs.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(values, "<f4").tobytes())
    return digest.hexdigest()[:8]
