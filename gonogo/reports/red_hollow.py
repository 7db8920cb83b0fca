"""Red and hollow side by side: a verdict is the worst of many, so one hides the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gonogo.reports.outcomes import Outcome
from gonogo.spec.selections import is_selection
from gonogo.spec.verdicts import Verdict

RED = frozenset({Verdict.crash, Verdict.hang, Verdict.fail, Verdict.fail_by_tolerance})
RED_OUTCOMES = frozenset({Outcome.error, Outcome.crash, Outcome.hang, Outcome.failed})


def of_seeds(verdicts: Mapping[str, int]) -> tuple[int, int]:
    """Return how many seeds are red, and how many are hollow passes, from their verdicts."""
    return (
        sum(verdicts.get(verdict, 0) for verdict in RED),
        verdicts.get(Verdict.pass_by_tolerance, 0),
    )


def of_tests(tests: Iterable[Mapping[str, Any]], verdict: str) -> tuple[int, int]:
    """Return how many tests of one iteration are red, and how many are hollow passes.

    A test is red by its own outcome: without arrays its verdict doesn't say so. An iteration
    without any test counts by its `verdict`.
    """
    entries = [test for test in tests if test.get("outcome")]
    if not entries:
        return of_seeds({verdict: 1})
    return (
        sum(test["outcome"] in RED_OUTCOMES for test in entries),
        sum(test["verdict"] == Verdict.pass_by_tolerance for test in entries),
    )


def noun(test: Mapping[str, Any]) -> str:
    """Return the counted noun: "seed" of a kernel's test, or "test" of a selection."""
    return "test" if is_selection(test) else "seed"


def words(red: int, hollow: int, noun: str) -> str:
    """Return a sentence that counts both; "" unless there are both."""
    if not red or not hollow:
        return ""
    return (
        f"{_count(red, noun)} {'is' if red == 1 else 'are'} red, and"
        f" {_count(hollow, noun)} passed only by the tolerance (hollow)."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
