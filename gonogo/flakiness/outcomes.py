"""What one run says for a rate. Apart from the rates, so that what only counts needs no numpy: the API's process loads none."""

from __future__ import annotations

from enum import StrEnum

from gonogo.verdicts import Verdict


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
    """Green or red of a verdict: the gate's own word, whatever explains it. `green`: of an unjudged run (a gtest without arrays)."""
    found = Verdict(verdict)
    if found in _INFRASTRUCTURE:
        return Outcome.infrastructure
    if found is Verdict.unjudged and green is not None:
        return Outcome.passed if green else Outcome.failed
    if not found.judges_kernel:
        return Outcome.silent
    return Outcome.failed if found in _RED else Outcome.passed
