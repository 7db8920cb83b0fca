"""The statistics of an output that are objects: its factors and faults, and other comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from gonogo.spec.verdicts import Explanation

MOST = 1e100
"""Numbers beyond it, or below its inverse, are no measurements; sums take their squares."""
Positive = Annotated[float, Field(ge=1 / MOST, le=MOST, allow_inf_nan=False)]


@dataclass(frozen=True)
class CommonFactor:
    """A factor 1 + `estimate` of all values of a source."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    source: str
    """The name of a value of the kernel, or of the output"""
    estimate: Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
    deviation: Positive
    """Its standard deviation by rounding alone"""
    is_certain: bool
    """Whether this seed alone shows that it isn't 0"""
    limit: Positive
    """The largest |estimate| that is rounding"""


@dataclass(frozen=True)
class BestFault:
    """A fault that takes away some of what rounding doesn't explain."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    id: str
    label: str
    size: float
    """Its fitted size; 1 for faults without one"""
    share: float
    """The fraction of the misfit that it takes away"""


@dataclass(frozen=True)
class ExactComparison:
    """An output of exact inputs against the exact result."""

    judged: int
    """The elements that no right arithmetic changes"""
    unequal: int
    """The number of them with other bits than the exact result, rounded once"""
    mismatches: int
    """The elements that no right arithmetic gives"""
    explanation: Explanation
    words: str
    fault: str | None
    """The id of the fault that is named; null where none is"""
    share: float | None
    """The fraction of the misfit that it takes away"""


@dataclass(frozen=True)
class FlipCounts:
    """The elements of an output that differ between two builds, and which way they moved."""

    elements: int
    """The elements that are finite in both builds"""
    differing: int
    """The elements that differ"""
    away: int
    """The elements farther from zero than the reference build's"""
    toward: int
    """The elements nearer to zero"""
    rows_away: int
    """The rows most of whose flips point away from zero; a value of a vector is a row"""
    rows_toward: int
    """The rows most of whose flips point toward zero"""


@dataclass(frozen=True)
class AgainstReference:
    """An output against the reference build's; it has the statistics of that comparison, too."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    build: str
    explanation: Explanation
    """The answer about the reference build's own output"""
    arithmetic: str | None
    """The answer about the reference build's own output"""
    within: bool | None
    """Whether the test's tolerance holds between the two; null for an output without one"""
    flips: FlipCounts
