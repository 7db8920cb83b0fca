"""Judge one run of one seed: every output is explained, and held against its tolerance."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.closeness import storable
from gonogo.errors import KernelOutputError
from gonogo.exactness import ExactJudgment, judge_exact
from gonogo.judging.questions import Question, ToleranceFor, questions, reference_digest
from gonogo.judgment import Judgment
from gonogo.judgment import OutputJudgment as Answer
from gonogo.judgment import judge as judge_values
from gonogo.judgment.limits import Limits
from gonogo.judgment.statistics import statistics_of
from gonogo.judgment.tolerance import allclose_of
from gonogo.spec.compared_outputs import ExactComparison
from gonogo.spec.tolerances import Tolerance as DeclaredTolerance
from gonogo.spec.verdicts import (
    JUDGE,
    Explanation,
    Verdict,
    seed_verdict,
    verdict,
    within,
    worst_explanation,
)
from gonogo.workloads import exact_outputs

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
Statistics = dict[str, Any]
NEARLY_RED = 0.5
"""The part of a tolerance from which a right output's error gets advice on it."""
WORKLOADS = 256
"""Detection limits that stay: they depend on inputs and arithmetic only as far as regimes do."""
_limits: OrderedDict[tuple[str, ...], Limits] = OrderedDict()


@dataclass(frozen=True)
class OutputJudgement:
    """The judgment of one output, with the numbers behind it (JSON-ready).

    answer: what the judge says of it; None where it wasn't judged.
    """

    verdict: Verdict
    explanation: Explanation
    statistics: Statistics
    answer: Answer | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the output's entry of a result: the statistics stand beside the verdict."""
        answer = {"verdict": self.verdict.value, "explanation": self.explanation.value}
        return answer | self.statistics


@dataclass(frozen=True)
class SeedJudgement:
    """The judgment of one seed: `seed_verdict` and `worst_explanation` of its outputs.

    judge: the version of the judge, and the beginning of its reference's hash.
    """

    verdict: Verdict
    explanation: Explanation
    outputs: Mapping[str, OutputJudgement]
    arithmetic: str
    judge: str = JUDGE

    def to_json(self) -> dict[str, Any]:
        """Return the part of a result row that numbers decide: each output is as it says itself."""
        return {
            "verdict": self.verdict.value,
            "explanation": self.explanation.value,
            "arithmetic": self.arithmetic,
            "judge": self.judge,
            "outputs": {name: output.to_json() for name, output in self.outputs.items()},
        }


def judge(
    test: TestSpec,
    raw: Arrays,
    given: Arrays,
    outputs: Arrays,
    *,
    arithmetic: str | None,
    produced: tuple[str, ...] | None = None,
    on_wormhole: bool = False,
    with_limits: bool = True,
    with_faults: bool = True,
) -> SeedJudgement:
    """Judge a kernel's outputs for `given`. NaN and Inf are judged, not refused.

    Args:
        test: the test.
        raw: the inputs before they were rounded to their formats (2-D x and dy).
        given: what the device was given, as gonogo.judging.inputs makes it.
        outputs: the kernel's, in the test's shapes or flattened to rows.
        arithmetic: the declared arithmetic (gonogo.spec.arithmetic_names); None: it is found for
            each output.
        produced: the outputs that the build declares (None: all of them); no other is missed.
        on_wormhole: whether the kernel ran on a card, or on a simulated one.
        with_limits: whether to say what right outputs could hide, once per workload: it takes
            longer than the rest.
        with_faults: whether to name the fault of what a declared arithmetic doesn't explain.

    Raises:
        FieldError: the kernel has no such arithmetic.
        KernelOutputError: an output is missing, or has a wrong shape or type.
    """
    names = [name for name in test.outputs if produced is None or name in produced]
    judged = judged_outputs(
        questions(test, given, arithmetic, on_wormhole=on_wormhole),
        {name: matrix(test, name, outputs) for name in names},
        exact_outputs(test, raw),
        exact_outputs(test, given),
        test.tolerance_for,
        test.shape_of,
        with_bits=test.inputs.exact,
        limits_of=partial(_detection_limits, test) if with_limits else None,
        with_faults=with_faults,
    )
    downstream = [name for name in test.downstream if produced is not None and name in produced]
    seed = summed_up(judged, test.tolerance_for, f"{JUDGE}:{reference_digest(test)}")
    others = {name: _not_judged(test, name, outputs) for name in downstream}
    return replace(seed, outputs={**seed.outputs, **others})


def summed_up(
    outputs: Mapping[str, OutputJudgement], tolerance_for: ToleranceFor, judge: str = JUDGE
) -> SeedJudgement:
    """Return the judgment of a seed from those of its outputs."""
    answers = [
        (within(tolerance_for(name), one.statistics), one.explanation)
        for name, one in outputs.items()
    ]
    arithmetics = dict.fromkeys(str(one.statistics["arithmetic"]) for one in outputs.values())
    explanation = worst_explanation(one for _, one in answers)
    return SeedJudgement(seed_verdict(answers), explanation, outputs, "; ".join(arithmetics), judge)


def judged_outputs(
    questions: Sequence[Question],
    outputs: Arrays,
    right: Arrays,
    quantized: Arrays,
    tolerance_for: ToleranceFor,
    shape_of: Callable[[str], Sequence[int]],
    *,
    with_bits: bool = False,
    limits_of: Callable[[Judgment, str], Limits] | None = None,
    with_faults: bool = True,
) -> dict[str, OutputJudgement]:
    """Return the judgment of each output, by the first question whose graphs have it.

    Args:
        questions: the declared arithmetic's, then that about any.
        outputs: what the kernel gave, in any shape.
        right: the exact function of the data: tolerances are measured from it.
        quantized: that of what the kernel was given, in the same shapes.
        tolerance_for: the test's tolerances.
        shape_of: the shapes of which digests speak.
        with_bits: whether the inputs are exact.
        limits_of: the detection limits, which a right output has.
        with_faults: whether to name the fault of what a declared arithmetic doesn't explain.
    """
    judged: dict[str, OutputJudgement] = {}
    for question in questions:
        known = question.graphs[0].outputs
        some, expected = (
            {
                name: arrays[name].reshape(known[name].shape)
                for name in outputs
                if name in known and name not in judged
            }
            for arrays in (outputs, right)
        )
        if not some:
            continue
        forms = {name: question.formats[name] for name in some}
        judgment = judge_values(
            question.graphs,
            question.inputs,
            some,
            forms,
            question.narrow,
            question.declared,
            question.known,
            question.tolerances,
            expected,
            with_faults=with_faults,
        )
        bits: Mapping[str, ExactJudgment] = {}
        if with_bits:
            every = *question.declared, *question.known
            bits = judge_exact(question.graphs, question.inputs, some, forms, every)
        for name in some:
            tolerance, shape = tolerance_for(name), shape_of(name)
            limits = None if limits_of is None else partial(limits_of, judgment, name)
            pair = right[name], quantized[name]
            judged[name] = _judged(judgment, name, *pair, tolerance, shape, bits.get(name), limits)
    return {name: judged[name] for name in outputs}


def _judged(
    judgment: Judgment,
    name: str,
    right: NDArray[Any],
    quantized: NDArray[Any],
    tolerance: DeclaredTolerance | None,
    shape: Sequence[int],
    exact: ExactJudgment | None = None,
    limits: Callable[[], Limits] | None = None,
) -> OutputJudgement:
    """Return the judgment of one output from the answers about the kernel."""
    answer, form = judgment.outputs[name], judgment.formats[name]
    values = judgment.values[name].reshape(right.shape)
    outside = answer.outside.reshape(right.shape)
    allclose = allclose_of(tolerance)
    numbers: Statistics = asdict(statistics_of(values, right, quantized, form, outside, allclose))
    numbers |= {"worst_index": _worst(values, quantized, outside), **_nonfinite(values, right)}
    numbers |= {"digest": digest(values, shape), **answer.entry()}
    explanation = Explanation(numbers.pop("explanation"))
    if exact is not None:
        explanation = _with_exact(numbers, explanation, exact)
    stored = storable(numbers)
    is_within = within(tolerance, stored)
    if explanation is Explanation.explained:
        if limits is not None:
            stored |= stored_limits(limits())
        if not is_within and allclose is None and judgment.detection_limits(name).has_fault:
            explanation = Explanation.inconclusive
            stored["reason"] = "the test may fail for another reason than rounding"
        advice = None
        if allclose is not None and (numbers["tolerance_ratio"] or 0.0) > NEARLY_RED:
            advice = judgment.advice(name)
        if advice is not None:
            stored |= {"red_rate": advice.red_rate, "advice": advice.message}
    return OutputJudgement(verdict(is_within, explanation), explanation, stored, answer)


def _with_exact(numbers: Statistics, explanation: Explanation, exact: ExactJudgment) -> Explanation:
    """Add what exact inputs show of an output, and return its explanation: bits decide."""
    diagnosis = exact.diagnosis
    fault = None if diagnosis is None or diagnosis.fault is None else diagnosis.fault.id
    numbers["exact"] = asdict(
        ExactComparison(
            exact.judged,
            exact.unequal,
            exact.wrong,
            exact.explanation,
            exact.message,
            fault,
            None if diagnosis is None else diagnosis.share,
        )
    )
    if exact.explanation is not Explanation.unexplained or diagnosis is None:
        return explanation
    numbers["places"] = numbers.get("places") or diagnosis.places.sentence
    if diagnosis.fault is not None and not numbers.get("fault"):
        numbers |= {"fault": diagnosis.message.rstrip("."), "fault_share": diagnosis.share}
    return Explanation.unexplained


def stored_limits(limits: Limits) -> Statistics:
    """Return the statistics that say what an output's explanation would hide."""
    return {
        "detection_limits": limits.phrases,
        "hides_fault": limits.has_fault,
        "least_factor": limits.factor,
    }


def _detection_limits(test: TestSpec, judgment: Judgment, name: str) -> Limits:
    """Return the detection limits of an output, which are computed once per workload."""
    answer = judgment.outputs[name]
    key = test.workload_key, name, answer.arithmetic, str(answer.way)
    if key not in _limits:
        _limits[key] = judgment.detection_limits(name)
        if len(_limits) > WORKLOADS:
            _limits.popitem(last=False)
    return _limits[key]


def exact_words(judged: SeedJudgement) -> str | None:
    """Return a line on the wrong outputs of exact inputs; None where all are right."""
    readings = {name: output.statistics.get("exact") for name, output in judged.outputs.items()}
    wrong = [
        f"{name}: {reading['words']}"
        for name, reading in readings.items()
        if reading and reading["mismatches"]
    ]
    return "; ".join(wrong) or None


def _not_judged(test: TestSpec, name: str, outputs: Arrays) -> OutputJudgement:
    """Return the judgment of a downstream output, which counts for nothing."""
    value = matrix(test, name, outputs)
    numbers: Statistics = {
        "count": int(value.size),
        "digest": digest(value, test.shape_of(name)),
        "nonfinite": int(np.count_nonzero(~np.isfinite(value))),
        **_nonfinite(value, np.zeros_like(value)),
    }
    return OutputJudgement(Verdict.not_judged, Explanation.not_judged, numbers)


def matrix(test: TestSpec, name: str, outputs: Arrays) -> NDArray[np.float32]:
    """Return the output as a C-contiguous float32 matrix.

    It is (rows, features) for outputs of the test's shape (y, dx), and one row for others.
    """
    if name not in outputs:
        raise KernelOutputError(
            f"output {name!r} is missing; the kernel gave {', '.join(sorted(outputs)) or 'nothing'}"
        )
    value = outputs[name]
    shape = test.shape_of(name)
    flat = test.matrix_shape_of(name)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        raise KernelOutputError(
            f"output {name!r} is {getattr(value, 'dtype', type(value).__name__)}, not a float array"
        )
    if value.shape not in (shape, flat, flat[-1:] if flat[0] == 1 else flat):
        raise KernelOutputError(f"output {name!r} has shape {list(value.shape)}, not {list(shape)}")
    return np.ascontiguousarray(value, dtype=np.float32).reshape(flat)


def digest(output: NDArray[Any], shape: Sequence[int]) -> str:
    """Return 16 hex digits: XXH3-64 over the shape and the float32 bytes.

    The shape is int64, the bytes are in C order and little-endian. All NaNs have one pattern; -0
    stays. It says whether two runs gave the same bits. It is no proof against people who want two
    outputs to look the same.
    """
    array = np.array(output, dtype="<f4", order="C")
    array[np.isnan(array)] = np.frombuffer(b"\x00\x00\xc0\x7f", dtype="<f4")[0]
    import xxhash  # not in the interpreters of builds, where the conformance suite runs

    hasher = xxhash.xxh3_64(np.asarray(shape, dtype="<i8").tobytes())
    hasher.update(array.reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def _worst(values: NDArray[Any], exact: NDArray[Any], outside: NDArray[np.bool_]) -> list[int]:
    """Return row and column of the first value that isn't finite, else of the worst one."""
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(values), np.abs(values - exact), np.inf)
    if outside.any():
        size = np.where(outside, size, -1.0)
    size = np.nan_to_num(size, nan=-1.0, posinf=np.inf)
    at = np.unravel_index(int(np.argmax(size)), size.shape)
    return [0, int(at[0])] if len(at) == 1 else [int(place) for place in at]


def _nonfinite(values: NDArray[Any], right: NDArray[Any]) -> Statistics:
    """Return which kinds of values aren't finite where they should be; {} where all are."""
    wrong = values[~np.isfinite(values) & np.isfinite(right)]
    kinds = {"nan": np.isnan(wrong), "+inf": wrong == np.inf, "-inf": wrong == -np.inf}
    counts = {kind: int(np.count_nonzero(mask)) for kind, mask in kinds.items() if mask.any()}
    return {"nonfinite_kinds": counts} if counts else {}
