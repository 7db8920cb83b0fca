"""Counts of green and red outcomes of tests that exist already.

They show the part of a selection that its verdict can't show without arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gonogo.reports.outcomes import Outcome

RED = frozenset({Outcome.error, Outcome.crash, Outcome.hang, Outcome.failed})
WORST_FIRST = tuple(Outcome)


@dataclass(frozen=True)
class OutcomeCount:
    """The number of iterations of a test with an outcome; `red` ones are never fine."""

    outcome: str
    count: int
    red: bool


def outcomes(counts: Mapping[str, int]) -> tuple[OutcomeCount, ...]:
    """Return the outcome counts, worst first."""
    named = sorted(
        counts, key=lambda word: (WORST_FIRST.index(word) if word in WORST_FIRST else 0, word)
    )
    return tuple(OutcomeCount(word, counts[word], word in RED) for word in named if counts[word])
