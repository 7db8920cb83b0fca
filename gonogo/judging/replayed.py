"""Replays of known-right kernels: whether a card computes as its program says.

A real card is not the emulator. Where a program doesn't replay a kernel that is known to be right,
the program is wrong, and would call every kernel of that card wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo import workloads
from gonogo.arithmetic import Evaluation, Program
from gonogo.graph import Graph
from gonogo.judging.judging import OutputJudgement, SeedJudgement, matrix, summed_up
from gonogo.judgment import judge as judge_values
from gonogo.judgment.cells import LIMIT
from gonogo.spec.verdicts import Explanation, has_nonfinite, verdict, within

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Replayed:
    """How an arithmetic replays the outputs of known-right kernels."""

    arithmetic: str
    elements: int
    """How many values the kernels gave"""
    equal: int
    """How many of them it replays to the bit"""
    distance: float
    """The largest distance of a value from its cell, in deviations"""

    @property
    def is_right(self) -> bool:
        """Whether the card computes as the arithmetic says, as far as rounding shows it."""
        return self.distance <= LIMIT

    @property
    def words(self) -> str:
        """A phrase about it."""
        share = f"{100 * self.equal / max(self.elements, 1):.4g} %"
        return (
            f"{self.arithmetic} replays {share} of {self.elements:,} values of known-right kernels"
            f" to the bit; the largest distance is {self.distance:.3g} of {LIMIT:g} deviations"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; a distance that isn't finite is null."""
        distance = self.distance if np.isfinite(self.distance) else None
        return {
            "arithmetic": self.arithmetic,
            "elements": self.elements,
            "equal": self.equal,
            "distance": distance,
            "is_right": self.is_right,
            "words": self.words,
        }


def replayed(test: TestSpec, given: Arrays, outputs: Arrays, arithmetic: str) -> Replayed:
    """Return how an arithmetic replays a known-right kernel's outputs, as far as it has them.

    Raises FieldError where the kernel has no such arithmetic.
    """
    inputs = workloads.shaped(test, given)
    replays = [
        _replayed(test, outputs, inputs, arithmetic, *one)
        for one in workloads.declared(test, arithmetic)
    ]
    return min(replays, key=lambda one: (one.distance, -one.equal))


def _replayed(
    test: TestSpec, outputs: Arrays, inputs: Arrays, arithmetic: str, graph: Graph, program: Program
) -> Replayed:
    values = {
        name: matrix(test, name, outputs).reshape(graph.outputs[name].shape)
        for name in outputs
        if name in graph.outputs
    }
    forms = dict.fromkeys(values, test.numerics.output)
    arguments = [graph], inputs, values, forms
    answers = judge_values(*arguments, programs=[program], with_faults=False).outputs
    evaluation = Evaluation(graph, inputs, program).run(*values)
    equal = sum(
        int(np.count_nonzero(array == evaluation.output(name))) for name, array in values.items()
    )
    return Replayed(
        arithmetic,
        sum(array.size for array in values.values()),
        equal,
        max((answer.distance for answer in answers.values()), default=0.0),
    )


def together(parts: Iterable[Replayed]) -> Replayed:
    """Return the replay of several kernels by one arithmetic."""
    every = list(parts)
    return Replayed(
        every[0].arithmetic,
        sum(part.elements for part in every),
        sum(part.equal for part in every),
        max(part.distance for part in every),
    )


def closest(replays: Iterable[Replayed]) -> Replayed | None:
    """Return the arithmetic that comes closest; None where there is none."""
    return min(replays, key=lambda one: (one.distance, -one.equal), default=None)


def undecided(test: TestSpec, judged: SeedJudgement, reason: str) -> SeedJudgement:
    """Return a seed's judgment whose wrong outputs are inconclusive for a reason.

    NaN and Inf where the reference has none are no question of arithmetic, and stay.
    """
    wrong = (Explanation.unexplained, Explanation.suspect)
    outputs = {
        name: _inconclusive(test, name, output, reason)
        if output.explanation in wrong and not has_nonfinite(output.statistics)
        else output
        for name, output in judged.outputs.items()
    }
    counted = {name: outputs[name] for name in outputs if name in test.outputs}
    seed = summed_up(counted, test.tolerance_for)
    return replace(judged, verdict=seed.verdict, explanation=seed.explanation, outputs=outputs)


def _inconclusive(
    test: TestSpec, name: str, output: OutputJudgement, reason: str
) -> OutputJudgement:
    statistics = {
        key: value
        for key, value in output.statistics.items()
        if key not in ("fault", "fault_share", "faults")
    }
    explanation = Explanation.inconclusive
    is_within = within(test.tolerance_for(name), statistics)
    return replace(
        output,
        verdict=verdict(is_within, explanation),
        explanation=explanation,
        statistics=statistics | {"reason": reason},
    )
