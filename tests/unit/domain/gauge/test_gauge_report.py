"""The gauge's parts, its report as a pure function of stored rows, and the line that repeats it."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gauge_results import numbers
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.gauge import advice, comparators, kernels, windows
from gonogo.gauge.comparators import Comparator, above
from gonogo.gauge.kernels import RIGHT_KERNELS, Kind, planned
from gonogo.gauge.report import Sharpness, report
from gonogo.gauge.summary import MeasuredRate, MeasuredTest, alike
from gonogo.reports.check_line import gauge_line
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import within
from gonogo_workers.messages.chunk import gauge_parts
from numeric_cases import spec
from property_examples import examples

ATOL = Comparator("allclose", 1e-3)
TEST = spec(tolerance={"dx": {"rtol": 1e-3, "atol": 0.5}})


def right(error: float, *, part: str = "correct", seed: int = 0, **more: Any) -> dict[str, Any]:
    """Return the row of a right kernel; more may be its `edge`, or numbers of its output."""
    edge = more.pop("edge", None)
    edges = None if edge is None else {"dx": {**numbers(edge), "alarm": 0.0}}
    outputs = {"dx": {**numbers(error), "explanation": "explained", **more}}
    about = {"kind": "go", "able": None, "verdict": "pass", "explanation": "explained"}
    return {"part": part, "seed": seed, **about, "outputs": outputs, "edges": edges}


def wrong(error: float, part: str = "bug", *, able: bool = True, **more: Any) -> dict[str, Any]:
    about = {"kind": "no_go", "able": able, "explanation": "unexplained"}
    return {**right(error, part=part, **{"explanation": "unexplained", **more}), **about}


def window(gauge: MeasuredTest) -> Any:
    return next(window for window in gauge.windows if window.comparison == ATOL)


# rates


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
    bugs = [wrong(0.03, seed=seed, able=seed != 2) for seed in range(3)]
    gauge = report(TEST, [right(0.01, edge=0.02), *bugs])
    bug = gauge.misses.parts["bug"]
    assert (bug.count, bug.of, bug.cannot_show) == (2, 2, 1)
    assert (bug.unexplained.count, bug.unexplained.of) == (3, 3)
    assert (gauge.blind, gauge.sharpness) == (["bug"], Sharpness.blunt)
    assert "bug on every seed" in gauge.words


def test_a_right_kernel_outside_the_tolerance_is_a_false_alarm() -> None:
    tight = spec(tolerance={"dx": {"rtol": 1e-3, "atol": 0.005}})
    gauge = report(tight, [right(0.01, edge=0.02), wrong(0.05)])
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(1, 1)
    assert gauge.sharpness is Sharpness.sharp


def test_runs_without_numbers_count_into_no_rate() -> None:
    crash = {"verdict": "crash", "explanation": "not_judged", "outputs": {}}
    gauge = report(TEST, [right(0.01, edge=0.02), {**right(0.01, seed=1), **crash}])
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(0, 1)
    assert gauge.broken == {"correct": 1}
    assert gauge.sharpness is Sharpness.unmeasured
    nothing = report(TEST, [])
    assert nothing.sharpness is Sharpness.unmeasured
    assert (nothing.false_alarms.rate, nothing.advice.works) == (None, False)


# windows and advice


def test_the_window_lies_between_what_right_kernels_need_and_what_wrong_ones_need() -> None:
    rows = [right(0.01, edge=0.0214), right(0.015, part="other"), wrong(0.05), wrong(0.08, "worse")]
    gauge = report(TEST, rows)
    summary = window(gauge)
    assert summary.works
    dx = summary.outputs["dx"]
    assert (dx.lower, dx.observed, dx.upper) == (0.0214, 0.015, pytest.approx(0.05))
    assert summary.room == pytest.approx(0.05 / 0.0214)
    assert (summary.single.lower, summary.single.upper) == (0.0214, 0.05)
    assert (gauge.advice.works, gauge.advice.tolerance["dx"]["atol"]) == (True, 0.022)
    advised = Tolerance(**gauge.advice.tolerance["dx"])
    greens = [within(advised, stored_row["outputs"]["dx"]) for stored_row in rows]
    assert greens == [True, True, False, False]


def test_an_observation_beyond_the_analytic_edge_moves_it() -> None:
    gauge = report(TEST, [right(0.04, edge=0.02), wrong(0.05)])
    assert window(gauge).outputs["dx"].lower == 0.04


def test_a_narrow_window_gets_the_digits_that_it_needs() -> None:
    limits = report(TEST, [right(0.02, edge=0.02141), wrong(0.02144)]).advice
    assert (limits.works, limits.tolerance["dx"]["atol"]) == (True, 0.02141)
    limits = report(TEST, [right(0.02, edge=0.021412345), wrong(0.02141235)]).advice
    assert (limits.works, limits.tolerance["dx"]["atol"]) == (True, 0.021412345)


def test_an_exact_output_costs_another_s_narrow_window_no_digits() -> None:
    rows = [right(0.02141), wrong(0.02144)]
    for row in rows:
        row["outputs"]["dgamma"] = {**numbers(0.0), "explanation": "exact"}
    summary = window(report(spec(), rows))
    assert summary.works
    assert not windows.rejects({ATOL: summary.tolerance}, rows[0])
    assert windows.rejects({ATOL: summary.tolerance}, rows[1])


def test_without_a_window_the_advice_says_so_and_names_what_is_missed() -> None:
    limits = report(TEST, [right(0.01, edge=0.02), wrong(0.05), wrong(0.011, "subtle")]).advice
    assert (limits.works, limits.missed, limits.rejected) == (False, {"subtle": 1}, ["bug"])
    assert "No tolerance works with these inputs" in limits.words


def test_another_comparator_is_added_for_what_it_rejects_beyond_the_first() -> None:
    bug = wrong(0.05, rel_frobenius=0.01, pcc_deficit=0.0, ulp_max=0.0)
    gauge = report(TEST, [right(0.01, edge=0.02), bug, wrong(0.011, "spread", rel_frobenius=0.5)])
    assert not any(window.works for window in gauge.windows)
    assert gauge.advice.works
    assert {"atol", "frobenius"} <= set(gauge.advice.tolerance["dx"])


def test_nan_is_rejected_by_every_comparator_and_a_right_kernel_s_nan_leaves_no_window() -> None:
    nan = {**numbers(0.0), "nonfinite": 3}
    assert all(comparator.deviation(nan) == math.inf for comparator in comparators.comparators())
    gauge = report(TEST, [right(0.01, edge=0.02, nonfinite=3), wrong(0.05)])
    assert not any(window.outputs for window in gauge.windows)
    assert gauge.false_alarms.parts["correct"] == MeasuredRate.counted(1, 1)
    assert "No tolerance can be advised" in gauge.advice.words


def test_one_tolerance_that_any_output_exceeds_is_a_rejection() -> None:
    limits = {ATOL: {"dx": {"rtol": 1e-3, "atol": 0.02}}}
    assert windows.rejects(limits, wrong(0.03))
    assert not windows.rejects(limits, wrong(0.01))


def test_the_words_of_an_advice_spell_the_tolerance() -> None:
    assert advice.spelled({"dx": {"rtol": 0.001, "atol": 0.014}}) == "dx: rtol 0.001, atol 0.014"


@settings(max_examples=examples(200), deadline=None)
@given(st.floats(min_value=1e-30, max_value=1e30), st.integers(2, 6))
def test_rounding_up_never_rounds_down(value: float, digits: int) -> None:
    assert value <= above(value, digits) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


ERRORS = st.one_of(st.just(0.0), st.floats(min_value=1e-12, max_value=1e6))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ERRORS, max_size=12), st.lists(st.tuples(ERRORS, st.booleans()), max_size=12))
def test_what_is_advised_passes_every_right_kernel_and_misses_exactly_what_it_says(
    right_errors: list[float], wrong_errors: list[tuple[float, bool]]
) -> None:
    go = [right(error, seed=seed, edge=error) for seed, error in enumerate(right_errors)]
    no_go = [
        wrong(error, f"bug {seed % 3}", seed=seed, able=able)
        for seed, (error, able) in enumerate(wrong_errors)
    ]
    gauge = report(TEST, [*go, *no_go])
    assert gauge.words
    if gauge.advice.tolerance:
        advised = Tolerance(**gauge.advice.tolerance["dx"])
        green = [row for row in [*go, *no_go] if within(advised, row["outputs"]["dx"])]
        passed = [row["part"] for row in green if row["able"]]
        assert all(row in green for row in go)
        assert {part: passed.count(part) for part in passed} == gauge.advice.missed


# arithmetics


def test_what_no_seed_of_a_kernel_could_have_shown_stands_beside_its_arithmetic() -> None:
    rows = [right(0.01, seed=seed, edge=0.02) for seed in range(2)]
    rows[1]["outputs"]["dx"]["detection_limits"] = ["a common factor below 0.1 %", "gamma in bf16"]
    gauge = report(TEST, [*rows, wrong(0.05)])
    (dx,) = gauge.arithmetic["correct"]
    assert (dx.output, dx.arithmetic, dx.seeds) == ("dx", "fused", 2)
    assert dx.detection_limits == ["a common factor below 0.1 %"]
    (bug,) = gauge.arithmetic["bug"]
    assert (bug.arithmetic, bug.closest, bug.detection_limits) == (None, "fused", [])


def test_kernels_with_equal_arithmetics_stand_together() -> None:
    assert alike({"a": 1}) == [("a", 1)]
    assert alike({"a": 1, "b": 1}) == [("all kernels", 1)]
    groups = alike(dict.fromkeys("abcde", 1) | {"f": 2})
    assert groups == [("a, b, c and 2 more", 1), ("f", 2)]


# the plan


@pytest.mark.parametrize("kernel", ["layernorm_bw", "groupnorm_fw", "softmax", "matmul", "adam"])
def test_every_part_of_a_kernel_is_planned_under_its_name_and_kind(kernel: str) -> None:
    test = spec(kernel, (8, 8) if kernel == "groupnorm_fw" else (8, 64))
    plan = {part.name: (part.kind, part.build) for part in planned(test)}
    parts = [*kernels.right(test), *kernels.wrong(test)]
    assert {part.name: (part.kind, part.build) for part in parts}.items() <= plan.items()
    assert {part.name for part in parts if part.kind is Kind.go} <= set(RIGHT_KERNELS)


def test_a_worker_knows_the_test_s_parts_and_says_which_it_has_not() -> None:
    test = spec("layernorm_fw", (8, 64), numerics={"fidelity": "hifi3"})
    listed = [{"number": number, **asdict(part)} for number, part in enumerate(planned(test))]
    parts = gauge_parts({"parts": listed}, test, "emulator") or {}
    known: dict[str, Any] = {listed[number]["name"]: part for number, part in parts.items()}
    assert known["hifi3"] is known["hang"] is known["drop-s1"] is None
    assert (known["stale-register"].unsure, known["reversed"].turned) == (True, True)


def test_a_worker_takes_parts_of_others_and_refuses_those_that_are_none() -> None:
    test, part = spec("layernorm_fw", (8, 64)), {"number": 7, "name": "mine:x", "kind": "no_go"}
    foreign = {**part, "executor": "mine", "build": "x"}
    foreign_part: Any = (gauge_parts({"parts": [foreign]}, test, "foreign_part") or {})[7]
    assert (foreign_part.kind, foreign_part.build, foreign_part.unsure) == (Kind.no_go, "x", True)
    assert gauge_parts(None, test, "mine") is None
    for parts in ([], [{**foreign, "kind": "x"}], [{**foreign, "number": -1}]):
        with pytest.raises(FieldError):
            gauge_parts({"parts": parts}, test, "mine")
    with pytest.raises(FieldError):
        gauge_parts(3, test, "mine")


GROUPS = {"kernel": "groupnorm_fw", "shape": [1, 4, 8], "parameters": {"num_groups": 2}}
SEVERAL = {"rtol": 0.01, "pcc": 0.99, "ulp": 8}
NORM = {"kernel": "layernorm_bw", "shape": [4, 40], "numerics": {"fidelity": "hifi3"}}
BY_OUTPUT = {"dx": {"rtol": 0.001, "atol": 0.5}, "dbeta": {"frobenius": 0.1}}


@pytest.mark.parametrize(
    ("test", "fields"),
    [
        (GROUPS, {"epsilon": 1e-5, "tolerance": SEVERAL}),
        (NORM, {"inputs": {"regime": "normal", "mean": 0, "std": 2}, "tolerance": BY_OUTPUT}),
    ],
)
def test_the_line_measures_the_same_test_again(test: dict[str, Any], fields: Any) -> None:
    canonical = TestSpec.parse({**test, **fields}).canonical()
    line = shlex.split(gauge_line(canonical, start=3, count=1))
    assert line[0] == "gonogo"
    result = CliRunner().invoke(app, [*line[1:], "--no-search", "--json"])
    measured = json.loads(result.stdout)
    assert (measured["test"], measured["seeds"]) == (canonical, 1)


def test_a_tolerance_is_given_once() -> None:
    twice = ["gauge", "--shape", "4,40", "--atol", "1", "--tolerance", '{"atol": 1}']
    assert "tolerance" in str(CliRunner().invoke(app, twice).exception)
