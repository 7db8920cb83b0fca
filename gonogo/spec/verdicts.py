"""Verdicts: is the output within the declared tolerance, and does rounding explain its error?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gonogo.spec.described import Described
from gonogo.spec.tolerances import Tolerance


class Verdict(Described):
    """The verdict on an output, a seed, a job or a run.

    Verdicts are declared worst first: a job's verdict is its worst.
    """

    # fmt: off
    error = ("error",
        "Infrastructure or the request failed; nothing is said about the kernel's numbers.")
    crash = "crash", "The process that ran the kernel died."
    hang = "hang", "The kernel didn't return within its deadline."
    fail = "fail", "Red and wrong: outside the tolerance, and rounding doesn't explain it."
    pass_by_tolerance = ("pass_by_tolerance",
        "Green and wrong: within the tolerance, but rounding doesn't explain the error.",
        "Hollow pass")
    fail_by_tolerance = ("fail_by_tolerance", "Red and right: rounding explains the error, but the"
        " tolerance is tighter than the formats allow.", "False alarm")
    suspect = ("suspect",
        "Within the tolerance, and at the edge of what rounding explains: more seeds decide.")
    inconclusive = ("inconclusive",
        "The inputs or the arithmetic can't tell a right kernel from a wrong one.")
    not_judged = ("not_judged",
        "Green or red without arrays: whether rounding explains it is unknown.")
    skipped = "skipped", "The test was skipped."
    not_run = ("not_run",
        "The test isn't in this build, or nothing was selected; zero tests run is never green.")
    pass_ = "pass", "Green and right: within the tolerance, and rounding explains the error."
    # fmt: on

    @property
    def judges_kernel(self) -> bool:
        """Return whether it judges the kernel: only these verdicts count in rates."""
        return self in _JUDGE_KERNEL


_RANKS = {str(verdict): rank for rank, verdict in enumerate(Verdict)}
_JUDGE_KERNEL = frozenset(
    map(Verdict, ("fail", "pass_by_tolerance", "fail_by_tolerance", "suspect", "pass"))
)
WORST_FIRST: tuple[Verdict, ...] = tuple(Verdict)


class Explanation(Described):
    """The answer to the question: does rounding explain the error?

    Members are declared worst first: a seed's explanation is the worst of its outputs.
    """

    # fmt: off
    unexplained = "unexplained", "No rounding of this kernel's formats makes such an error."
    suspect = "suspect", "Larger than rounding should be, smaller than a wrong term usually is."
    inconclusive = ("inconclusive",
        "Only what explains nearly anything explains it, or a fault would be explained, too.")
    not_judged = "not_judged", "There are no arrays to judge."
    explained = "explained", "The rounding of the formats accounts for all of it."
    # fmt: on


JUDGE = "6"
"""The version of the judge: results of another one are no change of a kernel."""

Statistics = Mapping[str, Any]
"""Stored statistics of one output: name -> number, null, or an object."""


def severity(verdict: str, outputs: Mapping[str, Statistics]) -> tuple[int, float]:
    """Return the sort key of a (seed, repeat), worst first; every list of worst seeds has it.

    It is the verdict, then the size of its worst output; infinite for a seed without outputs.
    outputs: output -> its verdict and statistics.
    """
    _, largest = min(map(_place, outputs.values()), default=(0, -math.inf))
    return _RANKS[str(verdict)], largest


def worst_first(outputs: Mapping[str, Statistics]) -> list[str]:
    """Return the names of a seed's outputs: the worst verdict first, then the largest `size`."""
    return sorted(outputs, key=lambda name: (*_place(outputs[name]), name))


def _place(output: Statistics) -> tuple[int, float]:
    return _RANKS[str(output["verdict"])], -size(output)


def size(output: Statistics) -> float:
    """Return how bad an output is among those of its verdict: its rounding_ratio, inf for NaN.

    Of a false alarm it is error / tolerance, because rounding explains its error.
    """
    if has_nonfinite(output):
        return math.inf
    name = "tolerance_ratio"
    if output["verdict"] != Verdict.fail_by_tolerance or output.get(name) is None:
        name = "rounding_ratio"
    return _number(output.get(name)) or 0.0


def has_nonfinite(statistics: Statistics) -> bool:
    """Return whether an output has wrong NaN or Inf: its statistics are those of the others."""
    infinite = statistics.get("nonfinite_statistics") or ()
    return bool(_number(statistics.get("nonfinite"))) or "rounding_ratio" in infinite


def _number(value: object) -> float | None:
    """Return the absolute value of a stored number; None for null and NaN, which say nothing."""
    signed = _signed(value)
    return None if signed is None else abs(signed)


def worst_explanation(explanations: Iterable[Explanation]) -> Explanation:
    """Return the worst of the outputs' explanations; not judged if there are none."""
    return min(explanations, key=lambda one: one.rank, default=Explanation.not_judged)


def within(tolerance: Tolerance | None, statistics: Statistics) -> bool:
    """Return whether every declared comparator holds on one output, from its stored numbers only.

    None (undeclared) is within unless the output holds NaN or Inf where the reference is finite,
    which is outside every tolerance. allclose is read from needed_atol when its rtol is a stored
    one (so any tolerance of that rtol can be re-judged), else from tolerance_ratio, which belongs
    to the tolerance that the job declared. An undefined metric (PCC of a constant) isn't met.
    """
    if _number(statistics.get("nonfinite")):
        return False
    if tolerance is None:
        return True
    deficit = _signed(statistics.get("pcc_deficit"))
    return (
        (tolerance.allclose is None or _within_allclose(*tolerance.allclose, statistics))
        and (tolerance.pcc is None or (deficit is not None and 1 - deficit >= tolerance.pcc))
        and _at_most(statistics.get("rel_frobenius"), tolerance.frobenius)
        and _at_most(statistics.get("ulp_max"), tolerance.ulp)
    )


def _within_allclose(rtol: float, atol: float, statistics: Statistics) -> bool:
    needed = needed_atol(rtol, statistics)
    return _at_most(statistics.get("tolerance_ratio"), 1.0) if needed is None else needed <= atol


def needed_atol(rtol: float, statistics: Statistics) -> float | None:
    """Return the smallest atol that passes with this rtol; None where it isn't stored."""
    stored = statistics.get("needed_atol")
    for text, atol in stored.items() if isinstance(stored, Mapping) else ():
        try:
            if float(text) == rtol:
                return _signed(atol)
        except ValueError:  # a hostile host's name
            continue
    return None


def _signed(value: object) -> float | None:
    if type(value) is float:  # the common case: a page reads thousands of them
        return value if value == value else None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def _at_most(value: object, limit: float | None) -> bool:
    stored = _signed(value)
    return limit is None or (stored is not None and stored <= limit)


def verdict(is_within: bool, explanation: Explanation) -> Verdict:
    """Return the verdict for the answers to the two questions."""
    green, red = _VERDICTS[explanation]
    return green if is_within else red


_VERDICTS: Mapping[Explanation, tuple[Verdict, Verdict]] = {
    Explanation.explained: (Verdict.pass_, Verdict.fail_by_tolerance),
    Explanation.unexplained: (Verdict.pass_by_tolerance, Verdict.fail),
    Explanation.suspect: (Verdict.suspect, Verdict.fail),
    Explanation.inconclusive: (Verdict.inconclusive, Verdict.inconclusive),
    Explanation.not_judged: (Verdict.not_judged, Verdict.not_judged),
}
"""Explanation -> the verdict within the tolerance, and outside."""


def seed_verdict(outputs: Iterable[tuple[bool, Explanation]]) -> Verdict:
    """Return the verdict of a seed from both answers of each of its outputs.

    A seed is red where an output is. A suspect output that is green makes no red seed a `fail`:
    there the red outputs decide.
    """
    answers = list(outputs)
    explanation = worst_explanation(answer for _, answer in answers)
    red = [answer for is_within, answer in answers if not is_within]
    if red and explanation is Explanation.suspect:
        explanation = worst_explanation(red)
    return verdict(not red, explanation)


def by_verdict(counts: Mapping[Any, int]) -> dict[str, int]:
    """Return counts by verdict in the order of Verdict, without zeros."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def worst(verdicts: Iterable[Verdict | str]) -> Verdict:
    """Return the worst of the verdicts; not run if there are none.

    Zero tests run is never green.
    """
    return min(map(Verdict, verdicts), key=lambda verdict: verdict.rank, default=Verdict.not_run)
