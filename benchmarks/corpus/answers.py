"""Answers about a run, as the columns of the table of verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.corpus.run import Label


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


def leading_term(diagnosis: str) -> str | None:
    """Return the term that a diagnosis names first, or None where it names none."""
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
