"""The outcome of one run, as rates count it.

It is separate from the rates, so that code that only counts needs no numpy: the API's process loads
none.
"""

from __future__ import annotations

from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict


class Outcome(Described):
    """The outcome of one run, as rates count it."""

    passed = "passed", "The kernel ran, and its gate was green."
    failed = "failed", "The kernel ran, and its gate was red."
    infrastructure = (
        "infrastructure",
        "Hang, crash or error: counted apart, never into a kernel's rates.",
    )
    silent = "silent", "Skipped, not run, not judged or inconclusive: counted nowhere."


_RED = frozenset({Verdict.fail, Verdict.fail_by_tolerance})
_INFRASTRUCTURE = frozenset({Verdict.error, Verdict.crash, Verdict.hang})


def outcome_of(verdict: Verdict | str, green: bool | None = None) -> Outcome:
    """Return the outcome of a verdict: its gate's color, even if rounding explains a red one.

    green: the color of a run that is not judged (a gtest without arrays). Raises ValueError for an
    unknown verdict.
    """
    if green is not None and verdict == Verdict.not_judged:
        return Outcome.passed if green else Outcome.failed
    outcome = _OUTCOMES.get(verdict)
    return _outcome(Verdict(verdict)) if outcome is None else outcome


def _outcome(verdict: Verdict) -> Outcome:
    if verdict in _INFRASTRUCTURE:
        return Outcome.infrastructure
    if not verdict.judges_kernel:
        return Outcome.silent
    return Outcome.failed if verdict in _RED else Outcome.passed


_OUTCOMES: dict[str, Outcome] = {verdict: _outcome(verdict) for verdict in Verdict}
"""Outcomes by the verdict's text: making an enum member for each of thousands of rows would take
longest."""
