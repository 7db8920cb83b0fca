"""Group norm's numerics: the parts of this folder, as the registry needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.groupnorm import budget, forensics
from gonogo.kernels.kind import EVERYTHING, Arrays, Emulation, Numerics
from gonogo.kernels.normalization import forward
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.replay.graph import Graph

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class GroupNorm(Numerics):
    """The numerics of groupnorm_fw."""

    emulation = Emulation("groupnorm_fw")

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula in float64."""
        return budget.reference(test, arrays)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return LayerNorm's expectations over groups."""
        return budget.expectations(test, given, arithmetic, rows)

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """Return y channel by channel: gamma and beta show there."""
        return (budget.channels(test, given, expected, rows),) if output == "y" else ()

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formulas of y, mean and rstd."""
        rows, features = given["x"].shape
        groups = test.parameter("num_groups")
        width = features * groups // len(given["gamma"])

        def spread(vector: Array) -> Array:
            """Return one value per channel as one per element of each row."""
            of_groups = np.repeat(np.asarray(vector, np.float64), width).reshape(groups, -1)
            return np.tile(of_groups, (rows // groups, 1))

        spread_inputs = {name: spread(given[name]) for name in ("gamma", "beta")}
        all_inputs = {**given, **spread_inputs}
        return forward.graphs(test, all_inputs, channel_width=width, groups=groups)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate the mean, variance, epsilon, gamma and beta that the outputs were made with."""
        return forensics.diagnose(test, given, outputs)


NUMERICS = {"groupnorm_fw": GroupNorm()}
