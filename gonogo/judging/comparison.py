"""Judge the arrays that a test already has, and say in words what is wrong with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import JobError
from gonogo.judging.judging import OutputJudgement, SeedJudgement, judge, stored_limits
from gonogo.judging.questions import Question, questions
from gonogo.judging.stored_tensors import given_inputs, shaped
from gonogo.judgment.limits import Limits, detection_limits
from gonogo.spec import arithmetic_words, diagnoses, tolerances
from gonogo.spec.arithmetic_names import canonical
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import AnyTolerance, Tolerance
from gonogo.spec.verdicts import Explanation, Verdict, seed_verdict, verdict, within

Arrays = Mapping[str, NDArray[Any]]
FLOAT64_STATISTICS = ("max_abs", "tolerance_ratio", "pcc_deficit", "rel_frobenius")
"""The statistics against float64 that are stored where a test has its own expectation."""
AGAINST_FLOAT64 = ("count", "worst_index", "nonfinite", "nonfinite_kinds")
"""The statistics against float64 that an expectation's don't replace."""
SHOWN = ("rounding_ratio", "tolerance_ratio", "max_abs")
BESIDE_SUSPECT = (
    "Red, and rounding explains what is outside the tolerance; another output is at the edge of"
    " what it explains: more seeds decide."
)
"""The sentence of a seed whose red outputs are explained, and a green one is suspect."""
WRONG_EXPECTATION = (
    "Red and right: rounding explains the error, but the values that the test expects are wrong."
)
"""The sentence of a red seed whose kernel is right, and whose expectation isn't."""


@dataclass(frozen=True)
class RunOutputs(ABC):
    """The outputs of one run of a kernel, and how they are judged."""

    title: str
    """The kernel and its shape"""
    spec: dict[str, Any] | None
    """The canonical test; None for a kernel that is a function"""
    outputs: Arrays
    tolerance: AnyTolerance

    @abstractmethod
    def judge_alone(self) -> SeedJudgement:
        """Return the judgment of the outputs, without limits. Raises KernelOutputError."""

    @property
    @abstractmethod
    def questions(self) -> list[Question]:
        """Return the questions about the outputs."""

    @abstractmethod
    def of_expected(self, outputs: Arrays, form: str) -> RunOutputs:
        """Return the case of the values that a test expects, from what tolerances compare with."""

    def tolerance_for(self, output: str) -> Tolerance | None:
        """Return the tolerance declared for an output; None if undeclared."""
        return tolerances.declared_for(self.tolerance, output)

    def is_within(self, output: str, statistics: Mapping[str, Any]) -> bool:
        """Return whether an output is within the test's tolerance."""
        return within(self.tolerance_for(output), statistics)

    def judge(self) -> SeedJudgement:
        """Return the judgment of the outputs; NaN and Inf are judged, not warned of.

        It has the detection limits of right outputs that are red, or that only an unknown order of
        operations explains. Raises KernelOutputError for a wrong shape.
        """
        with np.errstate(all="ignore"):
            judgement = self.judge_alone()
        for name, output in judgement.outputs.items():
            numbers = output.statistics
            if numbers.get("is_wide") or not self.is_within(name, numbers):
                limits = self.limits(name, output)
                numbers |= {} if limits is None else stored_limits(limits)
        return judgement

    def limits(self, name: str, output: OutputJudgement) -> Limits | None:
        """Compute an explained output's detection limits, in seconds; None for another."""
        if output.explanation is not Explanation.explained or output.answer is None:
            return None
        answer = output.answer
        question = next(one for one in self.questions if name in one.graphs[0].outputs)
        graph, form = question.every[answer.way], question.formats[name]
        with np.errstate(all="ignore"):
            return detection_limits(graph, question.inputs, name, form, answer.program)


@dataclass(frozen=True)
class TestCase(RunOutputs):
    """The outputs of a kernel with a test."""

    __test__ = False  # pytest: not a test case

    test: TestSpec
    raw: Arrays
    given: Arrays
    arithmetic: str | None

    def judge_alone(self) -> SeedJudgement:
        """Return the judgment of the outputs, without limits."""
        return judge(
            self.test,
            self.raw,
            self.given,
            self.outputs,
            arithmetic=self.arithmetic,
            produced=tuple(self.outputs),
            with_limits=False,
        )

    @property
    def questions(self) -> list[Question]:
        """Return the questions: by the declared arithmetic, then by any."""
        return questions(self.test, self.given, self.arithmetic)

    def of_expected(self, outputs: Arrays, form: str) -> TestCase:
        """Return the case of the values that a test expects, from what tolerances compare with."""
        numerics = self.test.numerics.replace(input="fp32", output=form)
        test = self.test.replace(numerics=numerics, tolerance={})
        values = {
            name: shaped(test, name, array.reshape(test.shape_of(name)))
            for name, array in outputs.items()
        }
        return replace(
            self, outputs=values, test=test, given=self.raw, arithmetic=None, tolerance={}
        )


@dataclass(frozen=True)
class Expectation:
    """The values that a test expects of an output."""

    values: NDArray[Any]
    """In the output's shape, or a number"""
    actual: NDArray[Any]
    """The output"""
    form: str | None
    """The format of the values; None where it isn't known"""
    numbers: Mapping[str, Any]
    """The output's statistics against them (gonogo.closeness.numbers)"""
    is_within: bool
    """Whether the test's gate holds"""


def case_of_test(
    test_fields: Mapping[str, Any], arrays: Arrays, raw: Arrays, arithmetic: str | None
) -> TestCase:
    """Return the case of a kernel by name.

    arrays: inputs and outputs in the test's shapes; the inputs are those that the kernel was given.
    raw: inputs before quantization, as gonogo.judging.stored_tensors.given_inputs takes them.
    Raises FieldError for an impossible test or tensor, and for inputs that the test's input format
    can't represent; JobError where one is missing.
    """
    test, declared = TestSpec.parse(test_fields), canonical(arithmetic)
    outputs = {name: shaped(test, name, arrays[name]) for name in test.outputs if name in arrays}
    inputs = {name: array for name, array in arrays.items() if name not in outputs}
    loose, given = given_inputs(test, inputs, raw)
    if not outputs:
        raise JobError(f"there is no output to judge: give some of {', '.join(test.outputs)}")
    title = f"{test.kernel} {list(test.shape)}"
    return TestCase(title, test.canonical(), outputs, test.tolerance, test, loose, given, declared)


def record_of(case: RunOutputs, judgement: SeedJudgement) -> dict[str, Any]:
    """Return the parts of a gonogo.public.recorded.Comparison."""
    outputs = {name: output.to_json() for name, output in judgement.outputs.items()}
    return {
        "verdict": judgement.verdict.value,
        "explanation": judgement.explanation.value,
        "within": all(case.is_within(name, entry) for name, entry in outputs.items()),
        "spec": case.spec,
        "outputs": outputs,
        "words": message(case.title, judgement),
    }


def judge_against(case: RunOutputs, expected: Mapping[str, Expectation]) -> dict[str, Any]:
    """Judge outputs that a test compared with its own expectation.

    The test's tolerance holds against that expectation. Rounding must explain the error against
    float64. Where a right kernel is red against the expectation alone, that is judged, too.

    Returns the parts of a gonogo.public.recorded.Comparison. Raises as `judge` does.
    """
    alone = case.judge()
    outputs = {}
    for name, output in alone.outputs.items():
        expectation, numbers = expected[name], output.statistics
        own_numbers = {
            key: value for key, value in expectation.numbers.items() if key not in AGAINST_FLOAT64
        }
        float64 = {key: numbers.get(key) for key in FLOAT64_STATISTICS}
        outputs[name] = OutputJudgement(
            verdict(expectation.is_within, output.explanation),
            output.explanation,
            {**numbers, **own_numbers, "against_float64": float64},
            output.answer,
        )
    answers = [(expected[name].is_within, one.explanation) for name, one in outputs.items()]
    wrong = _wrong_expectations(case, alone, expected)
    for name in wrong:  # another tolerance is no remedy
        for advice in ("advice", "red_rate"):
            outputs[name].statistics.pop(advice, None)
    compared = replace(alone, verdict=seed_verdict(answers), outputs=outputs)
    is_expectation = bool(wrong) and compared.verdict is Verdict.fail_by_tolerance
    words = message(case.title, compared, WRONG_EXPECTATION if is_expectation else "")
    if compared.verdict is Verdict.pass_:
        words = ""
    parts = record_of(case, compared)
    parts["within"] = all(one.is_within for one in expected.values())
    parts["words"] = "\n".join(
        [words, *(f"  {name}: {sentence}" for name, sentence in wrong.items())]
    )
    return parts


def _wrong_expectations(
    case: RunOutputs, alone: SeedJudgement, expected: Mapping[str, Expectation]
) -> dict[str, str]:
    """Return the expectations that make a right output red, each with what is wrong with it."""
    sentences = {}
    for name, expectation in expected.items():
        output = alone.outputs[name]
        is_right = output.explanation is Explanation.explained
        if expectation.is_within or not is_right or not case.is_within(name, output.statistics):
            continue
        values = np.broadcast_to(expectation.values, np.shape(expectation.actual))
        form = "fp32" if expectation.form in (None, "fp64") else str(expectation.form)
        entry = case.of_expected({name: values}, form).judge().outputs[name].to_json()
        if entry["explanation"] == Explanation.unexplained:
            sentences[name] = (
                f"the expected values are off from float64: {diagnoses.sentence_of(entry)}"
            )
    return sentences


def message(title: str, judgement: SeedJudgement, sentence: str = "") -> str:
    """Return the lines for people: the verdict, and what is known of each output.

    sentence: in the place of the verdict's own.
    """
    is_open = (
        judgement.verdict is Verdict.fail_by_tolerance
        and judgement.explanation is Explanation.suspect
    )
    sentence = sentence or (BESIDE_SUSPECT if is_open else judgement.verdict.sentence)
    lines = [f"{title}: {judgement.verdict.label} (arithmetic: {judgement.arithmetic}). {sentence}"]
    for name, output in judgement.outputs.items():
        entry, phrases = output.to_json(), []
        if output.verdict is not Verdict.pass_:
            numbers = [
                f"{key} {value:.3g}" for key in SHOWN if isinstance(value := entry.get(key), float)
            ]
            phrases.append(
                f"{output.verdict.label}, {output.explanation.value}; {', '.join(numbers)}"
            )
        phrases += [
            diagnoses.sentence_of(entry),
            entry.get("advice") or "",
            arithmetic_words.unseen(entry.get("detection_limits") or ()),
        ]
        lines += [f"  {name}: {part}" for part in phrases if part]
    return "\n".join(lines)


def settled_words(words: str, settled: Verdict, together: Mapping[str, str]) -> str:
    """Return the message of a seed where all seeds of its test, together, are wrong.

    together: output -> the sentence of gonogo.flakiness.suspects.unexplained_together.
    """
    first, *lines = words.split("\n")
    title = first.split(": ", 1)[0]  # a right seed has no message
    lines = [line.replace(f"{diagnoses.SO_FAR} ", "") for line in lines]
    head = f"{title}: " * bool(title) + f"{settled.label}. {settled.sentence}"
    return "\n".join([head, *lines, *(f"  {name}: {reason}" for name, reason in together.items())])
