"""The statistics of an output that are objects: against the exact result, or another build's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from gonogo.spec.verdicts import Explanation


@dataclass(frozen=True)
class ExactComparison:
    """An output of exact inputs against the exact result; tiles are counted from 0."""

    judged: int
    """The elements of exact rows and of rows about epsilon"""
    unequal: int
    """The judged elements of exact rows that differ from the exact result, rounded once"""
    mismatches: int
    """The judged elements whose cell doesn't hold the exact value, beyond the allowance"""
    explanation: Explanation
    words: str
    term: str | None
    """The wrong term; null where there is none"""
    tiles: list[int]
    factor: float | None
    share: float | None


@dataclass(frozen=True)
class FlipPivot:
    """The elements that differ between two builds, about a value that a factor leaves in place."""

    away: int
    toward: int
    """The elements that moved away from the value, and toward it"""
    rows_away: int
    rows_toward: int
    """The rows by the majority of their moves"""
    elements: int
    """The elements that a factor could move"""
    sensitivity: float
    """The moves in ulp that a factor of 2 would make"""
    factor: float | None
    factor_error: float | None
    slope: float | None
    """The factor by the growth of the moves with the mantissas"""
    slope_error: float | None


@dataclass(frozen=True)
class FlipCounts:
    """The elements of an output that differ between two builds, and which way they moved."""

    shared_factor: float
    """The factor that two right kernels may have on these inputs"""
    elements: int
    """The elements that are finite on both sides"""
    differing: int
    rows: int
    stepped_up: int
    stepped_down: int
    """The rows that moved as a whole, as a step of a stored rstd moves them"""
    pivots: dict[str, FlipPivot]
    """By the value that a factor leaves in place: `zero` or `beta`"""


@dataclass(frozen=True)
class AgainstFloat64:
    """The reference build's output against float64."""

    explanation: Explanation
    budget_ratio: float | None
    chi: float | None


@dataclass(frozen=True)
class AgainstReference:
    """An output against the reference build's; it has the statistics of that comparison, too."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    build: str
    explanation: Explanation
    within: bool | None
    """Whether the test's tolerance holds; null for an output without one"""
    against_float64: AgainstFloat64 | None
    flips: FlipCounts
