"""Measure time and memory of the judge.

`python -m benchmarks.speed`. Each row is one judgment, the fastest of three; the matrix
product beside it says how fast the machine is. Memory is the peak above the arrays that are given.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.report import Figure, report
from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.capture.capturing import Capture
from gonogo.graph import trace
from gonogo.judging import judging
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.questions import questions
from gonogo.judgment import judge
from gonogo.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec

NIGHTLY = {"kernel": "layernorm_bw", "shape": [819, 8462], "epsilon": 1e-6}
PRODUCT = 1200
"""Rows and columns of the matrices whose product is timed."""


@dataclass(frozen=True)
class Case:
    """A judgment, or the making of outputs, and what is asked of it in seconds."""

    name: str
    request: float
    call: Callable[[], object]


def layernorm(form: str, *, wrong: bool) -> Callable[[], object]:
    """Return the judgment of a LayerNorm of 32x1024 by NumPy, with nothing named."""
    random = np.random.default_rng(0)
    inputs = {
        "x": round_to(random.normal(size=(32, 1024)), form),
        "gamma": round_to(random.normal(1, 0.1, 1024), form),
        "beta": round_to(random.uniform(-1, 1, 1024), form),
    }
    x, gamma, beta = (array.astype(np.float32) for array in inputs.values())
    centered = x - x.mean(1, keepdims=True)
    count = 1023 if wrong else 1024
    variance = (centered * centered).sum(1, keepdims=True) / np.float32(count)
    y = round_to(centered / np.sqrt(variance + np.float32(1e-5)) * gamma + beta, form)
    kernel = KERNELS["layernorm_fw"]
    graphs = [trace(way, inputs, epsilon=1e-5) for way in (kernel.reference, *kernel.ways)]
    narrow = [] if form == "fp32" else [form]
    return lambda: judge(graphs, inputs, {"y": y}, {"y": form}, narrow)


def captured(elements: int) -> Case:
    """Return the capture of a comparison: at most 1 ms and 30 ns an element beside its own time."""
    random = np.random.default_rng(0)
    expected = random.normal(size=elements)
    actual = (expected * (1 + 1e-3 * random.normal(size=elements))).astype("float32")
    capture, given = Capture(), {"rtol": 0.1}

    def call() -> None:
        capture.observe(np.testing.assert_allclose, (actual, expected), given, None)

    values = "1 value" if elements == 1 else f"{elements:,} values"
    return Case(f"a comparison of {values} captured", 1e-3 + 30e-9 * elements, call)


def cases() -> Iterator[Case]:
    """Yield what is measured."""
    yield from map(captured, (1, 10_000, 1_000_000))
    for form in ("fp32", "bf16"):
        yield Case(f"32x1024, {form}, right", 0.05, layernorm(form, wrong=False))
        yield Case(f"32x1024, {form}, N - 1", 0.7, layernorm(form, wrong=True))
    test = TestSpec.parse(NIGHTLY)
    given = quantise(test, generate(test, 0))
    yield Case(
        "emulated 819x8462 backward: made", 1.5, lambda: emulator.run(test, given, "correct")
    )
    question, *_ = questions(test, given, "tt-train")
    shapes = {name: node.shape for name, node in question.graphs[0].outputs.items()}
    outputs = {
        name: array.reshape(shapes[name]).astype(np.float64)
        for name, array in emulator.run(test, given, "correct").items()
    }
    formats = dict.fromkeys(outputs, "bf16")
    yield Case(
        "the same judged, program declared",
        2.0,
        lambda: judge(
            question.graphs, question.inputs, outputs, formats, programs=question.declared
        ),
    )
    yield Case("the same as a seed: inputs, kernel, judgment, statistics", 5.0, lambda: seed(test))


def seed(test: TestSpec) -> None:
    """Make, run and judge a seed, as a worker does."""
    raw = generate(test, 1)
    given = quantise(test, raw)
    outputs = emulator.run(test, given, "correct")
    judging.judge(test, raw, given, outputs, arithmetic="tt-train")


def main() -> int:
    """Report each judgment's seconds."""
    matrix = np.random.default_rng(0).normal(size=(PRODUCT, PRODUCT))
    figures = []
    for case in cases():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = min(_seconds(case.call) for _ in range(3))
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        ratio = seconds / min(_seconds(lambda: matrix @ matrix) for _ in range(3))
        note = f"{ratio:.2f} times a {PRODUCT}x{PRODUCT} product, {more / 1024:.0f} MB"
        figures.append(Figure(case.name, seconds, "s", most=case.request, note=note))
    return report("speed", figures)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
