"""The comparison of two builds: what a job's `reference` means for the verdict of a seed.

There are still two questions. *Within*: the declared comparators hold against the reference build's
output (instead of the float64 one). *Explained*: rounding explains the error against float64, and
the difference of the two builds, too (within B_a + B_b). An output that the reference build doesn't
produce is judged against float64 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import FieldError
from gonogo.judging import flips, paired
from gonogo.judging.judging import OutputJudgement, SeedJudgement, judge, matrix
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.spec import fields
from gonogo.spec.arithmetic_names import BUDGETS, canonical
from gonogo.spec.builds import MAX_NAME
from gonogo.spec.compared_outputs import AgainstFloat64, AgainstReference
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import (
    POLICY,
    Explanation,
    Policy,
    explain,
    seed_verdict,
    verdict,
    within,
    worst_explanation,
)

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Reference:
    """The build that another one is compared with.

    Attributes:
        build: its name.
        arithmetic: its arithmetic model; None: it is found by replay.
        produced: its outputs; None for all.
    """

    build: str
    arithmetic: str | None = None
    produced: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, data: object, path: str = "reference") -> Reference | None:
        """Read it from a message's JSON object. None stays None. Raises FieldError."""
        if data is None:
            return None
        given = fields.mapping(data, path)
        fields.known(given, ("build", "arithmetic", "outputs"), path)
        build, outputs = given.get("build"), given.get("outputs")
        if not isinstance(build, str) or not 0 < len(build) <= MAX_NAME:
            raise FieldError(
                fields.join(path, "build"),
                build,
                "must be the name of a build",
                limit=f"1 to {MAX_NAME} characters",
            )
        return cls(
            build,
            canonical(given.get("arithmetic"), fields.join(path, "arithmetic")),
            None if outputs is None else tuple(str(name) for name in outputs),
        )


def compare(
    test: TestSpec,
    judged: SeedJudgement,
    raw: Arrays,
    given: Arrays,
    outputs: Arrays,
    reference_outputs: Arrays,
    reference: Reference,
    *,
    policy: Policy = POLICY,
) -> SeedJudgement:
    """Return the judgment of a seed with the comparison of two builds.

    judged: the judgment of this build against float64. reference_outputs: what the reference build
    made of the same inputs.

    Each common output gets "reference": {"build", "explanation", "within", "against_float64",
    "flips", statistics}. The flips (gonogo.judging.flips) decide no verdict. Raises
    KernelOutputError where an output of the reference build is missing or has a wrong shape.
    """
    reference_judged = judge(
        test,
        raw,
        given,
        reference_outputs,
        arithmetic=reference.arithmetic,
        produced=reference.produced,
        policy=policy,
    )
    common = [
        name for name in judged.outputs if name in reference_judged.outputs and name in test.outputs
    ]
    our_model, reference_model = _budget_model(judged), _budget_model(reference_judged)
    our_bounds = paired.bounds(test, given, our_model)
    reference_bounds = (
        our_bounds if reference_model == our_model else paired.bounds(test, given, reference_model)
    )
    results: dict[str, OutputJudgement] = {}
    answers: list[tuple[bool, Explanation]] = []
    for name, output in judged.outputs.items():
        if name not in test.outputs:
            results[name] = _downstream(test, name, output, outputs, reference_outputs, reference)
            continue
        is_within = within(test.tolerance_for(name), output.statistics)
        if name in common:
            bound = our_bounds[name].with_other(reference_bounds[name])
            our_values, reference_values = (
                matrix(test, name, outputs),
                matrix(test, name, reference_outputs),
            )
            numbers = paired.statistics(
                our_values, reference_values, bound, test, name, test.shape_of(name)
            )
            is_within = within(test.tolerance_for(name), numbers)
            difference = explain(numbers, policy)
            against = AgainstReference(
                reference.build,
                difference,
                is_within,
                _against_float64(reference_judged.outputs[name]),
                flips.count(our_values, reference_values),
            )
            explanation = worst_explanation((output.explanation, difference))
            output = OutputJudgement(
                verdict(is_within, explanation),
                explanation,
                {**output.statistics, "reference": asdict(against) | numbers},
            )
        answers.append((is_within, output.explanation))
        results[name] = output
    return replace(
        judged,
        verdict=seed_verdict(answers),
        explanation=worst_explanation(explanation for _, explanation in answers),
        outputs=results,
    )


def _budget_model(judged: SeedJudgement) -> str | None:
    """Return the arithmetic model whose budget bounds a build's error.

    It is the generic one where a program explains the build's outputs: it is no budget.
    """
    return judged.arithmetic if judged.arithmetic in BUDGETS else None


def _against_float64(reference_judged: OutputJudgement) -> AgainstFloat64:
    numbers = reference_judged.statistics
    return AgainstFloat64(
        reference_judged.explanation, numbers.get("budget_ratio"), numbers.get("chi")
    )


def _downstream(
    test: TestSpec,
    name: str,
    output: OutputJudgement,
    outputs: Arrays,
    reference_outputs: Arrays,
    reference: Reference,
) -> OutputJudgement:
    """Return an output without a budget: its difference is shown, and counts for nothing."""
    if name not in reference_outputs or name not in test.downstream:
        return output
    shape = test.shape_of(name)
    our_values, reference_values = (
        np.asarray(side[name], np.float32).reshape(test.rows, test.features)
        for side in (outputs, reference_outputs)
    )
    numbers = paired.without_budget(our_values, reference_values, UNIT_ROUNDOFF["bf16"], shape)
    flip_counts = flips.count(our_values, reference_values)
    against = AgainstReference(reference.build, Explanation.not_judged, None, None, flip_counts)
    entry = asdict(against) | numbers
    return replace(output, statistics={**output.statistics, "reference": entry})


def words(judged: SeedJudgement) -> str | None:
    """Return one line where rounding doesn't explain the difference of the two builds.

    It names the outputs, and which of the two builds is off. None where there is nothing to say.
    """
    lines = []
    for name, output in judged.outputs.items():
        entry = output.statistics.get("reference")
        if not entry or entry["explanation"] not in (Explanation.unexplained, Explanation.suspect):
            continue
        reference_explanation = (entry["against_float64"] or {}).get("explanation")
        off = [
            who
            for who, explanation in (
                ("this build", _alone(output)),
                ("the reference", reference_explanation),
            )
            if explanation in (Explanation.unexplained, Explanation.suspect)
        ]
        blame = (
            f"rounding doesn't explain {' and '.join(off)} against float64"
            if off
            else "each is explained against float64"
        )
        ratio = entry.get("budget_ratio")
        size = "" if ratio is None else f" ({ratio:.3g} times what both may differ by)"
        lines.append(f"{name} differs from {entry['build']}{size}: {blame}")
    return "; ".join(lines) or None


def _alone(output: OutputJudgement) -> str:
    """Return the explanation of our output against float64 alone.

    It comes from its stored statistics, without the comparison.
    """
    return explain(
        {name: value for name, value in output.statistics.items() if name != "reference"}
    ).value
