"""The judge of today: `judge` is the one function that another judge replaces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import gonogo
from benchmarks.corpus.run import Arrays, Label, Question


@dataclass(frozen=True)
class Answer:
    """The answer about one output.

    term: the term that is named first where the output isn't explained. limits: the faults that
    could not have shown in it.
    """

    explanation: str
    arithmetic: str
    term: str | None
    limits: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The answer about a run, and about each output.

    is_green: whether every output is within the tolerance. term: the first term over the outputs
    that the label names.
    """

    verdict: str
    explanation: str
    is_green: bool
    term: str | None
    outputs: Mapping[str, Answer]


def judge(question: Question, outputs: Arrays, changed: Sequence[str] = ()) -> Verdict:
    """Judge the outputs of a run with the installed product.

    changed: the outputs whose diagnosis counts as the run's; empty: all.
    """
    answer = ask(question, outputs)
    ratios = [statistics.get("tolerance_ratio") for statistics in answer.outputs.values()]
    is_silent = answer.explanation not in ("unexplained", "suspect")
    names = [name for name in changed if name in outputs] or list(outputs)
    return Verdict(
        answer.verdict,
        answer.explanation,
        all(ratio is not None and ratio <= 1 for ratio in ratios),
        None if is_silent else leading_term(diagnosis_lines(answer.words, names)),
        {
            name: Answer(
                statistics["explanation"],
                statistics.get("arithmetic") or answer.arithmetic,
                None if is_silent else leading_term(diagnosis_lines(answer.words, [name])),
                tuple(statistics.get("detection_limits", ())),
            )
            for name, statistics in answer.outputs.items()
        },
    )


def ask(question: Question, outputs: Arrays) -> gonogo.Judgment:
    """Return the product's own answer."""
    return gonogo.judge(
        kernel=question.kernel,
        inputs=question.inputs,
        outputs=outputs,
        tolerance=question.tolerance,
        epsilon=question.epsilon,
        numerics=question.numerics,
        arithmetic=question.arithmetic,
        parameters=question.parameters or None,
    )


def row_of(label: Label, verdict: Verdict) -> dict[str, Any]:
    """Return the columns of the table that a label and a verdict fill."""
    limits = {name: answer.limits for name, answer in verdict.outputs.items()}
    return {
        "verdict": verdict.verdict,
        "explanation": verdict.explanation,
        "green": verdict.is_green,
        "term": verdict.term,
        "listed": is_listed(label, limits),
        "outputs": {
            name: list(asdict(answer).values()) for name, answer in verdict.outputs.items()
        },
    }


NOT_A_TERM: Final = "not a term"
TERMS: Final[Mapping[str, str]] = {
    NOT_A_TERM: r"precision|not a term",
    "row": r"\bstale\b|\brepeats?\b|holds the values|missing from the sum|last row|row tile\b",
    "s1": r"\bs1\b",
    "s2": r"\bs2\b",
    "gamma": r"\bgamma\b",
    "beta": r"\bbeta\b",
    "epsilon": r"\bepsilon\b",
    "variance": r"\bvariance\b|\bmean square\b",
    "rstd": r"\brstd\b|factors? of (its|their) own",
    "mean": r"\bmean\b(?! square)",
    "groups": r"\bgroups?\b",
    "scale": r"times what it should be|common factor|\bscaled?\b",
}
"""Term -> a regular expression that finds it in a diagnosis."""
_NUMBERS = re.compile(
    r"^\s+\w+: ([A-Z][\w ]+, (un)?\w+; |couldn't have seen|take |other |all but [\d,]+ of )"
)
"""The lines of an output that aren't its diagnosis: numbers, limits, advice, other models."""


def diagnosis_lines(message: str, outputs: Sequence[str]) -> str:
    """Return what a diagnosis says of these outputs, or of all where it names no output."""
    lines = [line.strip() for line in message.splitlines()[1:] if not _NUMBERS.match(line)]
    named = [line for line in lines if line.split(":")[0] in outputs]
    return "; ".join(named or lines)


def leading_term(diagnosis: str) -> str | None:
    """Return the term that a diagnosis names first, or None where it names none."""
    if "cannot tell" in diagnosis and ";" not in diagnosis:
        return None
    places = {
        term: match.start()
        for term, pattern in TERMS.items()
        if (match := re.search(pattern, diagnosis)) is not None
    }
    return min(places, key=places.__getitem__) if places else None


FACTOR: Final = re.compile(r"a common factor below ([\d.]+) %")
FACTORS: Final = ("epsilon", "variance", "rstd", "scale")
"""The terms whose small edits multiply an output by nearly one factor."""
STEP: Final = "a step of rstd"
ROOM: Final = 1.01
"""A limit is written with one digit, and the size of an edit is a norm over rows."""


def is_listed(label: Label, limits: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the detection limits list the label's fault.

    They name its term, or in all outputs that it changes a common factor of its size.
    """
    phrases = [phrase for name in label.outputs for phrase in limits.get(name, ())]
    if any(phrase.split(" (")[0] == label.term for phrase in phrases):
        return True
    if label.term not in FACTORS:
        return False
    if STEP in phrases:
        return True
    return all(
        change <= ROOM * _largest_factor(limits.get(name, ()))
        for name, change in label.changes.items()
        if name in label.outputs and change > 0.0
    )


def _largest_factor(phrases: Sequence[str]) -> float:
    factors = [float(match[1]) / 100 for phrase in phrases if (match := FACTOR.fullmatch(phrase))]
    return max(factors, default=0.0)
