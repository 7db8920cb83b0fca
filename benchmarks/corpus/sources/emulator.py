"""The emulated Wormhole: every build of every kernel, in several formats and fidelities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.run import CLEAR_16, LOOSE, Arrays, Label, Question, Run, errors_of, size_of
from gonogo import emulator
from gonogo.gauge.measure import turn
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec

ARITHMETIC: Final = "tt-train"
GROUP: Final = "16-bit-storing"
SHAPES: Final = ("33x50", "64x96", "16x1024", "40x257", "4x2048")
GROUPED: Final[Mapping[str, int]] = {
    "2x6x5x5": 2,
    "4x32x8x8": 8,
    "1x64x4x4": 1,
    "2x40x16": 10,
    "3x12x31": 3,
}
"""Shapes of group norm, with their groups."""
REGIMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "uniform": {"regime": "uniform", "low": -1, "high": 1},
    "normal": {"regime": "normal", "mean": 0, "std": 1},
    "small": {"regime": "normal", "mean": 0, "std": 1e-3},
    "offset": {"regime": "offset", "offset": 10, "std": 1},
    "ramp": {"regime": "ramp", "low": -1, "high": 1},
    "hot_tile": {"regime": "hot_tile", "tile": 0, "value": 8},
}
FORMATS: Final[Mapping[str, Mapping[str, Any]]] = {
    "bf16": {},
    "fp32": {"input": "fp32", "output": "fp32"},
    "bfp8_b": {"output": "bfp8_b"},
    "accumulate_bf16": {"accumulate": "bf16"},
    "lofi": {"fidelity": "lofi"},
    "hifi3": {"fidelity": "hifi3"},
}
KINDS: Final = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
RIGHT: Final = ("correct", "reversed")
CASES_PER_FAULT: Final = 50
SEEDS: Final = 2


class Emulated:
    """Right builds on all cases with the declared program, wrong ones on some."""

    def runs(self) -> Iterator[Run]:
        """Yield all runs."""
        for kind in KINDS:
            shapes = GROUPED if kind == "groupnorm_fw" else SHAPES
            cases = [
                "-".join((kind, *parts))
                for parts in product(shapes, REGIMES, FORMATS)
                if not (kind == "groupnorm_fw" and parts[2] == "bfp8_b")  # no rows of tiles
            ]
            for case, name, seed in product(cases, RIGHT, range(SEEDS)):
                if not (name == "reversed" and case.endswith("bfp8_b")):  # of other blocks
                    yield Run("emulator", name, case, seed)
            builds = emulator.builds_of(kind).values()
            for place, wrong in enumerate(build for build in builds if build.is_wrong):
                for step in range(CASES_PER_FAULT):
                    case = cases[(11 * place + 7 * step) % len(cases)]
                    yield Run("emulator", "correct", case, 0, wrong.name)

    def prepare(self, chosen: Sequence[Run]) -> Sequence[Run]:
        """Return all of them."""
        return chosen

    def question(self, run: Run) -> Question:
        """Return the question with the declared program."""
        test = test_of(run.case)
        given = drawn(run.case, run.seed)
        return Question(
            test.kernel,
            {name: values.reshape(test.shape_of(name)) for name, values in given.items()},
            test.canonical().get("numerics", {}) | {"input": test.numerics.input},
            {**test.parameters, "epsilon": test.epsilon},
            LOOSE,
            ARITHMETIC,
        )

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the outputs and the label."""
        test = test_of(run.case)
        outputs = emulated(run.kernel, run.case, run.seed, run.edit)
        size = "right"
        if run.edit:
            size = size_of(outputs, *right_outputs(run.case, run.seed), CLEAR_16)
        label = Label(size, GROUP)
        return {n: values.reshape(test.shape_of(n)) for n, values in outputs.items()}, label


@lru_cache(maxsize=256)
def test_of(case: str) -> TestSpec:
    """Return the test of a case."""
    kind, shape, regime, form = case.split("-")
    fields: dict[str, Any] = {
        "kernel": kind,
        "shape": [int(part) for part in shape.split("x")],
        "inputs": dict(REGIMES[regime]),
        "numerics": dict(FORMATS[form]),
        "tolerance": dict(LOOSE),
    }
    if kind == "groupnorm_fw":
        fields["parameters"] = {"num_groups": GROUPED[shape]}
    return TestSpec.parse(fields)


@lru_cache(maxsize=64)
def drawn(case: str, seed: int) -> Mapping[str, NDArray[Any]]:
    """Return the flat inputs as the device gets them."""
    test = test_of(case)
    return quantise(test, generate(test, seed))


def emulated(name: str, case: str, seed: int, fault: str) -> Arrays:
    """Return flat outputs of the second run in a process; the first had other inputs."""
    test, given = test_of(case), drawn(case, seed)
    if name == "reversed":
        return turn(test, emulator.run(test, turn(test, given), "correct", position=1))
    build = fault or "correct"
    if emulator.builds_of(test.kernel)[build].is_stale:  # it shows what the run before left behind
        emulator.run(test, drawn(case, seed + 1), build)
    return emulator.run(test, given, build, position=1)


@lru_cache(maxsize=64)
def right_outputs(case: str, seed: int) -> tuple[Arrays, Arrays, Mapping[str, float]]:
    """Return the right outputs, the float64 ones, and the largest error of a right build."""
    test, given = test_of(case), drawn(case, seed)
    exact = emulator.ideal(test, given, "correct")
    right = emulated("correct", case, seed, "")
    errors = [errors_of(emulated(name, case, seed, ""), exact) for name in RIGHT]
    worst = {name: np.max([row[name] for row in errors]) for name in exact}
    return right, exact, worst
