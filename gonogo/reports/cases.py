"""The contents of a report: its tests with their outcomes.

Our own plug-in also reports the numbers of the arrays that tests compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.reports.outcomes import Outcome
from gonogo.spec.test_spec import TestSpec

MAX_CASES = 200_000
"""Tests of a report; each seed and repeat of a test counts."""
MAX_ITERATION_CASES = 20_000
"""Tests of one iteration; jobs that run here have the same limit."""
MAX_FAILURES = 20
MAX_MEASUREMENTS = 100
MAX_SEED = 2**53 - 1


@dataclass(frozen=True)
class Comparison:
    """Arrays that a test compared: their numbers, never the arrays themselves."""

    outputs: Mapping[str, Mapping[str, Any]]
    """Output -> its explanation and statistics, as gonogo.judging has them, in plain JSON types."""
    name: str | None = None
    """Its name, if a test compares several times."""
    test: TestSpec | None = None
    """The kernel's spec if it is known: then the outputs have verdicts. None: they are stored, and
    the verdict is `not_judged`."""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    """The gate of a comparison without a spec; one with a spec has it there."""
    arithmetic: str | None = None
    """The arithmetic that explains the outputs, else the closest one."""
    words: str = ""
    """The diagnosis, or another remark."""
    problem: str = ""
    """The reason why its arrays could not be judged, if that was tried."""


@dataclass(frozen=True)
class Case:
    """One test of one iteration."""

    name: str
    outcome: Outcome
    seed: int | None = None
    """The seed that the test drew its data by, if any; it is the number of the iteration."""
    repeat: int = 0
    duration_ms: float | None = None
    message: str = ""
    failures: tuple[Mapping[str, Any], ...] = ()
    """{"expression", "count", "message"} and, where known, {"file", "line"}."""
    measurements: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other facts in the file, shown with its entry: file, line, suite, tags, ..."""
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class TestReport:
    """The report in a whole file."""

    __test__ = False  # pytest: not a test case

    cases: tuple[Case, ...]
    suite: str | None = None
    """The name that the file gives itself."""
    build: str | None = None
    tool: str | None = None
    """The program that ran the tests, with its version."""
    commit: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at: str | None = None

    @property
    def numbers(self) -> bool:
        """Return whether any test has numbers of arrays; only our own format can."""
        return any(comparison.outputs for case in self.cases for comparison in case.comparisons)
