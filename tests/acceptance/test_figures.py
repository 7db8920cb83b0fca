"""The published figures of the emulated Wormhole: deterministic ones to the digit, others on one
seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.judging import inputs
from gonogo.judging.questions import questions
from gonogo.judgment import Judgment, judge
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs

SHAPE = {"shape": [3, 273, 1, 8462]}
TOLERANCE = {"rtol": 1e-3, "atol": 0.5}
NIGHTLY: dict[str, Any] = {"kernel": "layernorm_bw", "tolerance": TOLERANCE, **SHAPE}


def uniform(low: float, high: float) -> dict[str, Any]:
    return {"regime": "uniform", "low": low, "high": high}


FORWARD: dict[str, Any] = {
    "kernel": "layernorm_fw",
    "tolerance": {"rtol": 1e-3, "atol": 5e-2},
    **SHAPE,
    "inputs": uniform(-1, 1) | {"gamma": uniform(0.5, 1.5), "beta": uniform(-0.1, 0.1)},
}
CONSTANT = {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}


@dataclass(frozen=True)
class Run:
    """Seed 0 of a test on the emulator."""

    test: TestSpec
    build: str

    @cached_property
    def raw(self) -> Any:
        return inputs.generate(self.test, 0)

    @cached_property
    def given(self) -> Any:
        return inputs.quantise(self.test, self.raw)

    @cached_property
    def outputs(self) -> Any:
        return emulator.run(self.test, self.given, self.build)

    @cached_property
    def exact(self) -> Any:
        return exact_outputs(self.test, self.raw)

    @cached_property
    def judgment(self) -> Judgment:
        """The answer, with the build's program declared."""
        question, *_ = questions(self.test, self.given, "tt-train")
        (graph,) = question.graphs
        shaped = {
            name: values.reshape(graph.outputs[name].shape) for name, values in self.outputs.items()
        }
        formats = {name: question.formats[name] for name in shaped}
        return judge([graph], question.inputs, shaped, formats, programs=question.declared)

    def error(self, name: str) -> NDArray[np.float64]:
        return np.asarray(self.outputs[name].ravel() - self.exact[name].ravel(), np.float64)

    def tolerance_ratio(self, name: str) -> float:
        declared = self.test.tolerance_for(name)
        assert declared is not None
        allowed = (declared.atol or 0.0) + (declared.rtol or 0.0) * np.abs(self.exact[name])
        return float((np.abs(self.error(name)) / allowed.ravel()).max())


TWICE, LAST_TILE = "s1 is subtracted twice in P_centered", "s2 sums only tile 264 of 265"
BACKWARD = {
    "correct": (0.0265, 1.72e-3, 4.4e-6),
    "last-two-tiles": (0.062, 6.5e-3, 6.3e-5),
    "double-subtract": (0.062, 6.5e-3, 6.2e-5),
    "last-block-only": (0.087, 6.6e-3, 6.4e-5),
    "tt-train-2025": (0.101, 9.0e-3, 1.2e-4),
    "bf16-accumulate": (0.027, 1.73e-3, 4.5e-6),
}
"""Build -> error ÷ tolerance, rms and 1 - PCC of dx (published: means over 60 seeds)."""
JUDGED = {"correct": (), "tt-train-2025": (TWICE, LAST_TILE)}
"""Build -> what the judge names: a wrong one takes a quarter of a minute."""


@pytest.mark.parametrize("build", BACKWARD)
def test_the_backward_table(build: str) -> None:
    ratio, rms, deficit = BACKWARD[build]
    run = Run(TestSpec.parse(NIGHTLY), build)
    error, is_right = run.error("dx"), build == "correct"
    assert np.sqrt(np.square(error).mean()) == pytest.approx(rms, rel=0.05)
    pair = run.outputs["dx"].ravel(), run.exact["dx"].ravel()
    assert 1 - np.corrcoef(*pair)[0, 1] == pytest.approx(deficit, rel=0.1)
    assert run.tolerance_ratio("dx") == pytest.approx(ratio, rel=0.4)
    assert run.tolerance_ratio("dx") <= 1
    if build not in JUDGED:
        return
    answer = run.judgment.outputs["dx"]
    assert answer.explanation.value == ("explained" if is_right else "unexplained")
    assert answer.rounding_ratio <= 1 if is_right else answer.rounding_ratio >= 2
    assert all(fault in answer.message for fault in JUDGED[build])
    if is_right:
        assert answer.distance == 0
        assert 0.0256 * 0.9 < run.tolerance_ratio("dx") < 0.0279 * 1.1
        assert 0.0128 * 0.95 < np.abs(error).max() <= 0.0140 * 1.05
        assert 0.22 * 0.9 < np.abs(run.error("dgamma")).max() < 0.32 * 1.1


@pytest.mark.parametrize(
    ("build", "width", "srcb", "largest"),
    [
        ("double-subtract", 2048, "tf32", 1000.0),
        ("double-subtract", 4096, "tf32", 1000.0),
        ("double-subtract", 8192, "tf32", 1000.0),
        ("double-subtract", 8462, "tf32", 992.0),
        ("double-subtract", 8462, "bf16", 988.0),
        ("last-two-tiles", 2048, "tf32", 968.0),
        ("last-two-tiles", 4096, "tf32", 984.0),
        ("last-two-tiles", 8192, "tf32", 992.0),
        ("last-two-tiles", 8462, "tf32", 996.0),
        ("correct", 8462, "tf32", 3.421875),
    ],
)
def test_constant_inputs_give_the_device_s_figures_to_the_digit(
    build: str, width: int, srcb: str, largest: float
) -> None:
    """The devices gave those of double-subtract; last-two-tiles gives others, which refutes it."""
    fields = {"kernel": "layernorm_bw", "shape": [32, width], "tolerance": {"atol": 1e-2}}
    run = Run(TestSpec.parse({**fields, "inputs": CONSTANT, "numerics": {"srcb": srcb}}), build)
    assert np.abs(run.outputs["dx"]).max() == largest
    if build == "correct":
        assert run.tolerance_ratio("dx") > 1
        assert run.judgment.outputs["dx"].distance == 0


def test_forward_figures() -> None:
    builds = ("correct", "mean-last-tile-missing")
    right, wrong = (Run(TestSpec.parse(FORWARD), build) for build in builds)
    assert 0.71 * 0.9 <= right.tolerance_ratio("y") <= 0.77 * 1.1
    assert right.judgment.explanation.value == "explained"
    assert max(answer.distance for answer in right.judgment.outputs.values()) == 0
    assert wrong.tolerance_ratio("y") == pytest.approx(0.73, rel=0.1)
    assert wrong.judgment.explanation.value == "unexplained"


def test_a_sum_that_cancels_to_nothing_is_inconclusive() -> None:
    constant = {"regime": "constant", "x": 0.5, "gamma": 1, "beta": 0}
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": [2, 20], "inputs": constant})
    run = Run(test, "correct")
    assert run.outputs["y"].max() == 0.890625
    assert run.judgment.outputs["y"].explanation.value == "inconclusive"
