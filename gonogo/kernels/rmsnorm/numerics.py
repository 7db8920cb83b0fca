"""RMSNorm's numerics: the parts of this folder, as the registry needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels.kind import EVERYTHING, Arrays, Emulation, Numerics, with_min_step
from gonogo.kernels.layernorm.arithmetic import forward_terms
from gonogo.kernels.normalization import forward
from gonogo.kernels.rmsnorm import backward, budget
from gonogo.kernels.rows import forensics
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.replay.graph import Graph

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class RMSNorm(Numerics):
    """The numerics of rmsnorm_fw."""

    emulation = Emulation("rmsnorm_fw")

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula in float64."""
        return budget.reference(arrays["x"], arrays["gamma"], test.epsilon)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of y and rstd.

        The terms are those of LayerNorm's forward pass in this arithmetic: the machine is the same.
        """
        some = {"x": given["x"][rows], "gamma": given["gamma"]}
        expected = budget.expectations(
            some,
            test.epsilon,
            forward_terms(test, arithmetic),
            stores_squares=arithmetic != budget.TT_TRAIN,
        )
        return expected | {"y": with_min_step(expected["y"], test.numerics.output)}

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formulas of y and rstd."""
        return forward.graphs(test, given, centered=False)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate the mean square, epsilon and gamma that y and rstd were computed with.

        A mean that was subtracted is named, too.
        """
        return forensics.diagnose(
            test, given, outputs, groups=1, centred=False, noun="mean square", channel="column"
        )


NUMERICS = {"rmsnorm_fw": RMSNorm(), "rmsnorm_bw": backward.RMSNormBackward()}
