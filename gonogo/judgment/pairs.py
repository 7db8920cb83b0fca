"""Pairs: two builds on equal seeds. Which of them fails, and which way do their values differ?

A value flips where the two builds differ. If one build's values are 1 + d times the other's, all
flips point away from zero, or toward it. Sums in another order flip values both ways, but those of
a row alike: so the sign test counts rows. A value of an output with one axis is a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from gonogo.faults.changes import Array
from gonogo.judgment.verdict import Explanation, OutputJudgment

SIGN_LIMIT = 1e-4
"""The probability from which on flips point one way: 15 rows of 15. Right kernels with other orders
of sums stay above it in nearly all pairs."""


@dataclass(frozen=True)
class Flips:
    """Differences of one build's values from another's; those of several seeds add up.

    Attributes:
        elements: values that are finite in both builds.
        differing: those that differ.
        away, toward: those that are farther from zero than the other build's, and closer to it.
        rows_away, rows_toward: rows, by the majority of their flips.
    """

    elements: int
    differing: int
    away: int
    toward: int
    rows_away: int
    rows_toward: int


@dataclass(frozen=True)
class Pair:
    """An output of two builds on several seeds.

    Attributes:
        explanation, other: each build's own worst answer.
        worse: seeds on which this build is unexplained and the other one explained.
        better: those on which it is the other way around.
        flips: this build's, of all seeds.
        of_seeds, of_rows: the sign test's probability for those seeds, and for the flips' rows.
    """

    explanation: Explanation
    other: Explanation
    worse: int
    better: int
    flips: Flips
    of_seeds: float
    of_rows: float

    @property
    def message(self) -> str:
        """A line for people."""
        text = f"this build is {self.explanation}, the other {self.other}"
        if self.worse or self.better:
            text += f"; only this one fails on {self.worse} seeds, only the other on {self.better}"
            text += f" (sign test: {self.of_seeds:.2g})"
        flips, rows = self.flips, (self.flips.rows_away, self.flips.rows_toward)
        if not flips.differing:
            return f"{text}; no value differs"
        both = "both ways" if flips.away and flips.toward else "too few rows to tell"
        way = "one way" if self.of_rows <= SIGN_LIMIT else both
        sides = (flips.away, "away from"), (flips.toward, "toward")
        count, direction = sides[rows[1] > rows[0]]
        return (
            f"{text}; {way}: {count:,} of {flips.differing:,} flips point {direction} zero,"
            f" in {max(rows):,} of {sum(rows):,} rows (sign test: {self.of_rows:.2g})"
        )


def flips_of(values: Array, other: Array) -> Flips:
    """Return how an output of one build differs from another's on a seed, of the same shape."""
    width = values.shape[-1] if values.ndim > 1 else 1
    values, other = values.reshape(-1, width), other.reshape(-1, width)
    finite = np.isfinite(values) & np.isfinite(other)
    differing = finite & (values != other)
    directed = differing & (other != 0)  # a zero has no direction
    is_outward = (values > other) == (other > 0)
    away, toward = (directed & is_outward).sum(axis=1), (directed & ~is_outward).sum(axis=1)
    counts = (finite, differing, away, toward, away > toward, toward > away)
    return Flips(*(int(count.sum()) for count in counts))


def paired(
    judgments: Sequence[tuple[OutputJudgment, OutputJudgment]], flips: Sequence[Flips]
) -> Pair:
    """Return the answer about an output of two builds from both answers and the flips of each seed.

    Repeats of a seed aren't independent: give one of them. Raises ValueError if there are no seeds.
    """
    if not judgments or len(judgments) != len(flips):
        raise ValueError("a pair needs at least one seed, and the flips of each")
    answers = [(one.explanation, other.explanation) for one, other in judgments]
    worse = answers.count((Explanation.UNEXPLAINED, Explanation.EXPLAINED))
    better = answers.count((Explanation.EXPLAINED, Explanation.UNEXPLAINED))
    total = Flips(*(sum(counts) for counts in zip(*map(astuple, flips), strict=True)))
    worst, others = (max(side, key=lambda one: one.rank) for side in zip(*answers, strict=True))
    rows = sign_probability(total.rows_away, total.rows_toward)
    return Pair(worst, others, worse, better, total, sign_probability(worse, better), rows)


def sign_probability(one: int, other: int) -> float:
    """Return how likely a fair coin splits as unevenly: the two-sided sign test, a binomial sum."""
    trials, fewer = one + other, min(one, other)
    if 2 * fewer >= trials - 1:
        return 1.0
    k = np.arange(1, fewer + 1)
    logarithms = np.append(0.0, np.cumsum(np.log((trials - k + 1) / k))) - trials * np.log(2)
    return min(1.0, 2 * float(np.exp(logarithms).sum()))
