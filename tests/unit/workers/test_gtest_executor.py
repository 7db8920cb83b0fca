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

import pytest_lines
from child_program import Ended
from gtest_executor import GtestExecutor
from gtest_lines import ObservedTest, OutputParser, expression, failures, measure

Make = Callable[..., GtestExecutor]
Reports = dict[str, dict[str, Any]]


@pytest.fixture
def make(gtest_programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A function that makes an executor of one of the programs, with suites."""
    executors: list[GtestExecutor] = []

    def build(
        program: str = "behaviours", *, deadline_s: float = WAIT_S, **table: Any
    ) -> GtestExecutor:
        command = [str(gtest_programs[program])] if program in gtest_programs else [program]
        entry = {"name": "b", "command": command, "options": {}, "suites": {}} | table
        monkeypatch.setenv("GONOGO_BUILD", json.dumps(entry))
        monkeypatch.setenv("GONOGO_PER_SEED_DEADLINE_S", str(deadline_s))
        executors.append(GtestExecutor("b"))
        return executors[-1]

    yield build
    for executor in executors:
        folder = vars(executor).get("folder")  # a refused build makes none
        executor.close()
        assert folder is None or not folder.exists()


def run(executor: GtestExecutor, words: str | None = None, **selection: Any) -> Reports:
    """The reports by test, in the order of the run; no test may have two."""
    how = {name: selection.pop(name) for name in ("iteration", "seed") if name in selection}
    filtered = {} if words is None else {"filter": words}
    reports = executor.report({**filtered, **selection}, **{"iteration": 0, **how})
    by_test = {report["name"]: report for report in reports}
    assert len(by_test) == len(reports)
    return by_test


def outcomes(reports: Reports) -> dict[str, str]:
    return {name.partition(".")[2] or name: one["outcome"] for name, one in reports.items()}


def test_every_test_of_a_filter_is_reported_with_its_outcome_and_numbers(make: Make) -> None:
    reports = run(make(), "Plain.*")
    assert outcomes(reports) == {
        "Passes": "passed",
        "FailsThreeTimesOnOneExpression": "failed",
        "FailsOnTwoExpressions": "failed",
        "SkipsItself": "skipped",
        "DISABLED_IsDisabled": "skipped",
        "RecordsNumbers": "passed",
        "Throws": "failed",
    }
    plain = {name.removeprefix("Plain."): report for name, report in reports.items()}
    for name, phrase in (
        ("SkipsItself", "needs two devices"),
        ("DISABLED_IsDisabled", "disabled"),
        ("Throws", "the device is busy"),
        ("FailsThreeTimesOnOneExpression", "3 times: "),
    ):
        assert phrase in plain[name]["message"]
    passes = plain["Passes"]
    assert (passes["position"], passes["duration_ms"] >= 0) == (0, True)
    (failure,) = plain["FailsThreeTimesOnOneExpression"]["failures"]
    assert (failure["expression"], failure["count"]) == ("allclose(max_diff)", 3)
    assert failure["line"] > 0
    for file in (passes["file"], failure["file"]):
        assert file.endswith("behaviours.cpp")
    expressions = [one["expression"] for one in plain["FailsOnTwoExpressions"]["failures"]]
    assert expressions == ["1 + 1 == 3", "|1.0 - 1.5| <= 0.125"]
    numbers = {"max_abs": 0.0625, "tiles": 265.0, "pcc": 0.9995, "max_diff": 1e-3}
    for name, measurements in (
        ("FailsThreeTimesOnOneExpression", {"max_diff": 0.75}),
        ("FailsOnTwoExpressions", {"max_diff": 0.5}),
        ("RecordsNumbers", numbers),
    ):
        assert plain[name]["measurements"] == measurements
    assert plain["RecordsNumbers"]["properties"] == {"kernel": "layernorm_bw"}


@pytest.mark.parametrize(
    ("words", "table", "expected"),
    [
        ("Nope.*", {}, {}),
        ("Numbers/*", {}, {"IsPositive/0": "failed", "IsPositive/1": "passed"}),
        ("BadExit.*", {}, {"LeavesInTheMiddle": "crash"}),  # though its status is 0
        ("Noise.*", {}, {"PrintsTheMarksOfAnother": "passed"}),  # which invent no test
        (
            "BadCrash.*",
            {"options": {"isolated": True}},
            {"Before": "passed", "Segfaults": "crash", "After": "passed"},
        ),
    ],
)
def test_each_test_of_a_program_is_told_once(
    make: Make, words: str, table: dict[str, Any], expected: dict[str, str]
) -> None:
    assert outcomes(run(make(**table), words)) == expected


def test_a_crash_keeps_what_had_finished_and_names_what_was_running(make: Make) -> None:
    reports = run(make(), "BadCrash.*")
    assert outcomes(reports) == {"Before": "passed", "Segfaults": "crash", "After": "skipped"}
    assert "SIGSEGV" in reports["BadCrash.Segfaults"]["message"]
    assert "about to crash" in reports["BadCrash.Segfaults"]["message"]
    assert "BadCrash.Segfaults" in reports["BadCrash.After"]["message"]
    at_the_end = run(make(), "BadEnd.*")
    assert outcomes(at_the_end) == {"CrashesAtTheEnd": "passed", "(exit)": "crash"}
    assert "SIGABRT" in at_the_end["(exit)"]["message"]


def test_a_hang_names_the_test_that_was_running_before_the_worker_gives_up(make: Make) -> None:
    reports = run(make(deadline_s=scaled(1.5)), "BadHang.*")
    assert outcomes(reports) == {"Before": "passed", "Spins": "hang", "After": "skipped"}
    assert "waiting for the reader kernel" in reports["BadHang.Spins"]["message"]
    quick = make(suites={"quick": {"filter": "BadHang.Spins", "timeout_s": 0.5}})
    assert outcomes(run(quick, suite="quick")) == {"Spins": "hang"}


GREEN = {"First": "passed", "NeedsFirst": "passed"}
RED = {"First": "passed", "NeedsFirst": "failed"}


@pytest.mark.parametrize(
    ("suite", "expected", "positions"),
    [
        ({"order": ["Order.First", "Order.NeedsFirst"]}, GREEN, [0, 1]),
        ({"filter": "Order.N*"}, {"NeedsFirst": "failed"}, [0]),
        ({"filter": "Order.First:Order.NeedsFirst", "isolated": True}, RED, [0, 0]),
        (
            {"order": ["Order.First", "Order.NotYetWritten"]},
            {"First": "passed", "NotYetWritten": "not_run"},
            None,
        ),
    ],
    ids=["in one process", "alone", "isolated", "absent"],
)
def test_a_group_runs_in_its_order_in_one_process_and_isolated_tests_have_one_each(
    make: Make, suite: dict[str, Any], expected: dict[str, str], positions: list[int] | None
) -> None:
    reports = run(make(suites={"group": suite}), suite="group")
    assert outcomes(reports) == expected
    if positions is not None:
        assert [report["position"] for report in reports.values()] == positions


def test_a_filter_narrows_a_suite_and_never_widens_it(make: Make) -> None:
    group = ["Order.First", "Order.NeedsFirst"]
    executor = make(suites={"plain": {"filter": "Plain.*"}, "group": {"order": group}})
    for suite, words, expected in (
        ("plain", "*.Passes:Order.*", {"Passes": "passed"}),
        ("group", "*.First", {"First": "passed"}),
        ("plain", "Order.*", {}),
    ):
        assert outcomes(run(executor, words, suite=suite)) == expected


def test_a_seed_shuffles_and_the_same_one_gives_the_same_order(make: Make) -> None:
    executor, words = make(), "Plain.*:Order.*"
    orders = [
        tuple(run(executor, words, shuffle=True, iteration=turn, seed=seed))
        for turn, seed in enumerate((1, 2, 3, 2))
    ]
    assert orders[1] == orders[3]
    assert len({*orders}) > 1
    assert len({frozenset(order) for order in orders}) == 1


@pytest.mark.parametrize(
    ("seed", "iteration", "outcome"), [(None, 4, "passed"), (None, 5, "failed"), (6, 5, "passed")]
)
def test_a_test_can_ask_for_the_seed_or_the_iteration(
    make: Make, seed: int | None, iteration: int, outcome: str
) -> None:
    reports = run(make(), "Order.Flickers", iteration=iteration, seed=seed)
    assert outcomes(reports) == {"Flickers": outcome}


def test_arrays_are_handed_over_with_their_test_from_threads_and_processes(make: Make) -> None:
    executor = make("layernorm")
    reports = run(executor, "LayerNormBackward.*", iteration=3)
    assert {*outcomes(reports).values()} == {"passed"}  # the gate is blind to the wrong one
    for report in reports.values():
        (dump,) = report["dumps"]
        assert (dump["kernel"], dump["arithmetic"]) == ("layernorm_bw", None)
        assert dump["fields"]["shape"] == [1, 1, 64, 1024]
        assert set(dump["tensors"]) == {"x", "gamma", "dy", "dx", "dgamma", "dbeta"}
        assert all(Path(file).exists() for file in dump["tensors"].values())
    reports = run(executor, "Dumper.*", iteration=4)
    together = reports["Dumper.HandsOverFromThreadsAndProcesses"]["dumps"]
    names = {f"thread {n}" for n in range(4)} | {f"process {n}" for n in range(2)}
    assert {dump["name"] for dump in together} == names
    refused = reports["Dumper.RefusesAWrongSizeAndFailsNoTest"]
    assert (refused["outcome"], refused["dumps"]) == ("passed", [])
    assert "x has 3 values" in refused["message"]
    run(executor, "LayerNormBackward.Right", iteration=5)
    assert len(list(executor.folder.iterdir())) == 2  # the files of the last iterations


def test_a_build_that_cannot_be_run_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "plain-text").write_text("no program")
    with pytest.raises(FileNotFoundError, match="/nowhere/ttml_tests"):
        make("/nowhere/ttml_tests")
    with pytest.raises(PermissionError, match="plain-text"):
        make(str(tmp_path / "plain-text"))
    with pytest.raises(ValueError, match="has no gtest build 'b'"):
        make(name="another")
    with pytest.raises(RuntimeError, match="can't list its tests"):
        run(make("/bin/false"))


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
        ({"suite": "backwards"}, r"Order\.First, Order\.NeedsFirst"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(
    make: Make, selection: dict[str, Any], message: str
) -> None:
    group = ["Order.First", "Order.NeedsFirst"]
    suites = {"group": {"order": group[:1]}, "backwards": {"order": group[::-1]}}
    with pytest.raises(ValueError, match=message):
        run(make(suites=suites), seed=1, **selection)


def test_the_environment_cannot_change_what_is_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"FILTER": "BadCrash.*", "TOTAL_SHARDS": "3", "SHARD_INDEX": "2", "REPEAT": "5"}
    for name, value in variables.items():
        monkeypatch.setenv(f"GTEST_{name}", value)
    assert len(run(make(), "Plain.*")) == 7


ALLCLOSE = "xt::allclose(metal_dx_flat, dx_ref, 1.0e-3F, 5e-1F)"
EQUAL = "Expected equality of these values:\n  a\n    Which is: 1\n  b\n    Which is: 2"
NEAR = "The difference between a and b is 0.5, which exceeds 0.125, where\na evaluates to 1,"
THROWN = 'C++ exception with description "oh" thrown in the test body.'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"Value of: {ALLCLOSE}\n  Actual: false\nExpected: true", ALLCLOSE),
        (EQUAL, "a == b"),
        ("Expected: (worst) < (limit), actual: 3 vs 2", "(worst) < (limit)"),
        (NEAR, "|a - b| <= 0.125"),
        ("Failed\nmax_diff was too large", "max_diff was too large"),
        (THROWN, THROWN),
    ],
)
def test_what_was_asserted_is_read_from_a_failure(message: str, expected: str) -> None:
    assert expression(message) == expected


def test_the_public_nightly_failure_is_one_expression_three_times() -> None:
    """The lines of the bug report that this project began with."""
    failure = [
        "/tt-train/tests/ops/layernorm_bw_fused_op_test.cpp:183: Failure",
        *(f"Value of: {ALLCLOSE}", "  Actual: false", "Expected: true"),
    ]
    name = "LayerNormBackwardOpTest.NIGHTLY_MetalLayerNormBw_LargeFeatures_NoL1Fit"
    device = "2025-12-16 13:55:34.231 | info     |           Metal | DPRINT enabled on device 0"
    parser = OutputParser()
    for line in [f"[ RUN      ] {name}", device, *failure * 3, f"[  FAILED  ] {name} (27002 ms)"]:
        parser.add_line(line)
    observed = parser.tests[name]
    assert (observed.outcome, observed.duration_ms) == ("failed", 27002.0)
    (entry,) = failures(observed)
    assert (entry["expression"], entry["count"], entry["line"]) == (ALLCLOSE, 3, 183)
    assert observed.measurements == {}


def test_a_program_s_json_gives_milliseconds_and_says_nothing_where_it_is_cut_off() -> None:
    parser = OutputParser()
    assert not parser.read('{"testsuites": [{"name": "A", "testsuite": [{"na')
    assert not parser.read("[" * 100_000)
    assert parser.tests == {}
    assert failures(ObservedTest("A.B", 0)) == []
    test = {"name": "Test", "status": "RUN", "time": "0.25s"}
    assert parser.read(json.dumps({"testsuites": [{"name": "Suite", "testsuite": [test]}]}))
    assert parser.tests["Suite.Test"].duration_ms == 250.0


def test_what_a_test_writes_in_the_place_of_its_reports_costs_no_other_test(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    done = {"event": "done", "test": "t", "outcome": "passed", "message": ""}
    done |= {"duration_ms": 1.0, "failures": [], "measurements": {}}
    events = [{"event": "collected", "tests": ["t"]}, done, {"event": "end"}]
    lines.write_text("\n".join(["[" * 100_000, *map(json.dumps, events)]))
    for name in ("deep", "nowhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "deep/manifest.json").write_text("[" * 100_000)
    (tmp_path / "nowhere/manifest.json").symlink_to("nothing")
    (report,) = pytest_lines.reports(lines, tmp_path, Ended(0, ""), 1.0)
    assert (report["name"], report["outcome"], report["dumps"]) == ("t", "passed", [])


def test_the_worst_of_several_numbers_is_kept() -> None:
    measurements: dict[str, float] = {}
    for line in ("max_diff=0.5 pcc=0.99", "max_diff=-2 pcc=0.9", "max_diff=1 pcc=0.999"):
        measure(measurements, line)
    assert measurements == {"max_diff": -2.0, "pcc": 0.9}
    for line in ("max_diff=nan", "max_diff=3"):
        measure(measurements, line)
    assert math.isnan(measurements["max_diff"])
