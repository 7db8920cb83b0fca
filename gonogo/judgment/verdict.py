"""Judgments: the answer about each output of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gonogo.arithmetic import Inputs, Program
from gonogo.arithmetic.formats import Doubles
from gonogo.graph import Graph
from gonogo.judgment.advice import Advice, advised
from gonogo.judgment.common import Common
from gonogo.judgment.diagnosis import Diagnosis
from gonogo.judgment.fits import Candidate, Kernel, Output
from gonogo.judgment.limits import Limits, detection_limits
from gonogo.judgment.tolerance import Tolerance


class Explanation(StrEnum):
    """Whether rounding explains an output, from the best to the worst answer."""

    EXPLAINED = "explained"
    INCONCLUSIVE = "inconclusive"
    """Only what explains nearly anything does, or rounding has left nothing of the output."""
    SUSPECT = "suspect"
    """More seeds decide."""
    UNEXPLAINED = "unexplained"

    @property
    def rank(self) -> int:
        """Its place in the order from best to worst, from 0."""
        return list(Explanation).index(self)


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
    reason: str = ""
    diagnosis: Diagnosis | None = None

    @property
    def fault(self) -> str:
        """The id of the fault that explains most of the misfit; empty if none is named."""
        fault = self.diagnosis.fault if self.diagnosis else None
        return fault.id if fault else ""

    @property
    def message(self) -> str:
        """A line for people."""
        if self.explanation is Explanation.EXPLAINED and not self.reason:
            return f"Rounding explains it: {self.arithmetic}."
        sentence = self.diagnosis.message if self.diagnosis else ""
        reason = f"{self.reason[:1].upper()}{self.reason[1:]}." if self.reason else ""
        return " ".join(part for part in (reason, sentence) if part)


@dataclass(frozen=True)
class Judgment:
    """The answer about a kernel on one seed.

    Attributes:
        outputs: the answers by the names of the outputs.
        graphs, inputs, values, formats, tolerances: what was asked about; see judge.
    """

    outputs: Mapping[str, OutputJudgment]
    graphs: Sequence[Graph] = field(repr=False)
    inputs: Inputs = field(repr=False)
    values: Mapping[str, Doubles] = field(repr=False)
    formats: Mapping[str, str] = field(repr=False)
    tolerances: Mapping[str, Tolerance] = field(repr=False)

    @property
    def explanation(self) -> Explanation:
        """The worst answer of an output."""
        return max(
            (answer.explanation for answer in self.outputs.values()), key=lambda answer: answer.rank
        )

    def detection_limits(self, output: str) -> Limits:
        """Return what an output's explanation would hide. It takes longer than most judgments."""
        answer = self.outputs[output]
        graph, form = self.graphs[answer.way], self.formats[output]
        return detection_limits(graph, self.inputs, output, form, answer.program)

    def advice(self, output: str) -> Advice | None:
        """Return which tolerance the arithmetic that explains an output can meet.

        None where its test has none, and where rounding doesn't explain it.
        """
        answer, today = self.outputs[output], self.tolerances.get(output)
        if today is None or answer.explanation is not Explanation.EXPLAINED:
            return None
        graph, form = self.graphs[answer.way], self.formats[output]
        beside = Output(Kernel([graph], self.inputs), output, self.values[output], form)
        return advised(beside.fit(Candidate(graph, answer.program)), today)

    @property
    def message(self) -> str:
        """A line for each output; with the limits, where only an unknown order explains it."""
        lines = []
        for name, answer in self.outputs.items():
            is_loose = answer.program.is_unknown_order
            is_limited = is_loose and answer.explanation is Explanation.EXPLAINED
            limits = f" {self.detection_limits(name).message}" if is_limited else ""
            lines.append(f"{name}: {answer.message}{limits}")
        return "\n".join(lines)
