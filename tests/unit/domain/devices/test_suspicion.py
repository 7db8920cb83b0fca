"""Suspect devices: only tests that pass elsewhere count against a device."""

from __future__ import annotations

from gonogo.devices.suspicion import FailingTest, WorkloadRuns, suspects


def runs_on(device: str, failing: int, tests: int, build: str = "main") -> list[WorkloadRuns]:
    """Return 10 runs each of `tests` unrelated tests on a device; the first `failing` fail."""
    return [
        WorkloadRuns(device, f"workload-{number}", build, 10, 10 if number < failing else 0)
        for number in range(tests)
    ]


def test_a_device_on_which_most_tests_fail_that_pass_elsewhere_is_suspected() -> None:
    (suspicion,) = suspects(
        runs_on("sick", 9, 10) + runs_on("well", 0, 10) + runs_on("other", 0, 10)
    )
    assert (suspicion.device, suspicion.failing, suspicion.tests) == ("sick", 9, 10)
    assert "9 of 10 unrelated tests" in suspicion.words
    assert suspicion.examples[0] == FailingTest("workload-0", "main", (10, 10), (0, 20))


def test_eighty_percent_is_not_enough() -> None:
    assert suspects(runs_on("sick", 8, 10) + runs_on("well", 0, 10)) == []


def test_a_broken_build_is_not_the_device_s_fault() -> None:
    assert suspects(runs_on("one", 10, 10) + runs_on("two", 10, 10)) == []


def test_one_device_alone_can_t_be_compared() -> None:
    assert suspects(runs_on("alone", 10, 10)) == []
    assert (
        suspects(runs_on("sick", 10, 10, build="new") + runs_on("well", 0, 10, build="old")) == []
    )


def test_few_tests_say_nothing_and_builds_of_one_test_are_related() -> None:
    assert suspects(runs_on("sick", 4, 4) + runs_on("well", 0, 4)) == []
    many = [
        workload_runs
        for number in range(10)
        for workload_runs in runs_on("sick", 1, 1, f"build-{number}")
        + runs_on("well", 0, 1, f"build-{number}")
    ]
    assert suspects(many) == []


def test_no_outcomes_no_suspicion() -> None:
    assert suspects([]) == []
    assert suspects([WorkloadRuns("a", "s", "b", 0, 0)]) == []
