"""The parts of a gauge by name: what a service hands out without loading the emulator, numba or
NumPy. Workers know what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gonogo.errors import FieldError
from gonogo.gauge.kernels import Kind, foreign
from gonogo.spec.builds import EMULATOR
from gonogo.spec.kernels.registry import KERNELS

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

RIGHT = "correct"
"""The emulator's right build."""
GO = (RIGHT, "reversed", "srcb-bf16", "hifi3")
"""Every name that gonogo.gauge.kernels.right gives for some test (a test compares them)."""


@dataclass(frozen=True)
class Planned:
    """One part as it is handed out: name, kind, executor and build of a
    gonogo.gauge.kernels.Part.
    """

    name: str
    kind: Kind
    executor: str
    build: str

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types."""
        return {
            "name": self.name,
            "kind": self.kind.value,
            "executor": self.executor,
            "build": self.build,
        }


def planned(
    test: TestSpec,
    executor: str = EMULATOR,
    builds: Sequence[str] = (),
    wrong_builds: Sequence[str] = (),
) -> list[Planned]:
    """Return every part that a test's gauge may have: the emulator's, then somebody's builds.

    Those of the emulator that have nothing to do with this test (a switch that it sets already, a
    build that hangs) are among them: a worker answers for them with `not_run`, without running
    anything. Raises FieldError for a build named twice.
    """
    found = [Planned(name, Kind.go, EMULATOR, RIGHT) for name in GO]
    found += [
        Planned(name, Kind.no_go, EMULATOR, name)
        for name in KERNELS[test.kernel].builds
        if name != RIGHT
    ]
    names: set[str] = set()
    for field, kind, given in (
        ("builds", Kind.go, builds),
        ("wrong_builds", Kind.no_go, wrong_builds),
    ):
        for place, build in enumerate(given):
            part = foreign(test, executor, build, kind)
            if part.name in names:
                raise FieldError(f"{field}.{place}", build, "is named twice")
            names.add(part.name)
            found.append(Planned(part.name, kind, executor, build))
    return found


def work_of(parts: Iterable[int], seeds: Iterable[int]) -> list[list[int]]:
    """[[seed, part], ...], the parts of a seed together: its arrays are drawn once."""
    numbers = list(parts)
    return [[seed, part] for seed in seeds for part in numbers]
