"""The report of a gauge in plain values: as it is stored, answered and printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gonogo.flakiness.grades import Sharpness
from gonogo.flakiness.special import beta_quantile
from gonogo.gauge.comparators import Comparator, Name
from gonogo.spec.arithmetic_words import OutputArithmetic

Outputs = TypeVar("Outputs")
BEYOND = 0.025
"""The chance that a rate is below its interval, and that it is above."""
SHOWN_NAMES = 3
"""The kernels with equal arithmetics that are named; of more, their number."""


@dataclass(frozen=True)
class MeasuredRate:
    """A count of runs with its 95% interval."""

    count: int
    of: int
    rate: float | None
    """null without runs"""
    low: float
    high: float

    @classmethod
    def counted(cls, count: int, total: int) -> MeasuredRate:
        """Return `count` of `total` with the interval of Clopper and Pearson.

        It is never too narrow (Biometrika 26, 1934). Jeffreys' interval, as in gonogo.flakiness, is
        right on average over many tests, but a gauge promises a bound for this one.
        """
        rest = total - count
        low = beta_quantile(BEYOND, count, rest + 1) if count else 0.0
        high = beta_quantile(1 - BEYOND, count + 1, rest) if rest else 1.0
        return cls(count, total, count / total if total else None, low, high)

    def __str__(self) -> str:
        if not self.of:
            return "-"
        return f"{self.count:,} of {self.of:,} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True)
class FalseAlarms(MeasuredRate):
    """How often right kernels failed."""

    predicted: float | None
    """The chance that a right kernel fails on a seed, from its arithmetic; null without allclose"""
    parts: dict[str, MeasuredRate]
    """By right kernel"""


@dataclass(frozen=True)
class MutantMisses(MeasuredRate):
    """How often a mutant passed, of the seeds on which it can show."""

    cannot_show: int
    """The seeds on which its effect is within the right kernel's rounding"""
    unexplained: MeasuredRate
    """How often rounding doesn't explain it, over all seeds"""


@dataclass(frozen=True)
class Misses(MeasuredRate):
    """How often mutants passed."""

    parts: dict[str, MutantMisses]
    """By mutant"""


@dataclass(frozen=True)
class WindowEdges:
    """The window of one output; null where it is open."""

    lower: float
    """The smallest tolerance that passes right kernels"""
    upper: float | None
    """The largest that rejects the mutants within reach"""
    observed: float | None
    """The largest deviation of right kernels"""


@dataclass(frozen=True)
class SingleEdges:
    """The window of one tolerance for all outputs; null where it is open."""

    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class WindowSummary:
    """The tolerances of a comparator between right kernels and mutants."""

    comparator: Name
    rtol: float | None
    works: bool
    room: float | None
    """The factor between its edges: up to 1 no tolerance works; null: without end"""
    room_within_reach: float | None
    """The same for the mutants that the lower edge rejects"""
    outputs: dict[str, WindowEdges]
    single: SingleEdges
    missed: dict[str, int]
    """The mutants that pass at the lower edge, and on how many seeds"""
    tolerance: dict[str, dict[str, float]] | None
    """The lower edge with as few digits as possible"""

    def __str__(self) -> str:
        return str(self.comparison)

    @property
    def comparison(self) -> Comparator:
        """Return the comparator."""
        return Comparator(self.comparator, self.rtol)


@dataclass(frozen=True)
class AdvisedTolerance:
    """The tolerance that a test should have."""

    tolerance: dict[str, dict[str, float]]
    """By output; {} for none"""
    works: bool
    """Whether it rejects every mutant that can show, on every seed"""
    rejected: list[str]
    missed: dict[str, int]
    """The mutants that still pass, and on how many seeds"""
    words: str


@dataclass(frozen=True)
class Slack:
    """How loose a test's tolerance is on one output.

    Errors are shares of the largest that the declared tolerance allows: at 1 green turns red.
    """

    output: str
    comparator: Name
    """The declared one that leaves right kernels the least room"""
    needed: float | None
    """The largest error that a right kernel may have; null where nothing bounds it"""
    advised: float | None = None
    """The largest that the advised tolerance allows; null where that depends on the values"""
    advice: dict[str, float] = field(default_factory=dict)
    """The advised tolerance of the output; {} for none"""
    passing: float | None = None
    """The largest error of a mutant that passes the test; null for none beyond a right kernel's"""
    mutant: str | None = None

    @property
    def factor(self) -> float | None:
        """How many times the error that right kernels need the tolerance allows; None: no bound."""
        if self.needed is None:
            return None
        return 1 / self.needed if self.needed else math.inf


def largest(slacks: Iterable[Slack]) -> float | None:
    """Return the largest slack of a test's outputs; None where none is bounded."""
    return max((one.factor for one in slacks if one.factor is not None), default=None)


@dataclass(frozen=True)
class GateSummary:
    """A public suite's gate on the same runs."""

    false_alarms: MeasuredRate
    rejected: list[str]
    """The mutants that it rejects on every seed"""
    missed: list[str]
    sentence: str
    limit: str
    source: str


@dataclass(frozen=True)
class MeasuredTest:
    """The measurements of a test by a gauge."""

    test: dict[str, Any]
    key: str
    workload_key: str
    seeds: int
    sharpness: Sharpness
    false_alarms: FalseAlarms
    misses: Misses
    broken: dict[str, int]
    """The runs without numbers, by part"""
    arithmetic: dict[str, list[OutputArithmetic]]
    """By kernel, with detection limits"""
    windows: list[WindowSummary]
    advice: AdvisedTolerance
    gates: dict[str, GateSummary]
    words: str

    @property
    def blind(self) -> list[str]:
        """The mutants that pass on every seed on which they can show."""
        parts = self.misses.parts
        return [name for name, rate in parts.items() if rate.of and rate.count == rate.of]


@dataclass(frozen=True)
class TriedSummary:
    """The test with other inputs, compared with its own."""

    name: str
    sentence: str
    inputs: dict[str, Any]
    advice: AdvisedTolerance
    gains: list[str]
    """The mutants that only the tolerance advised there rejects"""
    loses: list[str]


@dataclass(frozen=True)
class GaugeCommand:
    """The command that measures the test again, and the test's fields that it leaves out."""

    line: str
    leaves_out: list[str]


@dataclass(frozen=True)
class GaugeReport(MeasuredTest):
    """The report of a gauge that the service ran."""

    sentences: dict[str, str]
    """By kernel: its fault, or its arithmetic"""
    elsewhere: list[TriedSummary]
    beyond: str
    """The mutants that other inputs would show"""
    command: GaugeCommand


def alike(parts: Mapping[str, Outputs]) -> list[tuple[str, Outputs]]:
    """Return the kernels with equal arithmetics together: (their names, the arithmetics)."""
    groups: list[tuple[list[str], Outputs]] = []
    for part, outputs in parts.items():
        group = next((names for names, other in groups if other == outputs), None)
        if group is None:
            groups.append(([part], outputs))
        else:
            group.append(part)
    return [(_listed(names, len(parts)), outputs) for names, outputs in groups]


def _listed(names: Sequence[str], count: int) -> str:
    if len(names) == count > 1:
        return "all kernels"
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
