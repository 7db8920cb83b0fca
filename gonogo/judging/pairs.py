"""Two builds compared with each other: what a job's `reference` means for the verdict of a seed.

The two questions stay two. *Within*: the declared comparators hold against the reference build's
output (instead of the float64 one). *Explained*: rounding explains the error against float64, as
ever, and the difference of the two builds too (within B_a + B_b). An output that the reference
build doesn't produce is judged against float64 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import FieldError
from gonogo.judging import paired
from gonogo.judging.judging import OutputJudgement, SeedJudgement, judge, matrix
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.spec import fields
from gonogo.spec.builds import MAX_NAME
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import (
    POLICY,
    Explanation,
    Policy,
    explain,
    verdict,
    within,
    worst_explanation,
)

Arrays = Mapping[str, NDArray[Any]]
OF_ALL = ("budget_ratio", "chi")
"""What is shown of the reference build's own comparison with float64."""


@dataclass(frozen=True)
class Reference:
    """The build that another one is compared with: how it is judged, and what it gives (None: all
    outputs).
    """

    build: str
    arithmetic: str | None = None
    produced: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, data: object, path: str = "reference") -> Reference | None:
        """From a message's JSON object; None stays None. Raises FieldError."""
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
        arithmetic = given.get("arithmetic")
        return cls(
            build,
            None if arithmetic is None else str(arithmetic),
            None if outputs is None else tuple(str(name) for name in outputs),
        )


def compare(
    test: TestSpec,
    judged: SeedJudgement,
    raw: Arrays,
    given: Arrays,
    outputs: Arrays,
    theirs: Arrays,
    reference: Reference,
    *,
    policy: Policy = POLICY,
) -> SeedJudgement:
    """The judgement of a seed (against float64) with the comparison with `theirs`, what the
    reference build made of the same inputs.

    Each common output gets "reference": {"build", "explanation", "within", "against_float64",
    statistics}. Raises KernelOutputError where an output of the reference build is missing or of a
    wrong shape.
    """
    own = judge(
        test,
        raw,
        given,
        theirs,
        arithmetic=reference.arithmetic,
        produced=reference.produced,
        policy=policy,
    )
    common = [name for name in judged.outputs if name in own.outputs and name in test.outputs]
    ours_bounds = paired.bounds(test, given, judged.arithmetic)
    their_bounds = (
        ours_bounds
        if own.arithmetic == judged.arithmetic
        else paired.bounds(test, given, own.arithmetic)
    )
    found: dict[str, OutputJudgement] = {}
    all_within = True
    for name, output in judged.outputs.items():
        if name not in test.outputs:
            found[name] = _downstream(test, name, output, outputs, theirs, reference)
            continue
        is_within = within(test.tolerance_for(name), output.statistics)
        if name in common:
            bound = ours_bounds[name].with_other(their_bounds[name])
            ours, other = matrix(test, name, outputs), matrix(test, name, theirs)
            numbers = paired.statistics(ours, other, bound, test, name, test.shape_of(name))
            is_within = within(test.tolerance_for(name), numbers)
            said = explain(numbers, policy)
            entry = _entry(reference, said, is_within, own.outputs[name]) | numbers
            explanation = worst_explanation((output.explanation, said))
            output = OutputJudgement(
                verdict(is_within, explanation),
                explanation,
                {**output.statistics, "reference": entry},
            )
        all_within = all_within and is_within
        found[name] = output
    explanation = worst_explanation(
        output.explanation for name, output in found.items() if name in test.outputs
    )
    return replace(
        judged, verdict=verdict(all_within, explanation), explanation=explanation, outputs=found
    )


def _entry(
    reference: Reference, said: Explanation, is_within: bool | None, own: OutputJudgement | None
) -> dict[str, Any]:
    against = (
        None
        if own is None
        else {
            "explanation": own.explanation.value,
            **{name: own.statistics.get(name) for name in OF_ALL},
        }
    )
    return {
        "build": reference.build,
        "explanation": said.value,
        "within": is_within,
        "against_float64": against,
    }


def _downstream(
    test: TestSpec,
    name: str,
    output: OutputJudgement,
    outputs: Arrays,
    theirs: Arrays,
    reference: Reference,
) -> OutputJudgement:
    """An output without a budget: its difference is shown, and counts for nothing."""
    if name not in theirs or name not in test.downstream:
        return output
    shape = test.shape_of(name)
    mine, other = (
        np.asarray(side[name], np.float32).reshape(test.rows, test.features)
        for side in (outputs, theirs)
    )
    numbers = paired.without_budget(mine, other, UNIT_ROUNDOFF["bf16"], shape)
    entry = _entry(reference, Explanation.not_judged, None, None) | numbers
    return replace(output, statistics={**output.statistics, "reference": entry})


def words(judged: SeedJudgement) -> str | None:
    """One line where rounding doesn't explain the difference of the two builds: which outputs, and
    which of the two is off.
    """
    lines = []
    for name, output in judged.outputs.items():
        entry = output.statistics.get("reference")
        if not entry or entry["explanation"] not in (Explanation.unexplained, Explanation.suspect):
            continue
        theirs = (entry["against_float64"] or {}).get("explanation")
        off = [
            who
            for who, said in (("this build", _alone(output, entry)), ("the reference", theirs))
            if said in (Explanation.unexplained, Explanation.suspect)
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


def _alone(output: OutputJudgement, entry: Mapping[str, Any]) -> str:
    """What float64 alone says of our output: its stored statistics, without the comparison."""
    return explain(
        {name: value for name, value in output.statistics.items() if name != "reference"}
    ).value
