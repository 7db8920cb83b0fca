"""The lower edges of a window: how far a right kernel may be from the reference, by the arithmetic
that explains its output."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.gauge import kernels, measure
from gonogo.gauge.kernels import Kind
from gonogo.gauge.report import report
from gonogo.spec.test_spec import TestSpec
from numeric_cases import spec

BF16 = spec("layernorm_fw", (16, 96), numerics={"input": "bf16", "output": "bf16"})


def row(test: TestSpec, *, factor: float = 1.0) -> dict[str, Any]:
    """Return the row of a kernel that computes in fp32 and rounds once."""
    drawn = measure.Drawn.of(test, 0)
    outputs = {
        output: round_to(factor * value, "bf16").astype(np.float32)
        for output, value in drawn.expected.items()
    }
    part = kernels.foreign(test, "mine", "right", Kind.go)
    return measure.measured(part, drawn, outputs, arithmetic=None, produced=("y",))


def test_the_lower_edge_of_a_library_s_kernel_is_that_of_its_own_arithmetic() -> None:
    gamma = {"regime": "constant", "value": 6.0}
    once = {"input": "fp32", "output": "bf16"}
    inputs = {"regime": "normal", "gamma": gamma}
    test = spec("layernorm_fw", (16, 96), numerics=once, inputs=inputs)
    windows = {str(window): window for window in report(test, [row(test)]).windows}
    # outputs from 16 to 32 have steps of .125: the one rounding needs half of it
    assert 0.0625 <= windows["allclose rtol 0"].outputs["y"].lower < 0.07
    # and half a step relative to the smallest value of a binade
    assert windows["allclose rtol 0.01"].outputs["y"].lower < 1e-4
    assert 0.5 <= windows["ulp"].outputs["y"].lower <= 1.1


def test_a_kernel_that_no_arithmetic_explains_has_no_edges() -> None:
    measured = row(BF16, factor=1.01)
    assert measured["outputs"]["y"]["explanation"] == "unexplained"
    assert measured["edges"] == {}


def test_the_edges_of_three_seeds_hold_for_others() -> None:
    part = kernels.right(BF16)[0]

    def measured(seed: int) -> dict[str, Any]:
        drawn = measure.Drawn.of(BF16, seed)
        outputs = emulator.run(BF16, drawn.given, part.build)
        return measure.measured(part, drawn, outputs, arithmetic="tt-train", produced=None)

    rows = [measured(seed) for seed in range(15)]
    for name in BF16.outputs:
        edges = [row["edges"][name] for row in rows[:3]]
        for row in rows[3:]:
            numbers = row["outputs"][name]
            for metric in ("rel_frobenius", "pcc_deficit"):
                assert numbers[metric] <= max(edge[metric] for edge in edges), (name, metric)
            # with an rtol, one of a few means that is close to 0 needs more
            atols = numbers["needed_atol"]
            for rtol, needed in atols.items() if name == "y" else [("0.0", atols["0.0"])]:
                assert needed <= max(edge["needed_atol"][rtol] for edge in edges), (name, rtol)
