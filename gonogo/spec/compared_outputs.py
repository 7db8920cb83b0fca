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
class FlipCounts:
    """The elements of an output that differ between two builds, and which way they moved."""

    elements: int
    """The elements that are finite in both builds"""
    differing: int
    """The elements that differ"""
    rows: int
    """Rows; each value of mean, rstd, dgamma and dbeta is one"""
    away: int
    """The elements farther from zero than the reference build's"""
    toward: int
    """The elements nearer to zero"""
    rows_away: int
    """The rows most of whose flips point away from zero"""
    rows_toward: int
    """The rows most of whose flips point toward zero"""


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
