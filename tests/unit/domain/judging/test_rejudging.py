"""Judging again from stored numbers: it gives the verdict of the arrays, or the reason for none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.closeness import NEEDED_RTOLS
from gonogo.judging import pairs
from gonogo.judging.judging import judge
from gonogo.judging.rejudging import bounds, known_points, rejudge, within_stored
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from numeric_cases import Case, spec

DECLARED = {"rtol": 1e-3, "atol": 0.5}
BUILDS = ("correct", "tt-train-2025", "nan-tile")


def with_tolerance(test: TestSpec, tolerance: dict[str, Any]) -> TestSpec:
    return TestSpec.parse({**test.canonical(), "tolerance": tolerance})


@pytest.fixture(scope="module")
def seeds() -> dict[str, tuple[Case, dict[str, Any]]]:
    """Return a case of each build, with the row that is stored for it."""
    case = Case.of(spec(shape=(16, 96), tolerance=DECLARED))
    return {
        name: (
            case,
            judge(
                case.test,
                case.raw,
                case.given,
                case.emulated(name),
                arithmetic="tt-train",
                with_faults=False,
            ).to_json(),
        )
        for name in BUILDS
    }


def judged(case: Case, test: TestSpec, build: str) -> Verdict:
    """Return the verdict of the arrays under another tolerance."""
    arrays = case.raw, case.given, case.emulated(build)
    return judge(test, *arrays, arithmetic="tt-train", with_limits=False, with_faults=False).verdict


def is_right(stored: Verdict | None, arrays: Verdict) -> bool:
    """Return whether the verdict from stored numbers is that of the arrays, or acquits less."""
    cautious = (Verdict.inconclusive, Verdict.fail_by_tolerance)
    return stored == arrays or (stored, arrays) == cautious


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "tolerance",
    [
        *({"rtol": rtol, "atol": 0.02} for rtol in NEEDED_RTOLS),
        *({"pcc": pcc} for pcc in (0.999, 0.99999)),
        *({"frobenius": most} for most in (1e-3, 0.02)),
        *({"ulp": most} for most in (1, 1000)),
        {"dx": {"rtol": 1e-2, "atol": 1e-3}, "dgamma": {"pcc": 0.9}},
        {},
        DECLARED,
    ],
)
def test_what_is_stored_decides_as_the_arrays_do(
    seeds: dict[str, tuple[Case, dict[str, Any]]], build: str, tolerance: dict[str, Any]
) -> None:
    case, row = seeds[build]
    other_test = with_tolerance(case.test, tolerance)
    assert is_right(rejudge(row, other_test, case.test).verdict, judged(case, other_test, build))


@pytest.mark.slow
def test_an_rtol_that_is_not_stored_is_decided_right_or_not_at_all(
    seeds: dict[str, tuple[Case, dict[str, Any]]],
) -> None:
    decided = 0
    tried = 0
    for build in BUILDS[:2]:
        case, row = seeds[build]
        for rtol in (1e-4, 5e-3, 0.2):
            for atol in np.geomspace(1e-4, 0.1, 3):
                other_test = with_tolerance(case.test, {"dx": {"rtol": rtol, "atol": float(atol)}})
                rejudged = rejudge(row, other_test, case.test)
                tried += 1
                if rejudged.verdict is None:
                    assert "isn't stored" in str(rejudged.reason)
                    continue
                decided += 1
                assert is_right(rejudged.verdict, judged(case, other_test, build))
    assert decided > 0.8 * tried


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


def test_numbers_that_are_not_there_leave_it_undecided() -> None:
    assert bounds([], 0.5) == (0.0, math.inf)
    assert within_stored(Tolerance(rtol=0.0, atol=1.0), None, {"nonfinite": 0}) is None
    assert (
        within_stored(Tolerance(rtol=0.0, atol=1.0, pcc=0.9), None, {"pcc_deficit": 0.5}) is False
    )  # one failing comparator is enough
    assert within_stored(Tolerance(rtol=0.0, atol=1.0), None, {"nonfinite": 3}) is False


def test_a_seed_without_numbers_keeps_its_verdict(
    seeds: dict[str, tuple[Case, dict[str, Any]]],
) -> None:
    test = seeds["correct"][0].test
    assert rejudge({"verdict": "hang", "outputs": {}}, test, test).verdict is Verdict.hang


RED = {"dx": {"rtol": 0.01, "atol": 1e-6}}
"""Dx is red with it where it has an error at all."""


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({"hides_fault": False, "least_factor": 0.0}, "fail_by_tolerance"),
        ({"hides_fault": False, "least_factor": 0.009}, "fail_by_tolerance"),
        ({"hides_fault": False, "least_factor": 0.011}, "inconclusive"),
        ({"hides_fault": True, "least_factor": 0.0}, "inconclusive"),
        ({}, None),
    ],
)
def test_an_output_that_turns_red_is_acquitted_of_what_could_have_been_seen(
    seeds: dict[str, tuple[Case, dict[str, Any]]], limits: dict[str, Any], verdict: str | None
) -> None:
    case, row = seeds["correct"]
    stored = ("hides_fault", "least_factor")
    dx = {name: value for name, value in row["outputs"]["dx"].items() if name not in stored}
    dx |= limits
    changed = {**row, "outputs": {**row["outputs"], "dx": dx}}
    rejudged = rejudge(changed, with_tolerance(case.test, RED), case.test)
    assert rejudged.verdict == verdict
    if not limits:
        assert rejudged.reason == "dx: it would be red, and its detection limits aren't stored"


def test_what_was_inconclusive_while_it_was_red_is_undecided_once_it_is_green(
    seeds: dict[str, tuple[Case, dict[str, Any]]],
) -> None:
    case, row = seeds["correct"]
    declared, inconclusive = with_tolerance(case.test, RED), {"explanation": "inconclusive"}
    changed = {**row, "outputs": {**row["outputs"], "dx": row["outputs"]["dx"] | inconclusive}}
    assert rejudge(changed, declared, declared).verdict is Verdict.inconclusive
    rejudged = rejudge(changed, case.test, declared)
    assert rejudged.verdict is None
    assert "inconclusive while it was red" in str(rejudged.reason)
    wrong = changed["outputs"] | {
        "dgamma": row["outputs"]["dgamma"] | {"explanation": "unexplained"}
    }
    decided = rejudge({**row, "outputs": wrong}, case.test, declared)
    assert decided.verdict is Verdict.pass_by_tolerance  # whatever dx is


@pytest.mark.slow
def test_a_job_with_a_reference_build_is_judged_by_the_difference(
    seeds: dict[str, tuple[Case, dict[str, Any]]],
) -> None:
    case, _ = seeds["correct"]
    outputs, reference_outputs = case.emulated("tt-train-2025"), case.emulated("last-block-only")

    def compared(test: TestSpec) -> Any:
        alone = judge(
            test,
            case.raw,
            case.given,
            outputs,
            arithmetic="tt-train",
            with_limits=False,
            with_faults=False,
        )
        return pairs.compare(
            test,
            alone,
            case.raw,
            case.given,
            outputs,
            reference_outputs,
            pairs.Reference("last-block-only", "tt-train"),
        )

    row = compared(case.test).to_json()
    for atol in (1e-3, 0.03, 0.06, 0.5):
        other_test = with_tolerance(case.test, {"rtol": 0.01, "atol": atol})
        assert rejudge(row, other_test, case.test).verdict == compared(other_test).verdict


def test_between_the_bounds_a_seed_is_undecided_and_says_why(
    seeds: dict[str, tuple[Case, dict[str, Any]]],
) -> None:
    case, row = seeds["correct"]
    numbers = row["outputs"]["dx"]
    low, high = bounds(known_points(numbers, case.test.tolerance_for("dx")), 5e-3)
    assert 0 < low < high
    rejudged = rejudge(
        row, with_tolerance(case.test, {"dx": {"rtol": 5e-3, "atol": (low + high) / 2}}), case.test
    )
    assert rejudged.verdict is None
    assert str(rejudged.reason).startswith("dx: the atol needed with rtol 0.005 isn't stored")
