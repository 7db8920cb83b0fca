"""The device, not the tests: only what passes elsewhere counts against it."""

from __future__ import annotations

from gonogo.devices.suspicion import WorkloadRuns, suspects


def tried(device: str, failing: int, tests: int, build: str = "main") -> list[WorkloadRuns]:
    """`tests` unrelated tests of 10 runs each on a device, the first `failing` of which fail."""
    return [
        WorkloadRuns(device, f"workload-{number}", build, 10, 10 if number < failing else 0)
        for number in range(tests)
    ]


def test_a_device_on_which_most_tests_fail_that_pass_elsewhere_is_suspected() -> None:
    (found,) = suspects(tried("sick", 9, 10) + tried("well", 0, 10) + tried("other", 0, 10))
    assert (found.device, found.failing, found.tests) == ("sick", 9, 10)
    assert "9 of 10 unrelated tests" in found.words
    assert found.to_json()["examples"][0] == {
        "workload": "workload-0",
        "build": "main",
        "here": [10, 10],
        "elsewhere": [0, 20],
    }


def test_eighty_percent_is_not_enough() -> None:
    assert suspects(tried("sick", 8, 10) + tried("well", 0, 10)) == []


def test_a_broken_build_is_not_the_device_s_fault() -> None:
    assert suspects(tried("one", 10, 10) + tried("two", 10, 10)) == []


def test_one_device_alone_can_t_be_compared() -> None:
    assert suspects(tried("alone", 10, 10)) == []
    assert suspects(tried("sick", 10, 10, build="new") + tried("well", 0, 10, build="old")) == []


def test_few_tests_say_nothing_and_builds_of_one_test_are_related() -> None:
    assert suspects(tried("sick", 4, 4) + tried("well", 0, 4)) == []
    many = [
        each
        for number in range(10)
        for each in tried("sick", 1, 1, f"build-{number}") + tried("well", 0, 1, f"build-{number}")
    ]
    assert suspects(many) == []


def test_no_outcomes_no_suspicion() -> None:
    assert suspects([]) == []
    assert suspects([WorkloadRuns("a", "s", "b", 0, 0)]) == []
