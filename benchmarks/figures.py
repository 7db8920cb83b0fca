"""Measure the figures of the emulated Wormhole beside the published ones.

`python -m benchmarks.figures [--seeds N]`. Exit 1 if one is off.

What counts as agreement stands in each row. Means over seeds: within 2 % (errors against the raw
reference), 5 % (two digits published) or 10 % (extremes over elements). Ranges: within the
published ones widened by 10 %: the seeds here are others. Deterministic inputs: to the digit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gonogo import emulator
from gonogo.judging import inputs
from gonogo.judging.questions import Question, questions
from gonogo.judgment import Judgment, judge
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs

NIGHTLY: Mapping[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 273, 1, 8462],
    "epsilon": 1e-6,
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
FORWARD: Mapping[str, Any] = {
    "kernel": "layernorm_fw",
    "shape": [3, 273, 1, 8462],
    "epsilon": 1e-6,
    "tolerance": {"rtol": 1e-3, "atol": 5e-2},
    "inputs": {
        "regime": "uniform",
        "low": -1,
        "high": 1,
        "gamma": {"regime": "uniform", "low": 0.5, "high": 1.5},
        "beta": {"regime": "uniform", "low": -0.1, "high": 0.1},
    },
}
ARITHMETIC = "tt-train"
"""The name of the declared program."""


@dataclass(frozen=True)
class Figure:
    """One row of the report."""

    what: str
    published: str
    measured: str
    rule: str
    agrees: bool


def about(what: str, published: float, measured: float, factor: float, rule: str) -> Figure:
    """Return agreement within a factor, either way."""
    agrees = published / factor <= measured <= published * factor
    return Figure(what, f"{published:.4g}", f"{measured:.4g}", rule, agrees)


def within(what: str, low: float, high: float, values: list[float]) -> Figure:
    """Return whether every measured value lies in the published range, widened by a tenth."""
    return Figure(
        what,
        f"[{low:g}-{high:g}]",
        f"{np.mean(values):.4g} [{min(values):.4g}-{max(values):.4g}]",
        "range, ends ±10 %",
        low * 0.9 <= min(values) and max(values) <= high * 1.1,
    )


def exactly(what: str, published: object, measured: object) -> Figure:
    """Return agreement to the digit."""
    return Figure(what, str(published), str(measured), "equal", published == measured)


@dataclass(frozen=True)
class Run:
    """One seed of a test on the emulator: what a build gave, beside the raw reference."""

    test: TestSpec
    outputs: Mapping[str, NDArray[np.float32]]
    references: Mapping[str, NDArray[np.float64]]
    question: Question

    @cached_property
    def judgment(self) -> Judgment:
        """The answer, with the build's program declared."""
        question = self.question
        (graph,) = question.graphs
        shaped = {
            name: values.reshape(graph.outputs[name].shape) for name, values in self.outputs.items()
        }
        formats = dict.fromkeys(shaped, question.form)
        return judge([graph], question.inputs, shaped, formats, programs=question.declared)

    def error(self, name: str) -> NDArray[np.float64]:
        """Return the errors of an output against the raw reference."""
        return self.outputs[name].reshape(-1) - self.references[name].reshape(-1)

    def rms(self, name: str) -> float:
        """Return the root of the mean square of an output's errors."""
        return float(np.sqrt(np.square(self.error(name)).mean()))

    def pcc_deficit(self, name: str) -> float:
        """Return 1 less Pearson's correlation of an output with the raw reference."""
        pair = self.outputs[name].reshape(-1), self.references[name].reshape(-1)
        return float(1 - np.corrcoef(*pair)[0, 1])

    def tolerance_ratio(self, name: str) -> float:
        """Return the largest error relative to what the test allows."""
        declared = self.test.tolerance_for(name)
        assert declared is not None
        tolerance = Tolerance(declared.rtol or 0.0, declared.atol or 0.0)
        allowed = tolerance.allowed(self.references[name])
        return float((np.abs(self.error(name)) / allowed.reshape(-1)).max())


def run(test: TestSpec, build: str, seed: int = 0) -> Run:
    """Return one seed of a test by a build."""
    raw = inputs.generate(test, seed)
    given = inputs.quantise(test, raw)
    question, *_ = questions(test, given, ARITHMETIC)
    return Run(test, emulator.run(test, given, build), exact_outputs(test, raw), question)


@dataclass(frozen=True)
class Published:
    """A row of the backward table: means over 60 seeds of dx, and what the judge names."""

    tolerance_ratio: float
    rms: float
    pcc_deficit: float
    faults: tuple[str, ...] = ()


TWICE, LAST_TILE = "s1 is subtracted twice in P_centered", "s2 sums only tile 264 of 265"
BACKWARD = {
    "correct": Published(0.0265, 1.72e-3, 4.4e-6),
    "last-two-tiles": Published(0.062, 6.5e-3, 6.3e-5, ("s1 sums only tiles 263 to 264 of 265",)),
    "double-subtract": Published(0.062, 6.5e-3, 6.2e-5, (TWICE,)),
    "last-block-only": Published(0.087, 6.6e-3, 6.4e-5, (LAST_TILE,)),
    "tt-train-2025": Published(0.101, 9.0e-3, 1.2e-4, (TWICE, LAST_TILE)),
    "bf16-accumulate": Published(0.027, 1.73e-3, 4.5e-6),
}


def backward(seeds: int) -> Iterator[Figure]:
    """Yield the table of the nightly test: six builds, every seed; one is judged."""
    test = TestSpec.parse(NIGHTLY)
    for build, published in BACKWARD.items():
        runs = [run(test, build, seed) for seed in range(seeds)]
        ratios = [one.tolerance_ratio("dx") for one in runs]
        yield about(
            f"{build}: tolerance_ratio (1e-3, .5)",
            published.tolerance_ratio,
            float(np.mean(ratios)),
            1.1,
            "mean, 10 %",
        )
        rms = float(np.mean([one.rms("dx") for one in runs]))
        yield about(f"{build}: rms", published.rms, rms, 1.02, "mean, 2 %")
        deficits = [one.pcc_deficit("dx") for one in runs]
        yield about(
            f"{build}: 1 - PCC", published.pcc_deficit, float(np.mean(deficits)), 1.05, "mean, 5 %"
        )
        is_green = max(ratios) <= 1 and max(deficits) <= 1e-3
        yield exactly(f"{build}: allclose(1e-3, .5), PCC >= .999 pass every seed", True, is_green)
        yield from judged(build, runs[0])
        if build == "correct":
            yield within("correct: tolerance_ratio", 0.0256, 0.0279, ratios)
            largest = [float(np.abs(one.error("dx")).max()) for one in runs]
            yield within("correct: max_abs of dx (device: <= .014)", 0.0128, 0.0140, largest)
            largest = [float(np.abs(one.error("dgamma")).max()) for one in runs]
            yield within("correct: max_abs of dgamma (device: about .29)", 0.22, 0.32, largest)


def judged(build: str, one: Run) -> Iterator[Figure]:
    """Yield what the judge says of dx."""
    answer, published = one.judgment.outputs["dx"], BACKWARD[build]
    ratio, is_right = answer.rounding_ratio, build == "correct"
    yield Figure(
        f"{build}: rounding_ratio",
        "<= 1" if is_right else ">= 2",
        f"{ratio:.4g}",
        "one seed",
        ratio <= 1 if is_right else ratio >= 2,
    )
    if is_right:
        yield exactly("correct: distance", 0.0, answer.distance)
    expected = "explained" if is_right else "unexplained"
    yield exactly(f"{build}: explanation", expected, answer.explanation.value)
    if published.faults:
        named = all(fault in answer.message for fault in published.faults)
        sentence = " ".join(published.faults)
        yield Figure(f"{build}: diagnosis", sentence, answer.message, "names them", named)


def deterministic() -> Iterator[Figure]:
    """Yield the published device values of dy = 1, gamma = 1, x = .5, to the digit."""
    constant = {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}
    test = TestSpec.parse(NIGHTLY)
    for n, doubled, last_two in (
        (2048, 1000.0, 968.0),
        (4096, 1000.0, 984.0),
        (8192, 1000.0, 992.0),
        (8462, 992.0, 996.0),
    ):
        test = TestSpec.parse(
            {
                "kernel": "layernorm_bw",
                "shape": [32, n],
                "inputs": constant,
                "tolerance": {"rtol": 0, "atol": 1e-2},
            }
        )
        for build, published in (("double-subtract", doubled), ("last-two-tiles", last_two)):
            largest = float(np.abs(run(test, build).outputs["dx"]).max())
            yield exactly(f"{build}, N={n}: max |dx|", published, largest)
    bf16 = TestSpec.parse({**test.canonical(), "numerics": {"srcb": "bf16"}})
    largest = float(np.abs(run(bf16, "double-subtract").outputs["dx"]).max())
    yield exactly("double-subtract, N=8462, srcb=bf16: max |dx|", 988.0, largest)
    right = run(test, "correct")
    yield exactly("correct, N=8462: dx", 3.421875, float(right.outputs["dx"].max()))
    is_red = right.tolerance_ratio("dx") > 1
    yield exactly("correct, N=8462, atol 1e-2: red", True, is_red)
    answer = right.judgment.outputs["dx"]
    yield exactly("correct, N=8462: distance", 0.0, answer.distance)


def forward(seeds: int = 4) -> Iterator[Figure]:
    """Yield the figures of the forward kernel."""
    test = TestSpec.parse(FORWARD)
    right = [run(test, "correct", seed) for seed in range(seeds)]
    ratios = [one.tolerance_ratio("y") for one in right]
    yield within("forward correct: tolerance_ratio (1e-3, 5e-2)", 0.71, 0.77, ratios)
    yield exactly("forward correct: explanation", "explained", right[0].judgment.explanation.value)
    distance = max(answer.distance for answer in right[0].judgment.outputs.values())
    yield exactly("forward correct: distance", 0.0, distance)
    wrong = [run(test, "mean-last-tile-missing", seed) for seed in range(seeds)]
    worst = max(one.tolerance_ratio("y") for one in wrong)
    yield about("forward, mean without its last tile: tolerance_ratio", 0.73, worst, 1.1, "10 %")
    explanation = wrong[0].judgment.explanation.value
    yield exactly("forward, mean without its last tile: explanation", "unexplained", explanation)
    constant = {"regime": "constant", "x": 0.5, "gamma": 1, "beta": 0}
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": [2, 20], "inputs": constant})
    lost = run(test, "correct")
    yield exactly("forward correct on x = .5: y for 0", 0.890625, float(lost.outputs["y"].max()))
    explanation = lost.judgment.outputs["y"].explanation.value
    yield exactly("forward correct on x = .5: explanation of y", "inconclusive", explanation)


def main(arguments: list[str] | None = None) -> int:
    """Print every figure; return 1 if one is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=60, help="of the backward table (default 60, as published)"
    )
    chosen = parser.parse_args(arguments)
    console = Console(width=170 if not sys.stdout.isatty() else None)
    off = 0
    started = time.perf_counter()
    for title, figures in (
        (f"Backward, 819x8462, {chosen.seeds} seeds", backward(chosen.seeds)),
        ("Deterministic inputs", deterministic()),
        ("Forward, 819x8462, 4 seeds", forward()),
    ):
        table = Table(
            "figure", "published", "measured", "rule", "", title=title, title_justify="left"
        )
        for figure in figures:
            off += not figure.agrees
            state = "ok" if figure.agrees else "[bold red]OFF"
            table.add_row(figure.what, figure.published, figure.measured, figure.rule, state)
        console.print(table)
    console.print(f"{off} figures off; {time.perf_counter() - started:.0f} s")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
