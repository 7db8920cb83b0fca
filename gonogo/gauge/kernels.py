"""The parts of a gauge: right kernels in several arithmetics, and mutants.

A service plans them by name (`planned`), workers make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gonogo.emulator.builds import build_of
from gonogo.errors import FieldError
from gonogo.kernels.registry import KERNELS
from gonogo.spec.executors import EMULATOR, ON_WORMHOLE
from gonogo.workloads import mutants

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

RIGHT = "correct"
"""The emulator's right build."""
RIGHT_KERNELS = (RIGHT, "reversed", "srcb-bf16", "hifi3")
"""Every name that `right` returns for some test (a test compares them)."""


class Kind(StrEnum):
    """The end of the gauge that a part is."""

    go = "go"
    """A right kernel: it must pass."""
    no_go = "no_go"
    """A mutant: it must fail where it can show."""


@dataclass(frozen=True)
class Planned:
    """One part as it is sent to workers."""

    name: str
    kind: Kind
    executor: str
    build: str


@dataclass(frozen=True)
class Part:
    """One kernel that the test is measured with; its name is unique among the parts."""

    name: str
    kind: Kind
    sentence: str
    build: str
    test: TestSpec
    """The test that it runs and that judges it: the test itself, or with other numerics."""
    executor: str = EMULATOR
    turned: bool = False
    """It is given rows and columns in reverse order, so that its sums run in another."""
    unsure: bool = False
    """Whether a fault can show must be read off its outputs: without rounding its effect is not
    known."""


def right(test: TestSpec) -> list[Part]:
    """Return the emulator's right kernels, except those whose switch the test sets already.

    Those with another SrcB or fidelity are not exact on exact inputs.
    """
    numerics, build = test.numerics, RIGHT
    parts = [Part(RIGHT, Kind.go, "The right kernel.", build, test)]
    if KERNELS[test.kernel].builds:  # those with the general builds may be others in reverse order
        backward = "The right kernel, summing rows and columns in reverse order."
        parts.append(Part("reversed", Kind.go, backward, build, test, turned=True))
    if test.inputs.exact:
        return parts
    if numerics.srcb == "tf32":
        other = test.replace(numerics=numerics.replace(srcb="bf16"))
        sentence = "The right kernel where SrcB sees bf16 of an fp32 value."
        parts.append(Part("srcb-bf16", Kind.go, sentence, build, other))
    if numerics.fidelity == "hifi4":
        other = test.replace(numerics=numerics.replace(fidelity="hifi3"))
        parts.append(Part("hifi3", Kind.go, "The right kernel with HiFi3 products.", build, other))
    return parts


def wrong(test: TestSpec) -> list[Part]:
    """Return the mutants: the emulator's wrong builds of this kernel."""
    builds = [build_of(test, name) for name in mutants(test)]
    return [
        Part(build.name, Kind.no_go, build.sentence, build.name, test, unsure=build.is_stale)
        for build in builds
        if build.is_wrong
    ]


def stands_for(executor: str, builds: Sequence[str]) -> bool:
    """Return whether the emulator's right kernels count beside a user's right builds.

    They compute as a Wormhole does. A library's kernel on a CPU or GPU is measured by itself: what
    another arithmetic needs is no lower edge of its tolerance.
    """
    return not builds or executor in ON_WORMHOLE


def foreign(test: TestSpec, executor: str, build: str, kind: Kind) -> Part:
    """Return the part for a user's build, which the user declares right or wrong."""
    sentence = f"Build {build} of {executor}, said to be {'right' if kind is Kind.go else 'wrong'}."
    name = f"{executor}:{build}"
    return Part(name, kind, sentence, build, test, executor=executor, unsure=True)


def planned(
    test: TestSpec,
    executor: str = EMULATOR,
    builds: Sequence[str] = (),
    wrong_builds: Sequence[str] = (),
) -> list[Planned]:
    """Return every part that a test's gauge may have: the emulator's, then the user's builds.

    They include the emulator's parts that don't apply to this test (a switch that it sets already,
    a build that hangs): a worker answers `not_run` for them. Raises FieldError for a build named
    twice.
    """
    names = RIGHT_KERNELS if stands_for(executor, builds) else ()
    parts = [Planned(name, Kind.go, EMULATOR, RIGHT) for name in names]
    parts += [Planned(name, Kind.no_go, EMULATOR, name) for name in mutants(test)]
    seen: set[str] = set()
    for field, kind, given in (
        ("builds", Kind.go, builds),
        ("wrong_builds", Kind.no_go, wrong_builds),
    ):
        for place, build in enumerate(given):
            if build in seen:
                raise FieldError(f"{field}.{place}", build, "is named twice")
            seen.add(build)
            parts.append(Planned(f"{executor}:{build}", kind, executor, build))
    return parts
