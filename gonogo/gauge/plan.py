"""The parts of a gauge by name, as a service plans them. Workers know what the parts do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gonogo.errors import FieldError
from gonogo.gauge.kernels import Kind, foreign, stands_for
from gonogo.spec.builds import EMULATOR
from gonogo.workloads import mutants

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

RIGHT = "correct"
"""The emulator's right build."""
RIGHT_KERNELS = (RIGHT, "reversed", "srcb-bf16", "hifi3")
"""Every name that gonogo.gauge.kernels.right returns for some test (a test compares them)."""


@dataclass(frozen=True)
class Planned:
    """One part as it is sent to workers: the name, kind, executor and build of a Part."""

    name: str
    kind: Kind
    executor: str
    build: str


def planned(
    test: TestSpec,
    executor: str = EMULATOR,
    builds: Sequence[str] = (),
    wrong_builds: Sequence[str] = (),
) -> list[Planned]:
    """Return every part that a test's gauge may have: the emulator's, then the user's builds.

    They include the emulator's parts that don't apply to this test (a switch that it sets already,
    a build that hangs): a worker answers `not_run` for them, without running anything. The
    emulator's right kernels are left out where they don't stand for the user's. Raises
    FieldError for a build named twice.
    """
    right = RIGHT_KERNELS if stands_for(executor, builds) else ()
    parts = [Planned(name, Kind.go, EMULATOR, RIGHT) for name in right]
    parts += [Planned(name, Kind.no_go, EMULATOR, name) for name in mutants(test)]
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
            parts.append(Planned(part.name, kind, executor, build))
    return parts
