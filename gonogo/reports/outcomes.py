"""The outcome that a test itself reports, and the verdict that results from its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gonogo.spec.verdicts import Explanation, Verdict, verdict, worst, worst_explanation


class Outcome(StrEnum):
    """The outcome that a test itself reports, the worst first."""

    error = "error"
    """It could not be run, or not be judged."""
    crash = "crash"
    """Its process ended in the middle of it."""
    hang = "hang"
    """It did not finish within its deadline."""
    failed = "failed"
    """Red."""
    skipped = "skipped"
    """It skipped itself, is disabled, or was not run because of another test."""
    not_run = "not_run"
    """It is not in this build."""
    passed = "passed"
    """Green."""


WITHOUT_ARRAYS = {
    Outcome.error: Verdict.error,
    Outcome.crash: Verdict.crash,
    Outcome.hang: Verdict.hang,
    Outcome.failed: Verdict.not_judged,
    Outcome.skipped: Verdict.skipped,
    Outcome.not_run: Verdict.not_run,
    Outcome.passed: Verdict.not_judged,
}
OTHER_REASON = (
    "The arrays are within their tolerance, and rounding explains them: it is red for a reason that"
    " they don't show."
)


@dataclass(frozen=True)
class ArraysVerdict:
    """The verdict on the arrays of one comparison of a test."""

    verdict: Verdict
    explanation: Explanation
    declared: bool
    """True if the comparison declares a tolerance."""


def verdict_of(
    outcome: Outcome, arrays: Sequence[ArraysVerdict]
) -> tuple[Verdict, Explanation, bool]:
    """Return verdict and explanation of one test, and whether it is red for another reason.

    Another reason is one that its arrays don't show. Where the arrays declare no tolerance, the
    test's red or green is the gate. Where they declare one, and it holds, and rounding explains the
    error, a red test is red for another reason: that is not judged, and never a pass.
    """
    alone = WITHOUT_ARRAYS[outcome]
    if not arrays:
        return alone, Explanation.not_judged, False
    explanation = worst_explanation(result.explanation for result in arrays)
    combined = worst(result.verdict for result in arrays)
    if outcome is Outcome.failed:
        if (
            explanation is Explanation.explained
            and combined is Verdict.pass_
            and all(result.declared for result in arrays)
        ):
            return Verdict.not_judged, explanation, True
        is_acquitted = combined is Verdict.fail_by_tolerance  # its red arrays, whatever the others
        if explanation is not Explanation.inconclusive and not is_acquitted:
            combined = verdict(is_within=False, explanation=explanation)
    elif outcome is not Outcome.passed:
        combined = worst((combined, alone))
    return combined, explanation, False
