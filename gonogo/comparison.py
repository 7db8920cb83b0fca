"""Judge the arrays that a test already has, and say in words what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from gonogo import fields as reading
from gonogo.builds import PROFILES
from gonogo.judging import SeedJudgement, judge
from gonogo.kernels import numerics
from gonogo.problems import JobError
from gonogo.stored import Tensors, given_inputs, shaped
from gonogo.tests import TestSpec
from gonogo.verdicts import Explanation, Verdict

HARMLESS = frozenset({Verdict.suspect, Verdict.no_information})
"""Verdicts that say neither right nor wrong: one run warns of them and fails nothing."""
SHOWN = ("budget_ratio", "chi", "row_z", "max_abs", "tolerance_ratio")


def judge_here(
    test_fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], raw: Mapping[str, NDArray[Any]], profile: str | None = None
) -> tuple[SeedJudgement, str | None, bool]:
    """The judgement, words unless it is a pass, and whether it is bad enough to fail a test.

    arrays: inputs and outputs in the test's shapes; the inputs are those that the kernel was given. raw: unquantised inputs, as
    gonogo.stored.given_inputs takes them. Raises FieldError for a test, a tensor or a profile that can't be, and for inputs that the test's
    input format can't represent; JobError where one is missing.
    """
    test = TestSpec.parse(test_fields)
    if profile is not None:
        reading.choice(profile, PROFILES, "profile")
    outputs = {name: shaped(test, name, arrays[name]) for name in test.outputs if name in arrays}
    loose, given = given_inputs(test, {name: array for name, array in arrays.items() if name not in outputs}, raw)
    if not outputs:
        raise JobError(f"there is no output to judge: give some of {', '.join(test.outputs)}")
    judgement = judge(test, loose, given, outputs, profile=profile, produced=tuple(outputs))
    if judgement.verdict is Verdict.pass_:
        return judgement, None, False
    return judgement, _words(test, judgement, given, outputs), judgement.verdict not in HARMLESS


def _words(test: TestSpec, judgement: SeedJudgement, given: Tensors, outputs: Tensors) -> str:
    """The message: verdict, its sentence, the numbers of every output that isn't a pass, and the diagnosis."""
    lines = [f"{test.kernel} {list(test.shape)}: {judgement.verdict.value} (budget of {judgement.profile}). {judgement.verdict.sentence}"]
    for name, output in judgement.outputs.items():
        if output.verdict is not Verdict.pass_:
            numbers = [f"{key} {value:.3g}" for key in SHOWN if isinstance(value := output.statistics.get(key), float)]
            lines.append(f"  {name}: {output.verdict.value}, {output.explanation.value}; {', '.join(numbers)}")
    if judgement.explanation is Explanation.unexplained:
        diagnosed = numerics(test).diagnose(test, given, outputs).words
        if diagnosed:
            lines.append(f"  {diagnosed}")
    return "\n".join(lines)
