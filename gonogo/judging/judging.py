"""Judge one run of one seed.

Every output is compared with its expectation and explained; the table gives the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import KernelOutputError
from gonogo.exact.judge import judge_exact
from gonogo.judging import constant_rows, expected
from gonogo.judging.arithmetic import Ruling, rulings
from gonogo.judging.budget_limits import budget_limits
from gonogo.numerics.blocks import together
from gonogo.numerics.compare import Statistics, digest, nonfinite
from gonogo.numerics.jit import HAVE_NUMBA, MIN_ELEMENTS
from gonogo.spec.arithmetic_names import NamedArithmetic
from gonogo.spec.builds import WORMHOLE_ARITHMETIC
from gonogo.spec.regimes import is_exact
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import (
    POLICY,
    Explanation,
    Policy,
    Verdict,
    explain,
    explain_output,
    seed_verdict,
    verdict,
    within,
    worst_explanation,
)


@dataclass(frozen=True)
class OutputJudgement:
    """The judgment of one output, with the numbers behind it (JSON-ready)."""

    verdict: Verdict
    explanation: Explanation
    statistics: Statistics

    def to_json(self) -> dict[str, Any]:
        """Return the output's entry of a result: the statistics stand beside the verdict."""
        return {
            "verdict": self.verdict.value,
            "explanation": self.explanation.value,
            **self.statistics,
        }


@dataclass(frozen=True)
class SeedJudgement:
    """The judgment of one seed.

    `seed_verdict` and `worst_explanation` of its outputs.
    """

    verdict: Verdict
    explanation: Explanation
    outputs: Mapping[str, OutputJudgement]
    arithmetic: str
    policy: str

    def to_json(self) -> dict[str, Any]:
        """Return the part of a result row that numbers decide: each output is as it says itself."""
        return {
            "verdict": self.verdict.value,
            "explanation": self.explanation.value,
            "arithmetic": self.arithmetic,
            "policy": self.policy,
            "outputs": {name: output.to_json() for name, output in self.outputs.items()},
        }


def judge(
    test: TestSpec,
    raw: Mapping[str, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    *,
    arithmetic: str | None,
    produced: tuple[str, ...] | None = None,
    policy: Policy = POLICY,
) -> SeedJudgement:
    """Judge a kernel's outputs for `given`.

    NaN and Inf are judged, not refused.

    Args:
        test: the test.
        raw: the inputs before they were rounded to their formats (2-D x and dy).
        given: what the device was given, as gonogo.judging.inputs makes it.
        outputs: the kernel's, in the test's shapes or flattened to rows.
        arithmetic: the arithmetic model by name (gonogo.spec.arithmetic_names); None: it is found
            for each output by replay.
        produced: the outputs that the build declares (None: all of them); others are not produced
            and not missed.
        policy: the thresholds.

    Raises:
        FieldError: the arithmetic model is unknown.
        KernelOutputError: an output is missing, or has a wrong shape or type.
    """
    declared = (
        test.outputs
        if produced is None
        else tuple(name for name in test.outputs if name in produced)
    )
    matrices = {name: matrix(test, name, outputs) for name in declared}
    named = None if arithmetic is None else NamedArithmetic.parse(arithmetic)
    is_replayed = named is None or named.wormhole is None

    def compare() -> dict[str, Any]:
        return expected.statistics(test, raw, given, matrices, arithmetic)

    def replay() -> dict[str, Ruling]:
        return rulings(test, raw, given, matrices, named) if is_replayed else {}

    # the replay's trials of faults take one thread, and leave the others idle
    if is_replayed and HAVE_NUMBA and test.rows * test.features > MIN_ELEMENTS:
        statistics, ruled = together(compare, replay)
    else:
        statistics, ruled = compare(), replay()
    for name, ruling in ruled.items():
        statistics[name] |= ruling.statistics()
    if is_exact(test.inputs):
        for name, reading in judge_exact(test, given, matrices).items():
            statistics[name]["exact"] = asdict(reading.comparison)
    by_budget = [
        name
        for name, numbers in statistics.items()
        if name not in ruled and explain(numbers, policy) is Explanation.explained
    ]
    for name, limits in budget_limits(test, given, arithmetic, by_budget, policy).items():
        statistics[name] |= limits.statistics()
    explained = [
        name
        for name, numbers in statistics.items()
        if explain(numbers, policy) is Explanation.explained
    ]
    constant_rows.add_to_limits(test, given, {name: statistics[name] for name in explained})
    judged: dict[str, OutputJudgement] = {}
    answers: list[tuple[bool, Explanation]] = []
    for name, numbers in statistics.items():
        is_within = within(test.tolerance_for(name), numbers)
        explanation = explain_output(is_within, numbers, policy)
        answers.append((is_within, explanation))
        judged[name] = OutputJudgement(verdict(is_within, explanation), explanation, numbers)
    downstream = [name for name in test.downstream if produced is not None and name in produced]
    judged |= {name: _not_judged(test, name, outputs) for name in downstream}
    return SeedJudgement(
        seed_verdict(answers),
        worst_explanation(explanation for _, explanation in answers),
        judged,
        _model(ruled) if ruled else named.name if named else WORMHOLE_ARITHMETIC,
        policy.version,
    )


def exact_words(judged: SeedJudgement) -> str | None:
    """Return what exact inputs show of the wrong outputs, in one line; None where all are right."""
    readings = {name: output.statistics.get("exact") for name, output in judged.outputs.items()}
    wrong = [
        f"{name}: {reading['words']}"
        for name, reading in readings.items()
        if reading and reading["mismatches"]
    ]
    return "; ".join(wrong) or None


def _model(ruled: Mapping[str, Ruling]) -> str:
    """Return the arithmetic models of the outputs as one name."""
    return "; ".join(sorted({ruling.name for ruling in ruled.values()}))


def _not_judged(test: TestSpec, name: str, outputs: Mapping[str, NDArray[Any]]) -> OutputJudgement:
    """Return the judgment of a downstream output, which counts for nothing.

    It has no reference or budget of its own. Its digest tells runs apart.
    """
    value = matrix(test, name, outputs)
    numbers: Statistics = {
        "count": int(value.size),
        "digest": digest(value, test.shape_of(name)),
        **nonfinite(value),
    }
    return OutputJudgement(Verdict.not_judged, Explanation.not_judged, numbers)


def matrix(test: TestSpec, name: str, outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Return the output as a C-contiguous float32 matrix.

    It is (rows, features) for outputs of the test's shape (y, dx), and one row for others.
    """
    if name not in outputs:
        raise KernelOutputError(
            f"output {name!r} is missing; the kernel gave {', '.join(sorted(outputs)) or 'nothing'}"
        )
    value = outputs[name]
    shape = test.shape_of(name)
    flat = (test.rows, test.features) if test.is_matrix(name) else (1, int(np.prod(shape)))
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        raise KernelOutputError(
            f"output {name!r} is {getattr(value, 'dtype', type(value).__name__)}, not a float array"
        )
    if value.shape not in (shape, flat, flat[-1:] if flat[0] == 1 else flat):
        raise KernelOutputError(f"output {name!r} has shape {list(value.shape)}, not {list(shape)}")
    return np.ascontiguousarray(value, dtype=np.float32).reshape(flat)
