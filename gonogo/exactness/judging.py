"""Judge outputs on exact inputs: their bits, and the fault that explains other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic import Inputs, Program, Replay
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.values import Array
from gonogo.exactness.elements import exact_elements
from gonogo.graph import Graph
from gonogo.judgment.candidates import of_output
from gonogo.judgment.cells import Cells
from gonogo.judgment.diagnosis import CERTAIN, Diagnosis, diagnose
from gonogo.judgment.fits import Candidate
from gonogo.spec.verdicts import Explanation

DIAGNOSED_WAYS = 3
"""Ways whose faults are tried: the others differ in details."""
SHARP = Program(order="updated")
"""The noise of what no inputs make exact: Welford's updates, and an operation's last bit."""
ROOM = 24.0
"""Deviations up to which other bits than the exact ones are rounding: few digits round alike in
each of Welford's updates, so that their errors add up."""


@dataclass(frozen=True)
class ExactJudgment:
    """The answer about an output."""

    explanation: Explanation
    """Explained, unexplained, or inconclusive: no element is exact."""
    judged: int
    """The exact elements"""
    unequal: int
    """The exact elements with other bits"""
    wrong: int
    """The elements that no right arithmetic gives, also among those that aren't exact"""
    message: str
    diagnosis: Diagnosis | None = None
    """The fault that removes most of the difference, else the places"""


def judge_exact(
    graphs: Sequence[Graph],
    inputs: Inputs,
    outputs: Mapping[str, Array],
    formats: Mapping[str, str],
    known: Sequence[Candidate] = (),
) -> dict[str, ExactJudgment]:
    """Return the answer about each output of a kernel, by name.

    Exact elements have the exact bits, or bits that fp32 gives with what no inputs make exact. The
    others may have 16-bit operations in any order, if the output has 16 bits.

    Args:
        graphs: the reference, then other ways to compute the same.
        inputs: what the kernel was given, by name; exact_inputs makes them.
        outputs: what it gave, by name.
        formats: the format of each output.
        known: arithmetics that are right though they round also these inputs, such as those of a
            Wormhole, whose registers hold fewer digits.

    Raises ValueError for an output of another shape than the reference's.
    """
    for name, values in outputs.items():
        if np.shape(values) != graphs[0].outputs[name].shape:
            expected = graphs[0].outputs[name].shape
            raise ValueError(
                f"output {name} has shape {np.shape(values)}, its reference {expected}"
            )
    return {
        name: _judged(graphs, inputs, name, np.asarray(values, np.float64), formats[name], known)
        for name, values in outputs.items()
    }


def _judged(
    graphs: Sequence[Graph],
    inputs: Inputs,
    name: str,
    values: Array,
    form: str,
    known: Sequence[Candidate],
) -> ExactJudgment:
    exact, mask = exact_elements(graphs[0], inputs, name)
    unequal = mask & (values != round_to(exact, form))
    judged, count = int(mask.sum()), int(unequal.sum())
    wrong = np.zeros_like(mask)
    for some, program in (
        (unequal, SHARP),
        (~mask, SHARP if form == "fp32" else Program(narrow=form)),
    ):
        if some.any():
            cells = Cells(values, Replay(graphs[0], inputs, program).run(name), form)
            wrong = wrong | (some & (cells.distance > ROOM))
    if wrong.any():
        for candidate in of_output(name, values.shape, known):
            replay = Replay(candidate.graph, inputs, candidate.program).run(name)
            wrong = wrong & Cells(values, replay, form, candidate.program.flush).outside
    if wrong.any():
        diagnosis = _diagnosis(graphs, inputs, name, values, form)
        off = int(wrong.sum())
        message = f"{off:,} of {values.size:,} values are wrong. {diagnosis.message}"
        return ExactJudgment(Explanation.unexplained, judged, count, off, message, diagnosis)
    if not judged:
        message = "No value is exact on these inputs."
        return ExactJudgment(Explanation.inconclusive, 0, 0, 0, message)
    message = f"All {judged:,} exact values have the exact bits."
    if count:
        message = f"{count:,} of {judged:,} exact values differ in last bits, as right kernels may."
    return ExactJudgment(Explanation.explained, judged, count, 0, message)


def _diagnosis(
    graphs: Sequence[Graph], inputs: Inputs, name: str, values: Array, form: str
) -> Diagnosis:
    """Return the answer of the first way that is certain, else of that which explains most."""
    answers: list[Diagnosis] = []
    for graph in graphs[:DIAGNOSED_WAYS]:
        quantity = Replay(graph, inputs, SHARP).run(name)
        answers.append(diagnose(graph, inputs, name, values, form, quantity))
        if answers[-1].share >= CERTAIN:
            return answers[-1]
    return max(answers, key=lambda answer: answer.share)
