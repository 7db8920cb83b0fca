"""The parts of a gauge by name: what a service needs to hand the work out, without the emulator, numba or NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.builds import EMULATOR
from gonogo.gauge import kernels
from gonogo.gauge.kernels import Kind
from gonogo.problems import FieldError
from gonogo.tests import TestSpec

_FORWARD = (
    "bf16-accumulate", "wrong-epsilon", "unbiased-variance", "gamma-shifted-tile", "mask-missing", "mean-not-subtracted",
    "mean-last-tile-missing", "tile-missing", "rstd-off-1e-3", "stale-register", "power-of-two-outliers", "nan-tile",
)  # fmt: skip
_BACKWARD = (
    "last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1", "bf16-accumulate", "wrong-epsilon",
    "unbiased-variance", "gamma-shifted-tile", "mask-missing", "mean-not-subtracted", "dgamma-last-row-tile-missing", "tile-missing",
    "rstd-off-1e-3", "stale-register", "power-of-two-outliers", "nan-tile",
)  # fmt: skip
WRONG: Mapping[str, tuple[str, ...]] = {"layernorm_fw": _FORWARD, "layernorm_bw": _BACKWARD}
"""Kernel -> the names of gonogo.gauge.kernels.wrong, in their order (a test compares them, for every kernel)."""


@dataclass(frozen=True)
class Planned:
    """One part as it is handed out.

    Attributes:
        name, kind, executor, build: as those of gonogo.gauge.kernels.Part.
        edges: whether its runs also say what a right kernel may need: once for each budget is enough.
    """

    name: str
    kind: Kind
    executor: str
    build: str
    edges: bool

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {"name": self.name, "kind": self.kind.value, "executor": self.executor, "build": self.build, "edges": self.edges}


def planned(test: TestSpec, executor: str = EMULATOR, builds: Sequence[str] = (), wrong_builds: Sequence[str] = ()) -> list[Planned]:
    """Every part of a test's gauge: the emulator's, then somebody's builds. Raises FieldError for a kernel without wrong parts and for
    a build that is named twice."""
    if test.kernel not in WRONG:
        raise FieldError("test.kernel", test.kernel, "has no known-wrong kernels to measure with", limit="one of " + ", ".join(WRONG))
    found: list[Planned] = []
    budgets: set[str] = set()
    for part in kernels.right(test):
        found.append(Planned(part.name, Kind.go, part.executor, part.build, part.judged.key not in budgets))
        budgets.add(part.judged.key)
    found += [Planned(name, Kind.no_go, EMULATOR, name, False) for name in WRONG[test.kernel]]
    names: set[str] = set()
    for field, kind, given in (("builds", Kind.go, builds), ("wrong_builds", Kind.no_go, wrong_builds)):
        for place, build in enumerate(given):
            part = kernels.foreign(test, executor, build, kind)
            if part.name in names:
                raise FieldError(f"{field}.{place}", build, "is named twice")
            names.add(part.name)
            found.append(Planned(part.name, kind, executor, build, kind is Kind.go))
    return found


def work_of(parts: Iterable[int], seeds: Iterable[int]) -> list[list[int]]:
    """[[seed, part], ...], the parts of a seed together: its arrays are drawn once."""
    numbers = list(parts)
    return [[seed, part] for seed in seeds for part in numbers]
