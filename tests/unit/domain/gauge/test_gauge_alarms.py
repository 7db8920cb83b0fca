"""A right kernel that fails one run in a hundred: the gauge predicts it from passing runs, and
advises a tolerance that ends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.gauge import kernels, measure
from gonogo.gauge.kernels import Kind, Part
from gonogo.gauge.report import report
from gonogo.gauge.summary import MeasuredTest
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
SEEDS = 20


def rounded(outputs: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float32]]:
    """Return the outputs of a kernel whose only error is the rounding of its output."""
    return {name: round_to(a, "bf16").astype(np.float32) for name, a in outputs.items()}


@pytest.fixture(scope="module")
def rows() -> list[measure.Row]:
    perfect = Part("perfect", Kind.go, "Rounds its output only.", "correct", TEST)
    measured_rows = []
    for seed in range(SEEDS):
        drawn = measure.Drawn.of(TEST, seed)
        outputs = rounded(dict(drawn.references))
        measured_rows.append(
            measure.measured(perfect, drawn, outputs, arithmetic=None, produced=None)
        )
        if seed == 0:
            part = next(part for part in kernels.wrong(TEST) if part.build == "unbiased-variance")
            ideal = rounded(emulator.ideal(TEST, drawn.given, part.build))
            measured_rows.append(
                measure.measured(part, drawn, ideal, arithmetic=None, produced=None)
            )
    return measured_rows


@pytest.fixture(scope="module")
def gauge(rows: list[measure.Row]) -> MeasuredTest:
    return report(TEST, rows)


def test_the_rate_is_predicted(gauge: MeasuredTest) -> None:
    alarms = gauge.false_alarms
    assert alarms.predicted is not None
    assert 0.004 < alarms.predicted < 0.015
    expected = alarms.predicted * SEEDS
    assert abs(alarms.count - expected) < 4 * expected**0.5


def test_it_is_predicted_from_seeds_none_of_which_fails(rows: list[measure.Row]) -> None:
    green = [row for row in rows if row["outputs"]["y"]["needed_atol"]["0.0"] <= 0.06]
    alarms = report(TEST, green).false_alarms
    assert alarms.count == 0
    assert alarms.predicted is not None
    assert 0.003 < alarms.predicted < 0.015


def test_a_relative_tolerance_is_advised_that_no_right_kernel_fails(
    gauge: MeasuredTest, rows: list[measure.Row]
) -> None:
    advised = gauge.advice.tolerance["y"]
    assert advised["rtol"] > 0
    needed = [row["outputs"]["y"]["needed_atol"] for row in rows if row["kind"] == "go"]
    assert max(atols[repr(advised["rtol"])] for atols in needed) <= advised["atol"] < 0.06
