"""Group norm's numerics: the parts of this folder as the registry wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gonogo.kernels.groupnorm import budget, emulation, forensics
from gonogo.kernels.kind import EVERYTHING, Arrays, Floats, Numerics
from gonogo.kernels.layernorm.numerics import switched
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class GroupNorm(Numerics):
    """groupnorm_fw."""

    faults = emulation.FAULTS

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """The plain formula."""
        return budget.reference(test, arrays)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """LayerNorm's, over groups."""
        return budget.expectations(test, given, arithmetic, rows)

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """Y channel by channel: there gamma and beta show."""
        return (budget.channels(test, given, expected, rows),) if output == "y" else ()

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """The emulated dataflow."""
        return emulation.run(test, given, build, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """The same logic in float64."""
        return emulation.ideal(test, given, build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """The mean, variance, epsilon, gamma and beta that the outputs were made with."""
        return forensics.diagnose(test, given, outputs)

    def go_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Another SrcB, another fidelity."""
        return switched(test)


NUMERICS = {"groupnorm_fw": GroupNorm()}
