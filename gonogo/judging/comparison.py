"""Judge the arrays that a test already has, and say in words what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from gonogo.errors import JobError
from gonogo.judging.judging import OutputJudgement, SeedJudgement, judge
from gonogo.judging.stored_tensors import Tensors, given_inputs, shaped
from gonogo.kernels.registry import numerics
from gonogo.spec import arithmetic_words, diagnoses, missed_rows
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict, seed_verdict, verdict, within

Arrays = Mapping[str, NDArray[Any]]

HARMLESS = frozenset({Verdict.suspect, Verdict.inconclusive})
"""Verdicts that mean neither right nor wrong: one run warns of them and fails nothing."""
BESIDE_SUSPECT = (
    "Red, and rounding explains what is outside the tolerance; another output is at the edge of"
    " what it explains: more seeds decide."
)
"""The sentence of a seed whose red outputs are explained, and a green one is suspect."""
ALL_LEFT_OUT = "every row was left out: rounding hides the variance of its x"
"""The reason of an output of which no row was compared with its budget."""
FLOAT64_STATISTICS = ("max_abs", "tolerance_ratio", "pcc_deficit", "rel_frobenius")
"""The statistics against float64 that are stored where a test has its own expectation."""
SHOWN = ("cell_max", "budget_ratio", "chi", "row_z", "max_abs", "tolerance_ratio")


def judge_here(
    test_fields: Mapping[str, Any], arrays: Arrays, raw: Arrays, arithmetic: str | None = None
) -> tuple[SeedJudgement, str | None, bool, dict[str, Any]]:
    """Return the judgment, its words, whether it fails a test, and the record of it.

    The words are None for a pass. arrays: inputs and outputs in the test's shapes; the inputs are
    those that the kernel was given. raw: inputs before quantization, as
    gonogo.judging.stored_tensors.given_inputs takes them. Raises FieldError for an impossible test,
    tensor or arithmetic model, and for inputs that the test's input format can't represent;
    JobError where one is missing.
    """
    test, judgement, given, outputs = _judged(test_fields, arrays, raw, arithmetic)
    is_within = all(
        within(test.tolerance_for(name), output.statistics)
        for name, output in judgement.outputs.items()
    )
    words = None if judgement.verdict is Verdict.pass_ else _words(test, judgement, given, outputs)
    record = _recorded(
        test,
        judgement,
        judgement.verdict,
        is_within,
        {name: output.statistics for name, output in judgement.outputs.items()},
    )
    return (
        judgement,
        words,
        judgement.verdict not in HARMLESS and words is not None,
        record | {"words": words or ""},
    )


def pass_words(judgement: SeedJudgement, spec: Mapping[str, Any]) -> str:
    """Return the message of a pass: what passed, and what could not have shown in it."""
    lines = [
        f"{spec['kernel']} {list(spec['shape'])}: {judgement.verdict.label} "
        f"(arithmetic: {judgement.arithmetic}). {judgement.verdict.sentence}"
    ]
    for name, output in judgement.outputs.items():
        if limits := output.statistics.get("detection_limits"):
            lines.append(f"  {name}: {arithmetic_words.unseen(limits)}")
    return "\n".join(lines)


def settled_words(message: str, settled: Verdict, together: Mapping[str, str]) -> str:
    """Return the message of a suspect seed where all seeds of its test, together, are wrong.

    together: output -> the sentence of gonogo.flakiness.suspects.unexplained_together.
    """
    for alone in (Verdict.suspect, Verdict.fail_by_tolerance, Verdict.inconclusive):
        message = message.replace(f": {alone.label} (", f": {settled.label} (", 1)
        message = message.replace(alone.sentence, settled.sentence, 1)
    message = message.replace(BESIDE_SUSPECT, settled.sentence, 1)
    outputs = {Verdict.suspect: Verdict.pass_by_tolerance, Verdict.fail: Verdict.fail}
    for name in together:
        for before, after in outputs.items():
            message = message.replace(
                f"  {name}: {before.label}, {Explanation.suspect.value};",
                f"  {name}: {after.label}, {Explanation.unexplained.value};",
            )
        message = message.replace(f"  {name}: {diagnoses.SO_FAR} ", f"  {name}: ")
    return "\n".join([message, *(f"  {name}: {words}" for name, words in together.items())])


def judge_against(
    test_fields: Mapping[str, Any],
    arrays: Arrays,
    raw: Arrays,
    arithmetic: str | None,
    expected: Mapping[str, Mapping[str, Any]],
    is_within: Mapping[str, bool],
) -> dict[str, Any]:
    """Judge outputs that a test compared with its own expectation.

    The test's tolerance holds against that expectation. Rounding must explain the error against
    float64.

    expected: output -> its statistics against the test's expectation
    (gonogo.judging.closeness.numbers), which replace those against the float64 reference; a few of
    these stay as `against_float64`. is_within: output -> whether the test's gate holds. Returns the
    parts of a gonogo.public.recorded.Comparison. Raises as `judge_here` does.
    """
    test, judgement, given, outputs = _judged(test_fields, arrays, raw, arithmetic)
    statistics: dict[str, Any] = {}
    for name, output in judgement.outputs.items():
        against_expectation = {
            key: value
            for key, value in expected[name].items()
            if key not in ("count", "worst_index", "nonfinite", "nonfinite_kinds")
        }
        against_float64 = {key: output.statistics.get(key) for key in FLOAT64_STATISTICS}
        statistics[name] = {
            **output.statistics,
            **against_expectation,
            "against_float64": against_float64,
        }
    green = all(is_within.values())
    final_verdict = seed_verdict(
        (is_within[name], output.explanation) for name, output in judgement.outputs.items()
    )
    compared = replace(
        judgement,
        verdict=final_verdict,
        outputs={
            name: OutputJudgement(
                verdict(is_within[name], output.explanation), output.explanation, statistics[name]
            )
            for name, output in judgement.outputs.items()
        },
    )
    words = "" if final_verdict is Verdict.pass_ else _words(test, compared, given, outputs)
    return _recorded(test, judgement, final_verdict, green, statistics) | {"words": words}


def _judged(
    test_fields: Mapping[str, Any], arrays: Arrays, raw: Arrays, arithmetic: str | None
) -> tuple[TestSpec, SeedJudgement, Tensors, Tensors]:
    test = TestSpec.parse(test_fields)
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
    final_verdict: Verdict,
    green: bool,
    statistics: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "verdict": final_verdict.value,
        "explanation": judgement.explanation.value,
        "within": green,
        "spec": test.canonical(),
        "outputs": {name: dict(values) for name, values in statistics.items()},
    }


def _words(test: TestSpec, judgement: SeedJudgement, given: Tensors, outputs: Tensors) -> str:
    """Return the message of a verdict.

    It holds the verdict, its sentence, the numbers of every output that doesn't pass, and the
    diagnosis.
    """
    is_right = judgement.verdict is Verdict.fail_by_tolerance
    is_open = is_right and judgement.explanation is Explanation.suspect
    lines = [
        f"{test.kernel} {list(test.shape)}: {judgement.verdict.label} "
        f"(arithmetic: {judgement.arithmetic}). "
        f"{BESIDE_SUSPECT if is_open else judgement.verdict.sentence}"
    ]
    for name, output in judgement.outputs.items():
        if output.verdict is not Verdict.pass_:
            numbers = [
                f"{key} {value:.3g}"
                for key in SHOWN
                if isinstance(value := output.statistics.get(key), float)
            ]
            lines.append(
                f"  {name}: {output.verdict.label}, {output.explanation.value}; "
                f"{', '.join(numbers)}"
            )
        if (
            output.explanation is Explanation.inconclusive
            and "unseen_terms" not in output.statistics
        ):
            lines.append(f"  {name}: {ALL_LEFT_OUT}")
        if "reproduced_by" in output.statistics:
            named = arithmetic_words.unnamed(output.statistics["reproduced_by"])
            lines.append(f"  {name}: {named}")
        if others := output.statistics.get(arithmetic_words.OTHERS):
            lines.append(f"  {name}: {arithmetic_words.also(others)}")
        missed = missed_rows.pooled([output.statistics])
        if missed is not None and missed.words:
            lines.append(f"  {name}: {missed.words}")
        if "advice" in output.statistics:
            lines.append(f"  {name}: {output.statistics['advice']}")
        if limits := output.statistics.get("detection_limits"):
            lines.append(f"  {name}: {arithmetic_words.unseen(limits)}")
    statistics = {name: output.statistics for name, output in judgement.outputs.items()}
    shown = diagnoses.faults(statistics)
    for name, words in shown.items():
        if judgement.outputs[name].explanation is Explanation.suspect:
            lines.append(f"  {name}: {diagnoses.SO_FAR} {words}")
        elif judgement.explanation is Explanation.unexplained:
            lines.append(f"  {name}: {words}")
    if judgement.explanation is Explanation.unexplained:
        diagnosis = diagnoses.without_precision(
            numerics(test).diagnose(test, given, outputs).to_json(), statistics
        )
        if not shown or diagnoses.adds(diagnosis["terms"], shown):
            diagnosed = diagnoses.consistent_diagnosis(diagnosis, judgement.explanation)
            lines.append(f"  {diagnosed['words']}")
    return "\n".join(lines)
