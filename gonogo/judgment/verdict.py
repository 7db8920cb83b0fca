"""Judgments: the answer about each output of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gonogo.arithmetic import Inputs, Program
from gonogo.arithmetic.formats import Doubles, unit_roundoff
from gonogo.graph import Graph
from gonogo.judgment.advice import Advice, advised
from gonogo.judgment.cells import Mask
from gonogo.judgment.common import MAX_COMMON, Common
from gonogo.judgment.diagnosis import Diagnosis
from gonogo.judgment.fits import Candidate, Output, TracedKernel
from gonogo.judgment.limits import Limits, detection_limits
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.compared_outputs import MOST, BestFault, CommonFactor
from gonogo.spec.verdicts import Explanation, worst_explanation

WIDE_SHARE = 1 / 4
"""The share of a format's unit up to which pooled factors stay rounding where only an unknown order
explains a seed: its roundings have biases that seeds share."""


@dataclass(frozen=True)
class OutputJudgment:
    """The answer about an output.

    Attributes:
        explanation: whether rounding explains it.
        arithmetic: how the kernel computes: what explains the output, else what is closest.
        program: the program of that arithmetic.
        way: the number of its graph; 0 is the reference.
        rounding_ratio: the largest error relative to what that arithmetic may have.
        distance: the largest distance of an element from its cell, in deviations.
        shared: the largest error that a group shares, in deviations.
        common: factors of all groups, at most 10 pairs of estimate and deviation.
        misfit: the sum by which explanations compete.
        outside: which of the values are no rounding.
        reason: why it isn't explained, or isn't certain; empty where it is.
        diagnosis: the fault that explains most of the misfit.
    """

    explanation: Explanation
    arithmetic: str
    program: Program
    way: int
    rounding_ratio: float
    distance: float
    shared: float
    common: tuple[Common, ...]
    misfit: float
    outside: Mask = field(repr=False, compare=False)
    reason: str = ""
    diagnosis: Diagnosis | None = None

    @property
    def fault(self) -> str:
        """The id of the fault that explains most of the misfit; empty if none is named."""
        fault = self.diagnosis.fault if self.diagnosis else None
        return fault.id if fault else ""

    @property
    def is_wide(self) -> bool:
        """Whether only 16-bit operations in an unknown order explain it."""
        return self.program.is_unknown_order and self.explanation is Explanation.explained

    def entry(self) -> dict[str, Any]:
        """Return the answer as it is stored beside an output's statistics."""
        narrow = self.program.narrow
        limit = max(MAX_COMMON, WIDE_SHARE * unit_roundoff(narrow)) if narrow else MAX_COMMON
        entry = {
            "explanation": self.explanation.value,
            "arithmetic": self.arithmetic,
            "is_wide": self.is_wide,
            "rounding_ratio": self.rounding_ratio,
            "distance": self.distance,
            "shared": self.shared,
            "common": [
                asdict(CommonFactor(one.key, one.estimate, one.deviation, one.is_certain, limit))
                for one in self.common
                if abs(one.estimate) < MOST and 1 / MOST < one.deviation < MOST
            ],
        }
        return entry if self.explanation is Explanation.explained else entry | self._problem()

    def _problem(self) -> dict[str, Any]:
        diagnosis = self.diagnosis
        problem: dict[str, Any] = {"reason": self.reason}
        if diagnosis is not None:
            best = [
                asdict(BestFault(one.fault.id, one.fault.label, one.size, max(one.share, 0.0)))
                for one in diagnosis.best
                if not one.is_refuted
            ]
            problem |= {"places": diagnosis.places.sentence, "faults": best}
            if diagnosis.fault is not None:
                problem |= {"fault": diagnosis.message.rstrip("."), "fault_share": diagnosis.share}
            elif diagnosis.message and diagnosis.message != diagnosis.places.sentence:
                problem["places"] = diagnosis.message
        return problem

    @property
    def message(self) -> str:
        """A line for people."""
        if self.explanation is Explanation.explained and not self.reason:
            return f"Rounding explains it: {self.arithmetic}."
        sentence = self.diagnosis.message if self.diagnosis else ""
        reason = f"{self.reason[:1].upper()}{self.reason[1:]}." if self.reason else ""
        return " ".join(part for part in (reason, sentence) if part)


@dataclass(frozen=True)
class Judgment:
    """The answer about a kernel on one seed.

    Attributes:
        outputs: the answers by the names of the outputs.
        graphs, inputs, values, formats, tolerances, expected: what was asked about; see judge.
    """

    outputs: Mapping[str, OutputJudgment]
    graphs: Sequence[Graph] = field(repr=False)
    inputs: Inputs = field(repr=False)
    values: Mapping[str, Doubles] = field(repr=False)
    formats: Mapping[str, str] = field(repr=False)
    tolerances: Mapping[str, Tolerance] = field(repr=False)
    expected: Mapping[str, Doubles] = field(repr=False)

    @property
    def explanation(self) -> Explanation:
        """The worst answer of an output."""
        return worst_explanation(answer.explanation for answer in self.outputs.values())

    def detection_limits(self, output: str) -> Limits:
        """Return an output's detection limits. It takes longer than most judgments."""
        answer = self.outputs[output]
        graph, form = self.graphs[answer.way], self.formats[output]
        return detection_limits(graph, self.inputs, output, form, answer.program)

    def advice(self, output: str) -> Advice | None:
        """Return which tolerance the arithmetic that explains an output can meet.

        None where its test has none, and where rounding doesn't explain it.
        """
        answer, today = self.outputs[output], self.tolerances.get(output)
        if today is None or answer.explanation is not Explanation.explained:
            return None
        graph, form = self.graphs[answer.way], self.formats[output]
        kernel, expected = TracedKernel([graph], self.inputs), self.expected.get(output)
        beside = Output(kernel, output, self.values[output], form, given=expected)
        return advised(beside, Candidate(graph, answer.program), today)

    @property
    def message(self) -> str:
        """A line for each output; with the limits, where only an unknown order explains it."""
        lines = []
        for name, answer in self.outputs.items():
            limits = f" {self.detection_limits(name).message}" if answer.is_wide else ""
            lines.append(f"{name}: {answer.message}{limits}")
        return "\n".join(lines)
