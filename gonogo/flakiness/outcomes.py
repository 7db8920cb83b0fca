"""What one run says for a rate. Apart from the rates, so that what only counts needs no numpy: the
API's process loads none.
"""

from __future__ import annotations

from enum import StrEnum

from gonogo.spec.verdicts import Verdict


class Outcome(StrEnum):
    """What one run says for a rate."""

    passed = "passed"
    failed = "failed"
    infrastructure = "infrastructure"
    silent = "silent"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Outcome.passed: "The kernel ran, and its gate was green.",
    Outcome.failed: "The kernel ran, and its gate was red.",
    Outcome.infrastructure: "Hang, crash or error: counted apart, never into a kernel's rates.",
    Outcome.silent: "Skipped, absent, without information: counted nowhere.",
}
_RED = frozenset({Verdict.fail, Verdict.fail_by_tolerance})
_INFRASTRUCTURE = frozenset({Verdict.error, Verdict.crash, Verdict.hang})


def outcome_of(verdict: Verdict | str, green: bool | None = None) -> Outcome:
    """Green or red of a verdict: the gate's own word, whatever explains it. `green`: of a not-judged
    run (a gtest without arrays).

    Raises ValueError for what is no verdict.
    """
    if green is not None and verdict == Verdict.not_judged:
        return Outcome.passed if green else Outcome.failed
    found = _OUTCOMES.get(verdict)
    return _outcome(Verdict(verdict)) if found is None else found


def _outcome(verdict: Verdict) -> Outcome:
    if verdict in _INFRASTRUCTURE:
        return Outcome.infrastructure
    if not verdict.judges_kernel:
        return Outcome.silent
    return Outcome.failed if verdict in _RED else Outcome.passed


_OUTCOMES: dict[str, Outcome] = {verdict: _outcome(verdict) for verdict in Verdict}
"""By the text of the verdict: to make an enum of each of thousands of rows would take the
longest."""
