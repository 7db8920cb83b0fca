"""A run: its identity, how its kernel is asked about, and whether the kernel is right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

SIZE: Final = 20_000
"""About so many runs are in the corpus where every library is installed; `--sample` divides it."""
TOLERANCES: Final[Mapping[str, Mapping[str, float]]] = {
    "fp32": {"rtol": 1.3e-6, "atol": 1e-5},
    "bf16": {"rtol": 1.6e-2, "atol": 1e-5},
    "fp16": {"rtol": 1e-3, "atol": 1e-5},
}
"""The defaults of torch.testing.assert_close, which many tests use."""
LOOSE: Final[Mapping[str, float]] = {"rtol": 0.02, "atol": 0.5}
"""The tolerance of other formats: what is wrong there passes as a rule."""


@dataclass(frozen=True)
class Run:
    """One kernel on one seed of a case.

    Attributes:
        source: the module of `sources` that makes it.
        kernel: the implementation.
        case: kind, shape, regime and format, joined by hyphens.
        seed: the seed of the inputs.
        edit: what makes the kernel wrong; empty for a right one.
    """

    source: str
    kernel: str
    case: str
    seed: int
    edit: str = ""

    @property
    def id(self) -> str:
        """The name in tables; the same on every machine."""
        return "/".join((self.source, self.kernel, self.case, str(self.seed), self.edit))

    @property
    def kind(self) -> str:
        """The kind of kernel."""
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

    numerics, parameters: as in a test's spec. arithmetic: the declared program; None: it is sought.
    """

    kernel: str
    inputs: Arrays
    epsilon: float
    numerics: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    arithmetic: str | None = None


@dataclass(frozen=True)
class Label:
    """Whether a kernel is right, and how visible its fault is.

    Attributes:
        size: "right"; "listed" (right, but these inputs break its method: see the reason); "clear"
            (an error above FACTORS times the worst right kernel's), "localized" (few elements, by
            a step or more), "small" (fewer, but at least LEAST_CHANGED elements differ) or
            "hidden" (nothing that counts).
        group: "fp32-inside" or "16-bit-storing"; empty where nobody knows.
        term: the term that the edit makes wrong; empty: it has no name.
        outputs: the outputs that the edit changes; empty: any.
        changes: output -> the largest relative change of a row in exact arithmetic.
        reason: why a right kernel is listed.
    """

    size: str
    group: str = ""
    term: str = ""
    outputs: tuple[str, ...] = ()
    changes: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


FACTORS: Final[Mapping[str, float]] = {"16-bit-storing": 2.0}
"""Group -> how far beyond the worst right kernel's error a fault is clear."""
FACTOR: Final = 1.25
"""The same for the other groups."""
LEAST_CHANGED: Final = 3
"""Elements that a small fault changes."""


def size_of(
    wrong: Arrays, right: Arrays, exact: Arrays, worst: Mapping[str, float], group: str
) -> str:
    """Return "clear", "small" or "hidden" for a wrong kernel's outputs.

    right: the outputs of the same kernel without its fault. exact: those of the function in
    float64. worst: output -> the largest absolute error of right kernels on these inputs.
    """
    changed = sum(int((wrong[name] != right[name]).sum()) for name in wrong)
    if changed < LEAST_CHANGED:
        return "hidden"
    errors, twins = errors_of(wrong, exact), errors_of(right, exact)
    factor = FACTORS.get(group, FACTOR)
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


def exact_outputs(question: Question) -> dict[str, NDArray[np.float64]]:
    """Return every output of the function in float64, matrices as (rows, features).

    The kinds are LayerNorm, RMSNorm and group norm, forward, and the first two backward.
    """
    given = {name: np.asarray(values, np.float64) for name, values in question.inputs.items()}
    groups = int(question.parameters.get("num_groups", 0))
    x, gamma, beta = given["x"], given["gamma"], given.get("beta", np.zeros(1))
    if groups:
        spread = (1, x.shape[1], *(1,) * (x.ndim - 2))
        gamma, beta = (np.broadcast_to(v.reshape(spread), x.shape) for v in (gamma, beta))
        rows = x.shape[0] * groups
        x, gamma, beta = (values.reshape(rows, -1) for values in (x, gamma, beta))
    x = x.reshape(-1, x.shape[-1])
    is_centered = not question.kernel.startswith("rmsnorm")
    row_mean = x.mean(1) if is_centered else np.zeros(len(x))
    mean = given.get("mean", row_mean).reshape(-1, 1)
    centered = x - mean if is_centered else x
    with np.errstate(all="ignore"):
        row_rstd = 1 / np.sqrt(np.square(x - row_mean[:, None]).mean(1) + question.epsilon)
        rstd = given.get("rstd", row_rstd).reshape(-1, 1)
        xhat = centered * rstd
        if question.kernel.endswith("_fw"):
            y = xhat * gamma + (beta if is_centered else 0.0)
            return {"y": y, "mean": mean[:, 0], "rstd": rstd[:, 0]}
        dy = given["dy"].reshape(x.shape)
        p = dy * gamma
        s1 = p.mean(1, keepdims=True) if is_centered else 0.0
        dx = rstd * (p - s1 - xhat * (p * xhat).mean(1, keepdims=True))
    return {"dx": dx, "dgamma": (dy * xhat).sum(0), "dbeta": dy.sum(0)}


def digest_of(outputs: Arrays) -> str:
    """Return eight hexadecimal digits that change with any bit of the outputs."""
    digest = hashlib.sha256()
    for name, values in sorted(outputs.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(values, "<f4").tobytes())
    return digest.hexdigest()[:8]
