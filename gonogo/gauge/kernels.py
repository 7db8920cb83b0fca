"""The parts of the gauge: right kernels in several arithmetics, and mutants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gonogo.spec.executors import EMULATOR, ON_WORMHOLE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class Kind(StrEnum):
    """The end of the gauge that a part is."""

    go = "go"
    """A right kernel: it must pass."""
    no_go = "no_go"
    """A mutant: it must fail where it can show."""


@dataclass(frozen=True)
class Part:
    """One kernel that the test is measured with.

    Attributes:
        name: unique among the parts.
        kind: right kernel or mutant.
        sentence: a description in one line.
        build, executor: what runs it.
        test: the test that it runs: the test itself, or with other numerics.
        judged: the test whose budget judges it: the test itself, or `test` where the other numerics
            have a budget of their own.
        turned: rows and columns are given in reverse order and the outputs turned back: the sums
            run in another order.
        unsure: whether a fault can show must be read off its outputs, because its effect without
            rounding is not known.
    """

    name: str
    kind: Kind
    sentence: str
    build: str
    test: TestSpec
    judged: TestSpec
    executor: str = EMULATOR
    turned: bool = False
    unsure: bool = False


def right(test: TestSpec) -> list[Part]:
    """Return the emulator's right kernels, except those whose switch the test sets already."""
    # Imported here: it loads the emulator and numba, and planning a gauge needs names only.
    from gonogo.kernels.registry import numerics

    return [
        Part("correct", Kind.go, "The right kernel.", "correct", test, test),
        Part(
            "reversed",
            Kind.go,
            "The right kernel, summing rows and columns in reverse order.",
            "correct",
            test,
            test,
            turned=True,
        ),
        *(
            Part(name, Kind.go, sentence, "correct", variant, judged)
            for name, sentence, variant, judged in numerics(test).right_variants(test)
        ),
    ]


def wrong(test: TestSpec) -> list[Part]:
    """Return the mutants: the named faults that change this kernel."""
    from gonogo.kernels.registry import numerics

    return [
        Part(fault.name, Kind.no_go, fault.sentence, fault.name, test, test, unsure=fault.unsure)
        for fault in numerics(test).faults.values()
        if fault.gauge
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
    return Part(
        f"{executor}:{build}", kind, sentence, build, test, test, executor=executor, unsure=True
    )
