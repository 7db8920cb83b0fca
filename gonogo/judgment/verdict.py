"""Judgments: the answer about each output of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gonogo.arithmetic import Program
from gonogo.judgment.common import Common
from gonogo.judgment.diagnosis import Diagnosis


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
    """The answer about a kernel on one seed, by the names of its outputs."""

    outputs: Mapping[str, OutputJudgment]

    @property
    def explanation(self) -> Explanation:
        """The worst answer of an output."""
        return max(
            (answer.explanation for answer in self.outputs.values()), key=lambda answer: answer.rank
        )

    @property
    def message(self) -> str:
        """A line for each output."""
        return "\n".join(f"{name}: {answer.message}" for name, answer in self.outputs.items())
