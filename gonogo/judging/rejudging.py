"""Judge a stored seed again from its stored numbers, under another tolerance.

*Explained* is as stored, unless an output turns red: it stays explained only where no fault may be
the reason. With a detection limit that may be it, it is inconclusive; without limits the seed is
undecided. So is one that was inconclusive while it was red, and turns green.

*Within* is exact for PCC, Frobenius and ULP, for an allclose whose rtol is one of `needed_atol`'s,
and for the declared one. For another rtol bounds decide: needed(r) = max(|e| - r |ref|, 0) is
convex in r and falls, so that between two known points it lies below their chord, and above the
chords beside it. `tolerance_ratio` t of the declared (r0, a0) adds the point needed(t r0) = t a0.
Where the bounds lie on both sides of the atol, the seed is undecided.

A seed without numbers (hang, crash, error) keeps its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Explanation, Statistics, Verdict, seed_verdict, within

MARGIN = 1e-9
"""Relative room at a bound for the rounding of stored float64 numbers."""
APART = 1e-3
"""Points nearer than this count as one: a chord between them would consist of rounding."""
Point = tuple[float, float]
"""(rtol, the atol that is needed with it)."""


@dataclass(frozen=True)
class Rejudged:
    """The new verdict of a seed; None and the reason where its numbers can't tell."""

    verdict: Verdict | None
    reason: str | None = None


def rejudge(row: Mapping[str, Any], test: TestSpec, declared: TestSpec) -> Rejudged:
    """Judge a result row of `declared` (as the API shows it) by the tolerance of `test`.

    The two tests differ in nothing else. In a job with a reference build the comparators use the
    difference from it.
    """
    outputs: Mapping[str, Statistics] = row.get("outputs") or {}
    judged = {name: stored for name, stored in outputs.items() if name in test.outputs}
    if not judged:
        return Rejudged(Verdict(row["verdict"]))
    possible: list[list[tuple[bool, Explanation]]] = []
    reasons: list[str] = []
    for name, stored in judged.items():
        numbers = _compared(stored)
        tolerance, declared_tolerance = test.tolerance_for(name), declared.tolerance_for(name)
        holds = within_stored(tolerance, declared_tolerance, numbers)
        was_within = within(declared_tolerance, numbers)
        answers = [
            (is_within, explanation)
            for is_within in ((True, False) if holds is None else (holds,))
            for explanation in _explanations(stored, tolerance, is_within, was_within)
        ]
        possible.append(answers)
        if holds is None and tolerance is not None:
            reasons.append(_unknown_atol(name, tolerance, numbers))
        elif len(answers) > 1:
            reasons.append(_unknown_explanation(name, is_within=bool(holds)))
    verdicts = {seed_verdict(answers) for answers in product(*possible)}
    return Rejudged(verdicts.pop()) if len(verdicts) == 1 else Rejudged(None, reasons[0])


def _compared(stored: Statistics) -> Statistics:
    """Return the numbers of an output that the comparators use."""
    other = stored.get("reference")
    if isinstance(other, Mapping) and other.get("within") is not None:
        return other
    return stored


def _explanations(
    stored: Statistics, tolerance: Tolerance | None, is_within: bool, was_within: bool
) -> tuple[Explanation, ...]:
    """Return the possible explanations of an output under the new tolerance."""
    explanation = Explanation(stored["explanation"])
    explained, inconclusive = Explanation.explained, Explanation.inconclusive
    if is_within == was_within:
        return (explanation,)
    if is_within and explanation is inconclusive:
        return explained, inconclusive
    if is_within or explanation is not explained:
        return (explanation,)
    if stored.get("hides_fault") is None:
        return explained, inconclusive
    # a factor that isn't seen has to be larger than the relative tolerance to be the reason
    allclose = None if tolerance is None else tolerance.allclose
    hides_factor = allclose is not None and (stored.get("least_factor") or 0.0) > allclose[0]
    return (inconclusive if stored["hides_fault"] or hides_factor else explained,)


def within_stored(
    tolerance: Tolerance | None, declared: Tolerance | None, numbers: Statistics
) -> bool | None:
    """Return whether an output is within a tolerance that its job didn't declare.

    None where the stored numbers can't tell.
    """
    if (
        tolerance is None
        or tolerance.allclose is None
        or (declared is not None and declared.allclose == tolerance.allclose)
    ):
        return within(tolerance, numbers)
    if not within(
        Tolerance(pcc=tolerance.pcc, frobenius=tolerance.frobenius, ulp=tolerance.ulp), numbers
    ):
        return False
    rtol, atol = tolerance.allclose
    low, high = bounds(known_points(numbers, declared), rtol)
    if low == high:
        return high <= atol
    if high * (1 + MARGIN) <= atol:
        return True
    return False if low * (1 - MARGIN) > atol else None


def known_points(numbers: Statistics, declared: Tolerance | None) -> list[Point]:
    """Return the points where the needed atol of an output is known, by rtol."""
    needed = numbers.get("needed_atol")
    points = {
        float(text): float(value)
        for text, value in (needed.items() if isinstance(needed, Mapping) else ())
        if value is not None and math.isfinite(value)
    }
    ratio = numbers.get("tolerance_ratio")
    if (
        declared is not None
        and declared.allclose is not None
        and isinstance(ratio, int | float)
        and math.isfinite(ratio)
        and ratio > 0
    ):
        rtol, atol = declared.allclose
        place = ratio * rtol
        if not any(math.isclose(place, known, rel_tol=APART) for known in points):
            points[place] = ratio * atol
    return sorted(points.items())


def bounds(points: list[Point], rtol: float) -> Point:
    """Return the smallest and the largest atol that may be needed with an rtol.

    They follow from points of a convex falling function, and are equal where it is known. (0, inf)
    where nothing is known.
    """
    for known, needed in points:
        if known == rtol:
            return needed, needed
    before = [point for point in points if point[0] < rtol]
    after = [point for point in points if point[0] > rtol]
    low = max([0.0, *(needed for _, needed in after[:1])])
    for pair in (before[-2:], after[:2]):
        if len(pair) == 2:
            low = max(low, _line(pair[0], pair[1], rtol))
    if not before:
        return low, math.inf
    return low, min(before[-1][1], _line(before[-1], after[0], rtol) if after else math.inf)


def _line(first: Point, second: Point, at: float) -> float:
    return first[1] + (second[1] - first[1]) * (at - first[0]) / (second[0] - first[0])


def _unknown_atol(output: str, tolerance: Tolerance, numbers: Statistics) -> str:
    rtol, _ = tolerance.allclose or (0.0, 0.0)
    needed = numbers.get("needed_atol")
    known = ", ".join(needed) if isinstance(needed, Mapping) else "none"
    return (
        f"{output}: the atol needed with rtol {rtol:g} isn't stored, and its neighbors don't "
        f"decide; stored for rtol {known}"
    )


def _unknown_explanation(output: str, *, is_within: bool) -> str:
    if is_within:
        return f"{output}: it was inconclusive while it was red, and would be green"
    return f"{output}: it would be red, and its detection limits aren't stored"
