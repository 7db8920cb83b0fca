"""The gtest executor with real GoogleTest programs: the report of each test, and what is left when
a program ends badly."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gonogo_workers.executors.registry import CHILD
from patience import WAIT_S, scaled

sys.path.insert(0, CHILD)

from gtest_executor import GtestExecutor
from gtest_lines import ObservedTest, OutputParser, expression, failures, measure

Make = Callable[..., GtestExecutor]


@pytest.fixture
def make(gtest_programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A function that makes an executor of one of the programs, with suites."""
    executors: list[GtestExecutor] = []

    def build(
        program: str = "behaviours", *, deadline_s: float = WAIT_S, **table: Any
    ) -> GtestExecutor:
        command = [str(gtest_programs[program])] if program in gtest_programs else [program]
        monkeypatch.setenv(
            "GONOGO_BUILD",
            json.dumps({"name": "b", "command": command, "options": {}, "suites": {}} | table),
        )
        monkeypatch.setenv("GONOGO_PER_SEED_DEADLINE_S", str(deadline_s))
        executors.append(GtestExecutor("b"))
        return executors[-1]

    yield build
    for executor in executors:
        folder = vars(executor).get("folder")  # a refused build makes none
        executor.close()
        assert folder is None or not folder.exists()


def by_name(reports: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the reports by test. No test may have two."""
    by_test = {report["name"]: report for report in reports}
    assert len(by_test) == len(reports)
    return by_test


def outcomes(reports: list[dict[str, Any]]) -> dict[str, str]:
    """Return the outcomes by test, in the order of the run."""
    return {report["name"]: report["outcome"] for report in reports}


def test_every_test_of_a_filter_is_reported_with_its_outcome(make: Make) -> None:
    reports = by_name(make().report({"filter": "Plain.*"}, iteration=0))
    assert {name.removeprefix("Plain."): report["outcome"] for name, report in reports.items()} == {
        "Passes": "passed",
        "FailsThreeTimesOnOneExpression": "failed",
        "FailsOnTwoExpressions": "failed",
        "SkipsItself": "skipped",
        "DISABLED_IsDisabled": "skipped",
        "RecordsNumbers": "passed",
        "Throws": "failed",
    }
    assert reports["Plain.SkipsItself"]["message"] == "needs two devices"
    assert reports["Plain.DISABLED_IsDisabled"]["message"] == "disabled"
    assert "the device is busy" in reports["Plain.Throws"]["message"]
    assert reports["Plain.Passes"]["duration_ms"] >= 0
    assert reports["Plain.Passes"]["position"] == 0
    assert reports["Plain.Passes"]["file"].endswith("behaviours.cpp")


def test_three_failures_of_one_expression_are_one_entry_three_times(make: Make) -> None:
    (report,) = make().report({"filter": "Plain.FailsThreeTimes*"}, iteration=0)
    (failure,) = report["failures"]
    assert (failure["expression"], failure["count"]) == ("allclose(max_diff)", 3)
    assert failure["file"].endswith("behaviours.cpp")
    assert failure["line"] > 0
    assert report["measurements"] == {"max_diff": 0.75}
    assert report["message"].startswith("3 times: ")


def test_two_expressions_are_two_entries(make: Make) -> None:
    (report,) = make().report({"filter": "Plain.FailsOnTwo*"}, iteration=0)
    assert [(failure["expression"], failure["count"]) for failure in report["failures"]] == [
        ("1 + 1 == 3", 1),
        ("|1.0 - 1.5| <= 0.125", 1),
    ]
    assert report["measurements"] == {"max_diff": 0.5}


def test_properties_and_printed_numbers_are_measurements_and_other_numbers_are_not(
    make: Make,
) -> None:
    (report,) = make().report({"filter": "Plain.RecordsNumbers"}, iteration=0)
    assert report["measurements"] == {
        "max_abs": 0.0625,
        "tiles": 265.0,
        "pcc": 0.9995,
        "max_diff": 1e-3,
    }
    assert report["properties"] == {"kernel": "layernorm_bw"}


def test_a_parameter_is_part_of_the_name(make: Make) -> None:
    results = outcomes(make().report({"filter": "Numbers/*"}, iteration=0))
    assert results == {
        "Numbers/WithParameter.IsPositive/0": "failed",
        "Numbers/WithParameter.IsPositive/1": "passed",
    }


def test_nothing_selected_is_an_empty_list(make: Make) -> None:
    assert make().report({"filter": "Nope.*"}, iteration=0) == []


def test_a_crash_keeps_what_had_finished_and_names_what_was_running(make: Make) -> None:
    reports = by_name(make().report({"filter": "BadCrash.*"}, iteration=0))
    assert {name: report["outcome"] for name, report in reports.items()} == {
        "BadCrash.Before": "passed",
        "BadCrash.Segfaults": "crash",
        "BadCrash.After": "skipped",
    }
    assert "SIGSEGV" in reports["BadCrash.Segfaults"]["message"]
    assert "about to crash" in reports["BadCrash.Segfaults"]["message"]
    assert "BadCrash.Segfaults" in reports["BadCrash.After"]["message"]


def test_leaving_in_the_middle_is_a_crash_even_with_status_0(make: Make) -> None:
    assert outcomes(make().report({"filter": "BadExit.*"}, iteration=0)) == {
        "BadExit.LeavesInTheMiddle": "crash"
    }


def test_a_crash_after_the_last_test_is_reported_beside_it(make: Make) -> None:
    reports = by_name(make().report({"filter": "BadEnd.*"}, iteration=0))
    assert reports["BadEnd.CrashesAtTheEnd"]["outcome"] == "passed"
    assert reports["(exit)"]["outcome"] == "crash"
    assert "SIGABRT" in reports["(exit)"]["message"]


def test_a_hang_names_the_test_that_was_running_before_the_worker_gives_up(make: Make) -> None:
    reports = by_name(make(deadline_s=scaled(1.5)).report({"filter": "BadHang.*"}, iteration=0))
    assert {name: report["outcome"] for name, report in reports.items()} == {
        "BadHang.Before": "passed",
        "BadHang.Spins": "hang",
        "BadHang.After": "skipped",
    }
    assert "waiting for the reader kernel" in reports["BadHang.Spins"]["message"]


def test_a_suite_may_have_a_deadline_of_its_own(make: Make) -> None:
    executor = make(suites={"quick": {"filter": "BadHang.Spins", "timeout_s": 0.5}})
    assert outcomes(executor.report({"suite": "quick"}, iteration=0)) == {"BadHang.Spins": "hang"}


def test_marks_that_a_test_prints_invent_no_test(make: Make) -> None:
    assert outcomes(make().report({"filter": "Noise.*"}, iteration=0)) == {
        "Noise.PrintsTheMarksOfAnother": "passed"
    }


def test_a_named_group_runs_in_its_order_in_one_process(make: Make) -> None:
    executor = make(
        suites={
            "group": {"order": ["Order.First", "Order.NeedsFirst"]},
            "alone": {"filter": "Order.N*"},
        }
    )
    grouped = executor.report({"suite": "group"}, iteration=0)
    assert outcomes(grouped) == {"Order.First": "passed", "Order.NeedsFirst": "passed"}
    assert [report["position"] for report in grouped] == [0, 1]
    assert outcomes(executor.report({"suite": "alone"}, iteration=0)) == {
        "Order.NeedsFirst": "failed"
    }


def test_isolated_tests_have_a_process_each(make: Make) -> None:
    executor = make(suites={"alone": {"filter": "Order.First:Order.NeedsFirst", "isolated": True}})
    reports = executor.report({"suite": "alone"}, iteration=0)
    assert outcomes(reports) == {"Order.First": "passed", "Order.NeedsFirst": "failed"}
    assert [report["position"] for report in reports] == [0, 0]


def test_isolated_tests_after_a_crash_still_run(make: Make) -> None:
    results = outcomes(
        make(options={"isolated": True}).report({"filter": "BadCrash.*"}, iteration=0)
    )
    assert results == {
        "BadCrash.Before": "passed",
        "BadCrash.Segfaults": "crash",
        "BadCrash.After": "passed",
    }


def test_an_order_that_the_program_cannot_have_is_refused_with_the_one_that_it_can(
    make: Make,
) -> None:
    executor = make(suites={"backwards": {"order": ["Order.NeedsFirst", "Order.First"]}})
    with pytest.raises(ValueError, match=r"Order\.First, Order\.NeedsFirst"):
        executor.report({"suite": "backwards"}, iteration=0)


def test_a_test_of_an_order_that_the_program_has_not_is_absent(make: Make) -> None:
    executor = make(suites={"new": {"order": ["Order.First", "Order.NotYetWritten"]}})
    assert outcomes(executor.report({"suite": "new"}, iteration=0)) == {
        "Order.First": "passed",
        "Order.NotYetWritten": "not_run",
    }


def test_a_filter_narrows_a_suite_and_never_widens_it(make: Make) -> None:
    executor = make(
        suites={
            "plain": {"filter": "Plain.*"},
            "group": {"order": ["Order.First", "Order.NeedsFirst"]},
        }
    )
    assert outcomes(
        executor.report({"suite": "plain", "filter": "*.Passes:Order.*"}, iteration=0)
    ) == {"Plain.Passes": "passed"}
    assert outcomes(executor.report({"suite": "group", "filter": "*.First"}, iteration=0)) == {
        "Order.First": "passed"
    }
    assert executor.report({"suite": "plain", "filter": "Order.*"}, iteration=0) == []


def test_a_seed_shuffles_and_the_same_one_gives_the_same_order(make: Make) -> None:
    executor = make()
    shuffled = {"filter": "Plain.*:Order.*", "shuffle": True}
    orders = {
        seed: [report["name"] for report in executor.report(shuffled, iteration=seed, seed=seed)]
        for seed in (1, 2, 3)
    }
    again = [report["name"] for report in executor.report(shuffled, iteration=9, seed=2)]
    assert again == orders[2]
    assert len({tuple(order) for order in orders.values()}) > 1
    assert len({frozenset(order) for order in orders.values()}) == 1


@pytest.mark.parametrize(
    ("seed", "iteration", "outcome"), [(None, 4, "passed"), (None, 5, "failed"), (6, 5, "passed")]
)
def test_a_test_can_ask_for_the_seed_or_the_iteration(
    make: Make, seed: int | None, iteration: int, outcome: str
) -> None:
    assert outcomes(
        make().report({"filter": "Order.Flickers"}, iteration=iteration, seed=seed)
    ) == {"Order.Flickers": outcome}


def test_arrays_are_handed_over_with_their_test(make: Make) -> None:
    reports = by_name(make("layernorm").report({"filter": "LayerNormBackward.*"}, iteration=3))
    assert set(outcomes(list(reports.values())).values()) == {
        "passed"
    }  # the gate is blind to the wrong one
    for report in reports.values():
        (dump,) = report["dumps"]
        assert dump["kernel"] == "layernorm_bw"
        assert dump["fields"]["shape"] == [1, 1, 64, 1024]
        assert dump["arithmetic"] is None
        assert set(dump["tensors"]) == {"x", "gamma", "dy", "dx", "dgamma", "dbeta"}
        assert all(Path(file).exists() for file in dump["tensors"].values())


def test_arrays_of_threads_and_processes_all_arrive_and_a_refused_one_is_told(make: Make) -> None:
    reports = by_name(make("layernorm").report({"filter": "Dumper.*"}, iteration=0))
    together = reports["Dumper.HandsOverFromThreadsAndProcesses"]
    names = {f"thread {n}" for n in range(4)} | {f"process {n}" for n in range(2)}
    assert {dump["name"] for dump in together["dumps"]} == names
    refused = reports["Dumper.RefusesAWrongSizeAndFailsNoTest"]
    assert refused["outcome"] == "passed"
    assert refused["dumps"] == []
    assert "x has 3 values" in refused["message"]


def test_only_the_last_iterations_keep_their_files(make: Make) -> None:
    executor = make("layernorm")
    for iteration in range(4):
        executor.report({"filter": "LayerNormBackward.Right"}, iteration=iteration)
    assert len(list(executor.folder.iterdir())) == 2


def test_a_program_that_is_missing_is_named(make: Make) -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere/ttml_tests"):
        make("/nowhere/ttml_tests")


def test_a_program_that_cannot_be_run_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "plain-text").write_text("no program")
    with pytest.raises(PermissionError, match="plain-text"):
        make(str(tmp_path / "plain-text"))


def test_a_build_that_the_builds_file_does_not_know_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="has no gtest build 'b'"):
        make(name="another")


@pytest.mark.parametrize(
    "suite",
    [
        {"filters": "A.*"},
        {"filter": ""},
        {"order": "A.B"},
        {"order": ["A"]},
        {"order": ["A.B", "A.B"]},
        {"filter": "A.*", "order": ["A.B"]},
        {"isolated": "yes"},
        {"timeout_s": 0},
        {"timeout_s": True},
    ],
)
def test_a_suite_that_is_not_what_its_author_meant_is_refused(
    make: Make, suite: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"suites\.s"):
        make(suites={"s": suite})


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"suite": "none"}, "no suite 'none'"),
        ({"stages": ["a"]}, "no stages"),
        ({"suite": "group", "shuffle": True}, "can't be shuffled"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(
    make: Make, selection: dict[str, Any], message: str
) -> None:
    executor = make(suites={"group": {"order": ["Order.First"]}})
    with pytest.raises(ValueError, match=message):
        executor.report(selection, iteration=0, seed=1)


def test_a_program_that_is_no_test_program_is_an_error(make: Make) -> None:
    with pytest.raises(RuntimeError, match="can't list its tests"):
        make("/bin/false").report({}, iteration=0)


def test_the_environment_cannot_change_what_is_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("GTEST_FILTER", "BadCrash.*"),
        ("GTEST_TOTAL_SHARDS", "3"),
        ("GTEST_SHARD_INDEX", "2"),
        ("GTEST_REPEAT", "5"),
    ):
        monkeypatch.setenv(name, value)
    assert len(make().report({"filter": "Plain.*"}, iteration=0)) == 7


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Value of: xt::allclose(a, b, 1.0e-3F, 5e-1F)\n  Actual: false\nExpected: true",
            "xt::allclose(a, b, 1.0e-3F, 5e-1F)",
        ),
        (
            "Expected equality of these values:\n  a\n    Which is: 1\n  b\n    Which is: 2",
            "a == b",
        ),
        ("Expected: (worst) < (limit), actual: 3 vs 2", "(worst) < (limit)"),
        (
            "The difference between a and b is 0.5, which exceeds 0.125, where\na evaluates to 1,",
            "|a - b| <= 0.125",
        ),
        ("Failed\nmax_diff was too large", "max_diff was too large"),
        (
            'C++ exception with description "oh" thrown in the test body.',
            'C++ exception with description "oh" thrown in the test body.',
        ),
    ],
)
def test_what_was_asserted_is_read_from_a_failure(message: str, expected: str) -> None:
    assert expression(message) == expected


def test_the_public_nightly_failure_is_one_expression_three_times() -> None:
    """The lines of the bug report that this project began with."""
    failure = [
        "/tt-train/tests/ops/layernorm_bw_fused_op_test.cpp:183: Failure",
        "Value of: xt::allclose(metal_dx_flat, dx_ref, 1.0e-3F, 5e-1F)",
        "  Actual: false",
        "Expected: true",
    ]
    name = "LayerNormBackwardOpTest.NIGHTLY_MetalLayerNormBw_LargeFeatures_NoL1Fit"
    parser = OutputParser()
    device = (
        "2025-12-16 13:55:34.231 | info     |           Metal | "
        "DPRINT enabled on device 0, worker core (x=0,y=0)"
    )
    for line in [f"[ RUN      ] {name}", device, *failure * 3, f"[  FAILED  ] {name} (27002 ms)"]:
        parser.add_line(line)
    observed = parser.tests[name]
    assert (observed.outcome, observed.duration_ms) == ("failed", 27002.0)
    (entry,) = failures(observed)
    assert (entry["expression"], entry["count"], entry["line"]) == (
        "xt::allclose(metal_dx_flat, dx_ref, 1.0e-3F, 5e-1F)",
        3,
        183,
    )
    assert observed.measurements == {}


def test_the_seconds_of_a_program_s_report_are_milliseconds_in_ours() -> None:
    parser = OutputParser()
    test = {"name": "Test", "status": "RUN", "time": "0.25s"}
    assert parser.read(json.dumps({"testsuites": [{"name": "Suite", "testsuite": [test]}]}))
    assert parser.tests["Suite.Test"].duration_ms == 250.0


def test_the_worst_of_several_numbers_is_kept() -> None:
    measurements: dict[str, float] = {}
    for line in ("max_diff=0.5 pcc=0.99", "max_diff=-2 pcc=0.9", "max_diff=1 pcc=0.999"):
        measure(measurements, line)
    assert measurements == {"max_diff": -2.0, "pcc": 0.9}
    measure(measurements, "max_diff=nan")
    measure(measurements, "max_diff=3")
    assert math.isnan(measurements["max_diff"])


def test_a_cut_off_json_says_nothing() -> None:
    parser = OutputParser()
    assert not parser.read('{"testsuites": [{"name": "A", "testsuite": [{"na')
    assert parser.tests == {}
    assert failures(ObservedTest("A.B", 0)) == []
