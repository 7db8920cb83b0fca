"""LayerNorm's numerics, as the registry needs them.

They combine the fused comparison and the forensics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import EVERYTHING, Arrays, Emulation, Numerics, row_step
from gonogo.kernels.layernorm import forensics, statistics
from gonogo.kernels.layernorm import reference as layernorm
from gonogo.kernels.layernorm.arithmetic import (
    GivenMoments,
    backward_terms,
    forward,
    forward_terms,
    given_moments,
)
from gonogo.kernels.layernorm.arithmetic.moments import coherence_of
from gonogo.kernels.layernorm.arithmetic.terms import BLOCK_FORMATS
from gonogo.kernels.layernorm.gradients import GradientNumerics
from gonogo.kernels.normalization import forward as normalization
from gonogo.kernels.references import References, RowReferences
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.jit import pays
from gonogo.numerics.replay.graph import Graph

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class _LayerNorm(Numerics):
    """The parts that both passes share; the test's kernel says which it is."""

    def __init__(self, kernel: str) -> None:
        self.emulation = Emulation(kernel)

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula, from gonogo.kernels.layernorm.reference."""
        return layernorm.reference(test, arrays)

    def references(self, test: TestSpec, raw: Arrays) -> References:
        """Return the raw references, which are computed by rows."""
        return RowReferences(self.reference, test, raw, row_step(test))

    def statistics(
        self,
        test: TestSpec,
        raw: Arrays,
        given: Arrays,
        outputs: Mapping[str, NDArray[np.float32]],
        arithmetic: str | None,
    ) -> dict[str, Any]:
        """Return the statistics, in one fused pass of compiled code where it works and pays."""
        by_blocks = super().statistics
        if test.numerics.output in BLOCK_FORMATS or not pays(test.rows * test.features):
            return by_blocks(test, raw, given, outputs, arithmetic)
        return statistics.statistics_fused(test, raw, given, outputs, arithmetic, by_blocks)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Run gonogo.kernels.layernorm.forensics."""
        return forensics.diagnose(test, given, outputs)


class LayerNorm(_LayerNorm):
    """The numerics of layernorm_fw."""

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return the expectations of gonogo.kernels.layernorm.arithmetic."""
        some = {**given, "x": given["x"][rows]}
        return forward.expectations(some, test.epsilon, forward_terms(test, arithmetic))

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block)."""
        return test.rows, row_step(test)

    def expecting(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> Callable[[slice], dict[str, Expectation]]:
        """Return the expectations of rows; how far all rows err alike is computed once."""
        x, t = given["x"], forward_terms(test, arithmetic)
        mean, rstd = np.concatenate(
            over_rows(
                lambda start, stop: np.stack(layernorm.moments(x[start:stop], test.epsilon)),
                *self.spans(test),
            ),
            axis=1,
        )
        coherent = coherence_of(mean[:, None], rstd[:, None], t.stored)
        return lambda rows: forward.expectations({**given, "x": x[rows]}, test.epsilon, t, coherent)

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formula of every output."""
        return normalization.graphs(test, given)


class LayerNormBackward(_LayerNorm, GradientNumerics):
    """The numerics of layernorm_bw."""

    def moments(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> GivenMoments:
        """Return mean and rstd as the kernel has them."""
        return given_moments(given, test.epsilon, backward_terms(test, arithmetic))

    def candidates(self, test: TestSpec) -> list[tuple[str, str, dict[str, Any]]]:
        """Return inputs that make wrong terms large.

        With a mean as large as its spread, dy makes s1 as large as dx, instead of 1/sqrt(N) of it.
        A sum over the one hot tile is nothing without that tile, and twice as much with the first
        tile's values as padding.
        """
        gamma = {"regime": "uniform", "low": 0.5, "high": 1.5}
        offset = {"regime": "offset", "offset": 1.0, "std": 1.0}
        candidates: list[tuple[str, str, dict[str, Any]]] = [
            (
                "offset dy",
                "dy has a mean: s1 becomes as large as dx.",
                {"dy": offset, "gamma": gamma},
            ),
            (
                "offset x and dy",
                "x and dy have a mean.",
                {"x": offset, "dy": offset, "gamma": gamma},
            ),
        ]
        for tile, where in {0: "first", -(-test.features // 32) // 2: "middle"}.items():
            hot = {"regime": "hot_tile", "tile": tile, "value": 64}
            candidates.append(
                (
                    f"hot {where} tile of dy",
                    f"s1 comes from the {where} tile alone.",
                    {"dy": hot, "gamma": gamma},
                )
            )
        return candidates


NUMERICS = {
    "layernorm_fw": LayerNorm("layernorm_fw"),
    "layernorm_bw": LayerNormBackward("layernorm_bw"),
}
