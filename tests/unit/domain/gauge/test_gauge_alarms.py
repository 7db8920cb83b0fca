"""A right kernel that fails one run in a hundred: the gauge predicts it from passing runs, and
advises a tolerance that ends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.gauge import kernels, measure
from gonogo.gauge.kernels import Kind, Part
from gonogo.gauge.report import Gauge, report
from gonogo.kernels.layernorm import reference
from gonogo.numerics.formats import round_to
from numeric_cases import spec

# a public report: bf16 outputs of 4,736 elements, some beyond 16, where half an ulp is .0625;
# atol .06, rtol 0
PUBLIC: dict[str, Any] = {
    "kernel": "layernorm_fw",
    "shape": (37, 128),
    "numerics": {"input": "fp32"},
    "inputs": {"x": {"regime": "normal", "mean": 0, "std": 1}, "gamma": 4.0, "beta": 0.0},
    "tolerance": {"y": {"rtol": 0, "atol": 0.06}},
}
TEST = spec(**PUBLIC)
SEEDS = 40
ARITHMETIC = "fp32"
FAINTEST = ("unbiased-variance", "rstd-off-1e-3")
"""The wrong kernels that limit the tolerance: with all twelve, the advice is the same."""


def rounded(outputs: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float32]]:
    """Return the outputs of a kernel whose only error is the rounding of its output."""
    return {name: round_to(np.asarray(a, np.float32), "bf16") for name, a in outputs.items()}


@pytest.fixture(scope="module")
def rows() -> list[measure.Row]:
    measured_rows = []
    for seed in range(SEEDS):
        drawn = measure.Drawn.of(TEST, seed)
        perfect = Part("perfect", Kind.go, "Rounds its output only.", "correct", TEST, TEST)
        outputs = rounded(reference.reference(TEST, drawn.raw))
        measured_rows.append(
            measure.measured(perfect, drawn, outputs, arithmetic=ARITHMETIC, produced=None)
        )
        if seed == 0:
            for part in (part for part in kernels.wrong(TEST) if part.build in FAINTEST):
                ideal = rounded(emulator.ideal(TEST, drawn.given, part.build))
                measured_rows.append(
                    measure.measured(part, drawn, ideal, arithmetic=ARITHMETIC, produced=None)
                )
    return measured_rows


@pytest.fixture(scope="module")
def gauge(rows: list[measure.Row]) -> Gauge:
    return report(TEST, rows)


def test_the_rate_is_predicted(gauge: Gauge) -> None:
    assert gauge.predicted is not None
    assert 0.004 < gauge.predicted < 0.015
    expected = gauge.predicted * SEEDS
    assert abs(gauge.alarms.count - expected) < 4 * expected**0.5


def test_it_is_predicted_from_seeds_none_of_which_fails(rows: list[measure.Row]) -> None:
    green = [row for row in rows if row["outputs"]["y"]["needed_atol"]["0"] <= 0.06][:40]
    green_gauge = report(TEST, green)
    assert green_gauge.alarms.count == 0
    assert green_gauge.predicted is not None
    assert 0.003 < green_gauge.predicted < 0.015


def test_a_relative_tolerance_is_advised_that_no_right_kernel_fails(
    gauge: Gauge, rows: list[measure.Row]
) -> None:
    advised = gauge.advice.tolerance["y"]
    assert advised["rtol"] > 0
    needed = [row["outputs"]["y"]["needed_atol"] for row in rows if row["kind"] == "go"]
    assert (
        max(needed_atol[f"{advised['rtol']:g}"] for needed_atol in needed) <= advised["atol"] < 0.06
    )
