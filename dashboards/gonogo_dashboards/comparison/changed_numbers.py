"""Changes of a test's numbers between two builds whose verdicts are of one class. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import fisher
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.evidence_view import percent


@dataclass(frozen=True)
class NumberChange:
    """A change for the worse or the better, in words."""

    worse: bool
    words: str


def of_rates(before: tuple[int, int], after: tuple[int, int]) -> NumberChange | None:
    """Return the change of (failed, judged) seeds; None where chance explains it.

    It is Fisher's exact test at the policy's `significance`.
    """
    (failed, runs), (failed_now, runs_now) = before, after
    if not runs or not runs_now or failed * runs_now == failed_now * runs:
        return None
    if fisher(failed, runs, failed_now, runs_now) > POLICY.significance:
        return None
    then, now = failed / runs, failed_now / runs_now
    return NumberChange(now > then, f"failed seeds: {percent(then)}, now {percent(now)}")


def of_errors(before: Mapping[str, float], after: Mapping[str, float]) -> NumberChange | None:
    """Return the largest change of an output's median error, an increase before a decrease.

    None where each is within the policy's `same_factor`, which seeds of one build don't exceed.
    """
    ratios = {
        output: _ratio(before[output], after[output]) for output in before.keys() & after.keys()
    }
    if not ratios:
        return None
    output = max(sorted(ratios), key=lambda name: ratios[name])
    if ratios[output] <= POLICY.same_factor:
        output = min(sorted(ratios), key=lambda name: ratios[name])
        if ratios[output] >= 1 / POLICY.same_factor:
            return None
    ratio = ratios[output]
    if math.isinf(ratio):
        return NumberChange(True, f"error of {output}: 0, now {words.number(after[output])}")
    if ratio == 0:
        return NumberChange(False, f"error of {output}: {words.number(before[output])}, now 0")
    larger = f"{ratio:.2g} times larger" if ratio > 1 else f"{1 / ratio:.2g} times smaller"
    return NumberChange(ratio > 1, f"error of {output}: {larger}")


def _ratio(before: float, after: float) -> float:
    if before == after:
        return 1.0
    return math.inf if before == 0 else after / before
