"""LayerNorm's numerics, as the registry needs them.

They combine the fused comparison, the forensics and the emulated kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import EVERYTHING, Arrays, Fault, Floats, Numerics, Piece
from gonogo.kernels.layernorm import emulation, forensics, parts, pieces, replay, statistics
from gonogo.kernels.layernorm import reference as layernorm
from gonogo.kernels.layernorm.emulation.defects import DEFECTS
from gonogo.kernels.normalization import forward as normalization
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.replay.graph import Graph
from gonogo.spec.regimes import is_exact

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class LayerNorm(Numerics):
    """LayerNorm, forward and backward; the test's kernel says which."""

    def __init__(self, kernel: str) -> None:
        self.faults = {
            name: Fault(
                name,
                defect.sentence,
                defect.outputs,
                defect.gauge and kernel in defect.kernels,
                defect.plan.stale,
            )
            for name, defect in DEFECTS.items()
        }

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula, from gonogo.kernels.layernorm.reference."""
        return layernorm.reference(test, arrays)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return the expectations of gonogo.kernels.layernorm.arithmetic."""
        some = given
        if rows != EVERYTHING:
            some = {name: a if name in ("gamma", "beta") else a[rows] for name, a in given.items()}
        return statistics.of_layernorm(test, some, arithmetic)

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formula of every output."""
        if test.kernel == "layernorm_fw":
            return normalization.graphs(test, given)
        return replay.graphs(test, given)

    def pieces(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> Iterator[Piece]:
        """Yield blocks of rows; for dgamma and dbeta, blocks of columns."""
        return pieces.of_layernorm(test, given, arithmetic)

    def parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the same blocks, computed on all cores."""
        return parts.of_layernorm(test, given, arithmetic)

    def statistics(
        self,
        test: TestSpec,
        raw: Arrays,
        given: Arrays,
        outputs: Mapping[str, NDArray[np.float32]],
        arithmetic: str | None,
    ) -> dict[str, Any]:
        """Return the statistics, in one fused pass where possible."""
        return statistics.statistics_fused(test, raw, given, outputs, arithmetic, self.definition)

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """Run the emulated dataflow of gonogo.kernels.layernorm.emulation."""
        return emulation.run(test, given, build, seed=seed, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """Run gonogo.kernels.layernorm.emulation.logic."""
        return emulation.ideal(test, given, build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Run gonogo.kernels.layernorm.forensics."""
        return forensics.diagnose(test, given, outputs)

    def right_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Return the kernel with another SrcB and with another fidelity.

        A switch that the test has set already is left out.
        """
        return switched(test)

    def candidates(self, test: TestSpec) -> list[tuple[str, str, dict[str, Any]]]:
        """Return inputs that make wrong terms large.

        With a mean as large as its spread, dy makes s1 as large as dx, instead of 1/sqrt(N) of it.
        A sum over the one hot tile is nothing without that tile, and twice as much with the first
        tile's values as padding.
        """
        if "dy" not in test.drawn_names:
            hot = {"regime": "hot_tile", "tile": -(-test.features // 32) // 2, "value": 64}
            offset = {"regime": "offset", "offset": 1.0, "std": 1.0}
            small = {"regime": "normal", "mean": 0, "std": 1e-3}
            return [
                ("offset x", "x has a mean: a wrong one moves every element.", {"x": offset}),
                ("hot tile of x", "The mean comes from the middle tile alone.", {"x": hot}),
                ("small x", "A variance near epsilon: a wrong epsilon scales y.", {"x": small}),
            ]
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


def switched(test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
    """Return the right kernel with another SrcB, and with another fidelity.

    The other fidelity has its own budget. Neither is exact on exact inputs: there is none.
    """
    if is_exact(test.inputs):
        return []
    numerics = test.numerics
    variants = []
    if numerics.srcb == "tf32":
        other = test.replace(numerics=numerics.replace(srcb="bf16"))
        variants.append(
            ("srcb-bf16", "The right kernel where SrcB sees bf16 of an fp32 value.", other, test)
        )
    if numerics.fidelity == "hifi4":
        other = test.replace(numerics=numerics.replace(fidelity="hifi3"))
        variants.append(
            ("hifi3", "The right kernel with HiFi3 products, judged by their budget.", other, other)
        )
    return variants


NUMERICS = {name: LayerNorm(name) for name in ("layernorm_fw", "layernorm_bw")}
