"""Judge the arrays that a test already has, and say in words what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from gonogo.errors import JobError
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.stored_tensors import Tensors, given_inputs, shaped
from gonogo.kernels.registry import numerics
from gonogo.spec import diagnoses
from gonogo.spec import fields as reading
from gonogo.spec.builds import ARITHMETICS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict, verdict, within

Arrays = Mapping[str, NDArray[Any]]

HARMLESS = frozenset({Verdict.suspect, Verdict.inconclusive})
"""Verdicts that say neither right nor wrong: one run warns of them and fails nothing."""
KEPT = ("max_abs", "tolerance_ratio", "pcc_deficit", "rel_frobenius")
"""What is kept of the comparison with float64 where a test has an expectation of its own."""
SHOWN = ("budget_ratio", "chi", "row_z", "max_abs", "tolerance_ratio")


def judge_here(
    test_fields: Mapping[str, Any], arrays: Arrays, raw: Arrays, arithmetic: str | None = None
) -> tuple[SeedJudgement, str | None, bool, dict[str, Any]]:
    """The judgement, words unless it is a pass, whether it is bad enough to fail a test, and what
    to record of it.

    arrays: inputs and outputs in the test's shapes; the inputs are those that the kernel was given.
    raw: unquantised inputs, as gonogo.judging.stored_tensors.given_inputs takes them. Raises FieldError for a test,
    a tensor or an arithmetic that can't be, and for inputs that the test's input format can't
    represent; JobError where one is missing.
    """
    test, judgement, given, outputs = _judged(test_fields, arrays, raw, arithmetic)
    is_within = all(
        within(test.tolerance_for(name), each.statistics)
        for name, each in judgement.outputs.items()
    )
    words = None if judgement.verdict is Verdict.pass_ else _words(test, judgement, given, outputs)
    found = _recorded(
        test,
        judgement,
        judgement.verdict,
        is_within,
        {name: each.statistics for name, each in judgement.outputs.items()},
    )
    return (
        judgement,
        words,
        judgement.verdict not in HARMLESS and words is not None,
        found | {"words": words or ""},
    )


def judge_against(
    test_fields: Mapping[str, Any],
    arrays: Arrays,
    raw: Arrays,
    arithmetic: str | None,
    expected: Mapping[str, Mapping[str, Any]],
    is_within: Mapping[str, bool],
) -> dict[str, Any]:
    """Judge outputs that a test compared with an expectation of its own: that is what its tolerance
    holds against, as ever, and rounding must explain the error against float64.

    expected: output -> its statistics against the test's expectation (gonogo.judging.closeness.numbers),
    which take the place of those against the float64 reference; a few of these stay as
    `against_float64`. is_within: output -> whether the test's gate holds. Returns the parts of a
    gonogo.public.recorded.Comparison; raises as `judge_here`.
    """
    test, judgement, given, outputs = _judged(test_fields, arrays, raw, arithmetic)
    statistics: dict[str, Any] = {}
    for name, each in judgement.outputs.items():
        own = {
            key: value
            for key, value in expected[name].items()
            if key not in ("count", "worst_index", "nonfinite", "nonfinite_kinds")
        }
        kept = {key: each.statistics.get(key) for key in KEPT}
        statistics[name] = {**each.statistics, **own, "against_float64": kept}
    green = all(is_within.values())
    said = verdict(green, judgement.explanation)
    words = (
        ""
        if said is Verdict.pass_
        else _words(test, replace(judgement, verdict=said), given, outputs)
    )
    return _recorded(test, judgement, said, green, statistics) | {"words": words}


def _judged(
    test_fields: Mapping[str, Any], arrays: Arrays, raw: Arrays, arithmetic: str | None
) -> tuple[TestSpec, SeedJudgement, Tensors, Tensors]:
    test = TestSpec.parse(test_fields)
    if arithmetic is not None:
        reading.choice(arithmetic, ARITHMETICS, "arithmetic")
    outputs = {name: shaped(test, name, arrays[name]) for name in test.outputs if name in arrays}
    loose, given = given_inputs(
        test, {name: array for name, array in arrays.items() if name not in outputs}, raw
    )
    if not outputs:
        raise JobError(f"there is no output to judge: give some of {', '.join(test.outputs)}")
    return (
        test,
        judge(test, loose, given, outputs, arithmetic=arithmetic, produced=tuple(outputs)),
        given,
        outputs,
    )


def _recorded(
    test: TestSpec,
    judgement: SeedJudgement,
    said: Verdict,
    green: bool,
    statistics: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "verdict": said.value,
        "explanation": judgement.explanation.value,
        "within": green,
        "spec": test.canonical(),
        "outputs": {name: dict(each) for name, each in statistics.items()},
    }


def _words(test: TestSpec, judgement: SeedJudgement, given: Tensors, outputs: Tensors) -> str:
    """The message: verdict, its sentence, the numbers of every output that isn't a pass, and the
    diagnosis.
    """
    lines = [
        f"{test.kernel} {list(test.shape)}: {judgement.verdict.value} (budget of {judgement.arithmetic}). {judgement.verdict.sentence}"
    ]
    for name, output in judgement.outputs.items():
        if output.verdict is not Verdict.pass_:
            numbers = [
                f"{key} {value:.3g}"
                for key in SHOWN
                if isinstance(value := output.statistics.get(key), float)
            ]
            lines.append(
                f"  {name}: {output.verdict.value}, {output.explanation.value}; {', '.join(numbers)}"
            )
    if judgement.explanation is Explanation.unexplained:
        said = numerics(test).diagnose(test, given, outputs).words
        diagnosed = diagnoses.beside({"words": said}, judgement.explanation)["words"]
        if diagnosed:
            lines.append(f"  {diagnosed}")
    return "\n".join(lines)
