"""The gauge as a pure function of stored rows: rates, windows, advice, and rows that say
nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.closeness import NEEDED_RTOLS
from gonogo.gauge import advice, comparators, windows
from gonogo.gauge.comparators import Comparator, above
from gonogo.gauge.report import Sharpness, report
from gonogo.gauge.summary import MeasuredRate, alike
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import within
from numeric_cases import spec
from property_examples import examples

ATOL = Comparator("allclose", 1e-3)


def numbers(error: float, **more: Any) -> dict[str, Any]:
    """Statistics of an output whose every metric is `error`."""
    return {
        "count": 100,
        "nonfinite": 0,
        "needed_atol": {f"{rtol:g}": error for rtol in NEEDED_RTOLS},
        "pcc_deficit": min(error**2, 2.0),
        "rel_frobenius": error,
        "ulp_max": 100 * error,
        "rounding_ratio": 1.0,
        "arithmetic": "fp32-inside",
        "detection_limits": ["a common factor below 0.3 %"],
        **more,
    }


def row(
    part: str,
    error: float,
    *,
    seed: int = 0,
    able: bool | None = None,
    edge: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    kind = "go" if able is None else "no_go"
    edges = None if edge is None else {"dx": {**numbers(edge), "alarm": 0.0}}
    explanation = "explained" if able is None else "unexplained"
    outputs = {"dx": numbers(error, explanation=explanation, **more)}
    return {
        "part": part,
        "kind": kind,
        "seed": seed,
        "able": able,
        "verdict": "pass",
        "explanation": explanation,
        "outputs": outputs,
        "edges": edges,
    }


TEST = spec(tolerance={"dx": {"rtol": 1e-3, "atol": 0.5}})


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # R: binom.test(count, of)$conf.int
    [
        (0, 3, 0.0, 0.7075982),
        (3, 3, 0.2924018, 1.0),
        (2, 12, 0.02086253, 0.4841377),
        (50, 100, 0.3983211, 0.6016789),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_that_of_clopper_and_pearson(
    count: int, of: int, low: float, high: float
) -> None:
    rate = MeasuredRate.counted(count, of)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-6)


def test_seeds_on_which_a_defect_cannot_show_are_left_out_of_its_miss_rate() -> None:
    rows = [row("correct", 0.01, edge=0.02)]
    rows += [row("bug", 0.03, seed=seed, able=seed != 2) for seed in range(3)]
    gauge = report(TEST, rows)
    bug = gauge.misses.parts["bug"]
    assert (bug.count, bug.of, bug.cannot_show) == (2, 2, 1)
    assert (bug.unexplained.count, bug.unexplained.of) == (3, 3)
    assert gauge.blind == ["bug"]
    assert gauge.sharpness is Sharpness.blunt
    assert "bug on every seed" in gauge.words


def test_the_window_lies_between_what_right_kernels_need_and_what_wrong_ones_need() -> None:
    rows = [
        row("correct", 0.01, edge=0.0214),
        row("other", 0.015),
        row("bug", 0.05, able=True),
        row("worse", 0.08, able=True),
    ]
    gauge = report(TEST, rows)
    window = next(window for window in gauge.windows if window.comparison == ATOL)
    assert window.works
    assert (window.outputs["dx"].lower, window.outputs["dx"].observed) == (0.0214, 0.015)
    assert window.outputs["dx"].upper == pytest.approx(0.05)
    assert window.room == pytest.approx(0.05 / 0.0214)
    assert (window.single.lower, window.single.upper) == (0.0214, 0.05)
    assert gauge.advice.works
    assert gauge.advice.tolerance["dx"]["atol"] == 0.022
    advised = Tolerance(**gauge.advice.tolerance["dx"])
    assert [within(advised, stored_row["outputs"]["dx"]) for stored_row in rows] == [
        True,
        True,
        False,
        False,
    ]


def test_an_observation_beyond_the_analytic_edge_moves_it() -> None:
    gauge = report(TEST, [row("correct", 0.04, edge=0.02), row("bug", 0.05, able=True)])
    window = next(window for window in gauge.windows if window.comparison == ATOL)
    assert window.outputs["dx"].lower == 0.04


def test_a_narrow_window_gets_the_digits_that_it_needs() -> None:
    gauge = report(TEST, [row("correct", 0.02, edge=0.02141), row("bug", 0.02144, able=True)])
    assert gauge.advice.works
    assert gauge.advice.tolerance["dx"]["atol"] == 0.02141


def test_without_a_window_the_advice_says_so_and_names_what_is_missed() -> None:
    gauge = report(
        TEST,
        [
            row("correct", 0.01, edge=0.02),
            row("bug", 0.05, able=True),
            row("subtle", 0.011, able=True),
        ],
    )
    assert not gauge.advice.works
    assert gauge.advice.missed == {"subtle": 1}
    assert "No tolerance works with these inputs" in gauge.advice.words
    assert gauge.advice.rejected == ["bug"]


def test_another_comparator_is_added_for_what_it_rejects_beyond_the_first() -> None:
    rows = [
        row("correct", 0.01, edge=0.02),
        row("bug", 0.05, able=True),
        row("spread", 0.011, able=True, rel_frobenius=0.5),
    ]
    rows[1]["outputs"]["dx"].update(rel_frobenius=0.01, pcc_deficit=0.0, ulp_max=0.0)
    gauge = report(TEST, rows)
    assert not any(window.works for window in gauge.windows)
    assert gauge.advice.works
    assert {"atol", "frobenius"} <= set(gauge.advice.tolerance["dx"])


def test_a_right_kernel_outside_the_tolerance_is_a_false_alarm() -> None:
    gauge = report(
        spec(tolerance={"dx": {"rtol": 1e-3, "atol": 0.005}}),
        [row("correct", 0.01, edge=0.02), row("bug", 0.05, able=True)],
    )
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(1, 1)
    assert gauge.sharpness is Sharpness.sharp


def test_nan_is_rejected_by_every_comparator_and_a_right_kernel_s_nan_leaves_no_window() -> None:
    nan = {**numbers(0.0), "nonfinite": 3}
    assert all(comparator.deviation(nan) == math.inf for comparator in comparators.comparators())
    broken = row("correct", 0.01, edge=0.02)
    broken["outputs"]["dx"]["nonfinite"] = 3
    gauge = report(TEST, [broken, row("bug", 0.05, able=True)])
    assert not any(window.outputs for window in gauge.windows)
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(1, 1)
    assert "No tolerance can be advised" in gauge.advice.words


def test_runs_without_numbers_count_into_no_rate() -> None:
    crashed = {
        "part": "correct",
        "kind": "go",
        "seed": 1,
        "able": None,
        "verdict": "crash",
        "explanation": "not_judged",
        "outputs": {},
        "edges": None,
    }
    gauge = report(TEST, [row("correct", 0.01, edge=0.02), crashed])
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(0, 1)
    assert gauge.broken == {"correct": 1}
    assert gauge.sharpness is Sharpness.unmeasured


def test_no_rows_at_all_measure_nothing() -> None:
    gauge = report(TEST, [])
    assert gauge.sharpness is Sharpness.unmeasured
    assert gauge.false_alarms.rate is None
    assert not gauge.advice.works


def test_one_tolerance_that_any_output_exceeds_is_a_rejection() -> None:
    limits = {ATOL: {"dx": {"rtol": 1e-3, "atol": 0.02}}}
    assert windows.rejects(limits, row("bug", 0.03, able=True))
    assert not windows.rejects(limits, row("bug", 0.01, able=True))


def test_what_no_seed_of_a_kernel_could_have_shown_stands_beside_its_arithmetic() -> None:
    rows = [row("correct", 0.01, seed=seed, edge=0.02) for seed in range(2)]
    rows[1]["outputs"]["dx"]["detection_limits"] = ["a common factor below 0.1 %", "gamma in bf16"]
    gauge = report(TEST, [*rows, row("bug", 0.05, able=True)])
    (dx,) = gauge.arithmetic["correct"]
    assert (dx.output, dx.arithmetic, dx.seeds) == ("dx", "fp32-inside", 2)
    assert dx.detection_limits == ["a common factor below 0.1 %"]
    (wrong,) = gauge.arithmetic["bug"]
    assert (wrong.arithmetic, wrong.closest, wrong.detection_limits) == (None, "fp32-inside", [])


def test_kernels_with_equal_arithmetics_stand_together() -> None:
    assert alike({"a": 1}) == [("a", 1)]
    assert alike({"a": 1, "b": 1}) == [("all kernels", 1)]
    groups = alike(dict.fromkeys("abcde", 1) | {"f": 2})
    assert groups == [("a, b, c and 2 more", 1), ("f", 2)]


@settings(max_examples=examples(200), deadline=None)
@given(st.floats(min_value=1e-30, max_value=1e30), st.integers(2, 6))
def test_rounding_up_never_rounds_down(value: float, digits: int) -> None:
    assert value <= above(value, digits) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


errors = st.one_of(st.just(0.0), st.floats(min_value=1e-12, max_value=1e6))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(errors, max_size=12), st.lists(st.tuples(errors, st.booleans()), max_size=12))
def test_what_is_advised_passes_every_right_kernel_and_misses_exactly_what_it_says(
    right: list[float], wrong: list[tuple[float, bool]]
) -> None:
    rows = [row("correct", error, seed=seed, edge=error) for seed, error in enumerate(right)]
    rows += [
        row(f"bug {seed % 3}", error, seed=seed, able=able)
        for seed, (error, able) in enumerate(wrong)
    ]
    gauge = report(TEST, rows)
    assert gauge.words
    if not gauge.advice.tolerance:
        return
    advised = Tolerance(**gauge.advice.tolerance["dx"])
    assert all(
        within(advised, stored_row["outputs"]["dx"])
        for stored_row in rows
        if stored_row["kind"] == "go"
    )
    passed = [
        stored_row["part"]
        for stored_row in rows
        if stored_row["able"] and within(advised, stored_row["outputs"]["dx"])
    ]
    assert {part: passed.count(part) for part in passed} == gauge.advice.missed


def test_the_words_of_an_advice_spell_the_tolerance() -> None:
    assert advice.spelled({"dx": {"rtol": 0.001, "atol": 0.014}}) == "dx: rtol 0.001, atol 0.014"
