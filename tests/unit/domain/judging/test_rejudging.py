"""Judging again from stored numbers: it gives the verdict of the arrays, or the reason for none."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.closeness import NEEDED_RTOLS
from gonogo.judging import pairs
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.rejudging import Rejudged, bounds, known_points, rejudge, within_stored
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from numeric_cases import Case, spec

DECLARED = {"rtol": 1e-3, "atol": 0.5}
RED = {"dx": {"rtol": 0.01, "atol": 1e-6}}
"""Dx is red with it where it has an error at all."""


def under(tolerance: dict[str, Any]) -> TestSpec:
    return spec(shape=(16, 96), tolerance=tolerance)


def judged(test: TestSpec, build: str, with_limits: bool = False) -> SeedJudgement:
    """Return the judgment of the arrays."""
    case = Case.of(under(DECLARED))
    fields: dict[str, Any] = {"arithmetic": "tt-train", "with_faults": False}
    arrays = case.raw, case.given, case.emulated(build)
    return judge(test, *arrays, with_limits=with_limits, **fields)


@cache
def row(build: str = "correct") -> dict[str, Any]:
    """Return what is stored of a build's seed."""
    return judged(under(DECLARED), build, with_limits=True).to_json()


def changed(output: str, **numbers: Any) -> dict[str, Any]:
    """Return the right build's row with other numbers of an output; None: it isn't stored."""
    entry = row()["outputs"][output] | numbers
    entry = {name: value for name, value in entry.items() if value is not None}
    return {**row(), "outputs": {**row()["outputs"], output: entry}}


def again(stored: dict[str, Any], tolerance: dict[str, Any], declared: Any = None) -> Rejudged:
    return rejudge(stored, under(tolerance), under(declared or DECLARED))


def is_right(stored: Verdict | None, arrays: Verdict) -> bool:
    """Return whether the verdict from stored numbers is that of the arrays, or acquits less."""
    cautious = (Verdict.inconclusive, Verdict.fail_by_tolerance)
    return stored == arrays or (stored, arrays) == cautious


@pytest.mark.parametrize("build", ["correct", "tt-train-2025", "nan-tile"])
@pytest.mark.parametrize(
    "tolerance",
    [
        *({"rtol": rtol, "atol": 0.02} for rtol in NEEDED_RTOLS[::2]),
        {"pcc": 0.999},
        {"pcc": 0.99999},
        {"frobenius": 1e-3},
        {"frobenius": 0.02},
        {"ulp": 1},
        {"ulp": 1000},
        {"dx": {"rtol": 1e-2, "atol": 1e-3}, "dgamma": {"pcc": 0.9}},
        {},
        DECLARED,
    ],
)
def test_what_is_stored_decides_as_the_arrays_do(build: str, tolerance: dict[str, Any]) -> None:
    arrays = judged(under(tolerance), build).verdict
    assert is_right(again(row(build), tolerance).verdict, arrays)


def test_an_rtol_that_is_not_stored_is_decided_right_or_not_at_all() -> None:
    decided = []
    for build in ("correct", "tt-train-2025"):
        for rtol in (1e-4, 5e-3, 0.2):
            for atol in np.geomspace(1e-4, 0.1, 3):
                tolerance = {"dx": {"rtol": rtol, "atol": float(atol)}}
                rejudged = again(row(build), tolerance)
                decided.append(rejudged.verdict is not None)
                if rejudged.verdict is None:
                    assert "isn't stored" in str(rejudged.reason)
                else:
                    assert is_right(rejudged.verdict, judged(under(tolerance), build).verdict)
    assert sum(decided) > 0.8 * len(decided)


ELEMENTS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 4)), min_size=1, max_size=30)


@given(ELEMENTS, st.floats(0, 1), st.floats(1e-4, 0.2), st.floats(0.01, 1))
def test_bounds_hold_whatever_the_errors(
    elements: list[tuple[float, float]], rtol: float, r0: float, a0: float
) -> None:
    """needed(r) = max(|e| - r |ref|, 0) lies between the bounds that its stored points give.

    elements: pairs (|e|, |ref|).
    """

    def needed(r: float) -> float:
        return max(0.0, *(error - r * size for error, size in elements))

    declared = Tolerance(rtol=r0, atol=a0)
    ratio = max(error / (a0 + r0 * size) for error, size in elements)
    numbers = {"needed_atol": {f"{r:g}": needed(r) for r in NEEDED_RTOLS}, "tolerance_ratio": ratio}
    low, high = bounds(known_points(numbers, declared), rtol)
    assert low * (1 - 1e-9) - 1e-12 <= needed(rtol) <= high * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("points", "rtol", "expected"),
    [
        ([], 0.5, (0.0, math.inf)),
        ([(0.0, 8.0), (1.0, 4.0)], 1.0, (4.0, 4.0)),
        ([(0.0, 8.0), (1.0, 4.0)], 0.5, (4.0, 6.0)),  # below the chord
        ([(0.0, 8.0), (1.0, 4.0)], 1.5, (2.0, 4.0)),  # above the chord before it
        ([(0.0, 8.0), (1.0, 4.0)], 4.0, (0.0, 4.0)),
        ([(1.0, 4.0), (2.0, 3.0)], 0.5, (4.5, math.inf)),  # above the chord behind it
        ([(0.0, 8.0), (1.0, 4.0), (2.0, 1.0), (3.0, 0.5)], 1.5, (2.0, 2.5)),
    ],
)
def test_a_convex_falling_function_lies_between_its_chords(
    points: list[tuple[float, float]], rtol: float, expected: tuple[float, float]
) -> None:
    assert bounds(points, rtol) == expected


@pytest.mark.parametrize(
    ("numbers", "declared", "points"),
    [
        ({}, None, []),
        ({"needed_atol": {"0.1": 2.0, "0": 3.0, "1": None}}, None, [(0.0, 3.0), (0.1, 2.0)]),
        ({"tolerance_ratio": 2.0}, Tolerance(rtol=0.1, atol=0.5), [(0.2, 1.0)]),
        ({"tolerance_ratio": 0.0}, Tolerance(rtol=0.1, atol=0.5), []),
        ({"tolerance_ratio": 2.0}, Tolerance(pcc=0.9), []),
        ({"tolerance_ratio": 2.0, "needed_atol": {"0.2": 3.0}}, Tolerance(rtol=0.1, atol=0.5),
         [(0.2, 3.0)]),
    ],
)  # fmt: skip
def test_a_ratio_to_the_declared_tolerance_is_a_known_point(
    numbers: dict[str, Any], declared: Tolerance | None, points: list[tuple[float, float]]
) -> None:
    assert known_points(numbers, declared) == points


@pytest.mark.parametrize(
    ("tolerance", "numbers", "holds"),
    [
        ({}, {"nonfinite": 0}, None),
        ({}, {"nonfinite": 3}, False),
        ({"pcc": 0.9}, {"pcc_deficit": 0.5}, False),  # one failing comparator is enough
        ({}, {"needed_atol": {"0": 1.0}}, True),
        ({}, {"needed_atol": {"0": 1.1}}, False),
    ],
)
def test_numbers_that_are_not_there_leave_it_undecided(
    tolerance: dict[str, float], numbers: dict[str, Any], holds: bool | None
) -> None:
    new_tolerance = Tolerance(rtol=0.0, atol=1.0, **tolerance)
    assert within_stored(new_tolerance, None, {"nonfinite": 0, **numbers}) is holds


def test_a_seed_without_numbers_keeps_its_verdict() -> None:
    assert again({"verdict": "hang", "outputs": {}}, DECLARED).verdict is Verdict.hang


@pytest.mark.parametrize(
    ("hides_fault", "least_factor", "verdict"),
    [
        (False, 0.0, "fail_by_tolerance"),
        (False, 0.009, "fail_by_tolerance"),
        (False, 0.011, "inconclusive"),
        (True, 0.0, "inconclusive"),
        (None, None, None),
    ],
)
def test_an_output_that_turns_red_is_acquitted_of_what_could_have_been_seen(
    hides_fault: bool | None, least_factor: float | None, verdict: str | None
) -> None:
    stored = changed("dx", hides_fault=hides_fault, least_factor=least_factor)
    rejudged = again(stored, RED)
    assert rejudged.verdict == verdict
    unknown = "dx: it would be red, and its detection limits aren't stored"
    assert rejudged.reason == (unknown if verdict is None else None)


def test_what_was_inconclusive_while_it_was_red_is_undecided_once_it_is_green() -> None:
    stored = changed("dx", explanation="inconclusive")
    assert again(stored, RED, declared=RED).verdict is Verdict.inconclusive
    rejudged = again(stored, DECLARED, declared=RED)
    assert rejudged.verdict is None
    assert "dx: it was inconclusive while it was red, and would be green" in str(rejudged.reason)
    wrong = changed("dgamma", explanation="unexplained")["outputs"]["dgamma"]
    beside = {**stored, "outputs": {**stored["outputs"], "dgamma": wrong}}
    decided = again(beside, DECLARED, declared=RED)
    assert decided.verdict is Verdict.pass_by_tolerance  # whatever dx is


def test_a_job_with_a_reference_build_is_judged_by_the_difference() -> None:
    case, reference = Case.of(under(DECLARED)), pairs.Reference("last-block-only", "tt-train")
    outputs, others = case.emulated("tt-train-2025"), case.emulated("last-block-only")

    def compared(test: TestSpec) -> SeedJudgement:
        alone = judged(test, "tt-train-2025")
        return pairs.compare(test, alone, case.raw, case.given, outputs, others, reference)

    stored = compared(under(DECLARED)).to_json()
    for atol in (1e-3, 0.06):
        tolerance = {"rtol": 0.01, "atol": atol}
        assert again(stored, tolerance).verdict == compared(under(tolerance)).verdict


def test_between_the_bounds_a_seed_is_undecided_and_says_why() -> None:
    numbers = row()["outputs"]["dx"]
    points = known_points(numbers, under(DECLARED).tolerance_for("dx"))
    low, high = bounds(points, 5e-3)
    assert 0 < low < high
    rejudged = again(row(), {"dx": {"rtol": 5e-3, "atol": (low + high) / 2}})
    assert rejudged.verdict is None
    assert str(rejudged.reason) == (
        "dx: the atol needed with rtol 0.005 isn't stored, and its neighbors don't decide;"
        f" stored for rtol {', '.join(numbers['needed_atol'])}"
    )
