"""What a test that exists already says of itself, and the verdict that the judgement of its arrays
makes of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gonogo.spec.verdicts import Explanation, Verdict, verdict, worst, worst_explanation


class Outcome(StrEnum):
    """What a test says of itself."""

    error = "error"
    """It could not be run, or not be judged."""
    crash = "crash"
    """Its process ended in the middle of it."""
    hang = "hang"
    """It did not end within its deadline."""
    failed = "failed"
    """Red."""
    skipped = "skipped"
    """It skipped itself, is disabled, or was not run because of another one."""
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
OTHER_REASON = "The arrays are within their tolerance, and rounding explains them: it is red for a reason that they don't show."


@dataclass(frozen=True)
class OfArrays:
    """What the judgement of one comparison of a test came to."""

    verdict: Verdict
    explanation: Explanation
    declared: bool
    """Whether it declares a tolerance."""


def verdict_of(outcome: Outcome, arrays: Sequence[OfArrays]) -> tuple[Verdict, Explanation, bool]:
    """Verdict and explanation of one test, and whether it is red for a reason that its arrays don't
    show.

    Red or green is the gate where its arrays declare no tolerance. Where they declare one, and it
    holds, and rounding explains the error, a red test is red for another reason: that is not judged,
    and never a pass.
    """
    alone = WITHOUT_ARRAYS[outcome]
    if not arrays:
        return alone, Explanation.not_judged, False
    explanation = worst_explanation(each.explanation for each in arrays)
    said = worst(each.verdict for each in arrays)
    if outcome is Outcome.failed:
        if (
            explanation is Explanation.explained
            and said is Verdict.pass_
            and all(each.declared for each in arrays)
        ):
            return Verdict.not_judged, explanation, True
        if explanation is not Explanation.inconclusive:
            said = verdict(is_within=False, explanation=explanation)
    elif outcome is not Outcome.passed:
        said = worst((said, alone))
    return said, explanation, False
