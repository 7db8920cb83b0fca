"""The report of a gauge in plain values: as it is stored, answered and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.comparators import Name
from gonogo.spec.arithmetic_words import ArithmeticSummary


@dataclass(frozen=True)
class MeasuredRate:
    """A count of runs with its 95% interval."""

    count: int
    of: int
    rate: float | None
    """null without runs"""
    low: float
    high: float


@dataclass(frozen=True)
class FalseAlarms(MeasuredRate):
    """How often right kernels failed."""

    predicted: float | None
    """The chance that a right kernel fails on a seed, from its budget; null without allclose"""
    parts: dict[str, MeasuredRate]
    """By right kernel"""


@dataclass(frozen=True)
class MutantMisses(MeasuredRate):
    """How often a mutant passed, of the seeds on which it can show."""

    cannot_show: int
    """The seeds on which it can't show with these inputs"""
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
    tail: float | None
    """A run of a right kernel deviates by more with `tail_probability`"""
    tail_probability: float | None


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
class PartArithmetic(ArithmeticSummary):
    """The arithmetic models of an output, and in one line."""

    model: str


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
    arithmetic: dict[str, list[PartArithmetic]]
    windows: list[WindowSummary]
    advice: AdvisedTolerance
    gates: dict[str, GateSummary]
    words: str


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
