"""The parts of the gauge: right kernels in several arithmetics (GO), known-wrong ones (NO-GO)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gonogo.spec.builds import EMULATOR

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class Kind(StrEnum):
    """Which end of the gauge a part is."""

    go = "go"
    """Right: it must pass."""
    no_go = "no_go"
    """Wrong: it must fail, where it can show."""


@dataclass(frozen=True)
class Part:
    """One kernel that the test is measured with.

    Attributes:
        name: unique among the parts.
        kind: right or wrong.
        sentence: what it is, in one line.
        build, executor: what runs it.
        test: what it is asked to run: the test itself, or with other numerics.
        judged: whose budget judges it: the test itself, or `test` where the other numerics have a
            budget of their own.
        turned: rows and columns are given in reverse order and the outputs turned back: the sums
            run in another order.
        unsure: whether a fault can show must be read off its outputs: nothing says what it does
            without rounding.
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
    """Return the right kernels of the emulator; those whose switch the test sets already are left out."""
    from gonogo.kernels.registry import (
        numerics,  # loads the emulator with numba behind it: whoever plans a gauge needs names only
    )

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
            Part(name, Kind.go, sentence, "correct", asked, judged)
            for name, sentence, asked, judged in numerics(test).right_variants(test)
        ),
    ]


def wrong(test: TestSpec) -> list[Part]:
    """Return the named faults that change this kernel."""
    from gonogo.kernels.registry import numerics

    return [
        Part(fault.name, Kind.no_go, fault.sentence, fault.name, test, test, unsure=fault.unsure)
        for fault in numerics(test).faults.values()
        if fault.gauge
    ]


def foreign(test: TestSpec, executor: str, build: str, kind: Kind) -> Part:
    """Return a build of somebody's, which they say is right, or wrong."""
    sentence = f"Build {build} of {executor}, said to be {'right' if kind is Kind.go else 'wrong'}."
    return Part(
        f"{executor}:{build}", kind, sentence, build, test, test, executor=executor, unsure=True
    )
