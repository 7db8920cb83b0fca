"""Suspect devices: only tests that pass elsewhere count against a device."""

from __future__ import annotations

import pytest

from gonogo.devices.suspicion import FailingTest, WorkloadRuns, suspects


def runs_on(device: str, failing: int, tests: int, build: str = "main") -> list[WorkloadRuns]:
    """Return 10 runs each of `tests` unrelated tests on a device; the first `failing` fail."""
    return [
        WorkloadRuns(device, f"workload-{number}", build, 10, 10 if number < failing else 0)
        for number in range(tests)
    ]


def test_a_device_on_which_most_tests_fail_that_pass_elsewhere_is_suspected() -> None:
    well = runs_on("well", 0, 10) + runs_on("other", 0, 10)
    (suspicion,) = suspects(runs_on("sick", 9, 10) + well)
    assert (suspicion.device, suspicion.failing, suspicion.tests) == ("sick", 9, 10)
    assert "9 of 10 unrelated tests" in suspicion.words
    assert suspicion.examples[0] == FailingTest("workload-0", "main", (10, 10), (0, 20))


RELATED = [
    run
    for number in range(10)
    for device, failing in (("sick", 1), ("well", 0))
    for run in runs_on(device, failing, 1, f"build-{number}")
]


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(runs_on("sick", 8, 10) + runs_on("well", 0, 10), id="80 percent"),
        pytest.param(runs_on("one", 10, 10) + runs_on("two", 10, 10), id="a broken build"),
        pytest.param(runs_on("alone", 10, 10), id="one device"),
        pytest.param(runs_on("sick", 10, 10, "new") + runs_on("well", 0, 10, "old"), id="builds"),
        pytest.param(runs_on("sick", 4, 4) + runs_on("well", 0, 4), id="few tests"),
        pytest.param(RELATED, id="builds of one test are related"),
        pytest.param([], id="no runs"),
        pytest.param([WorkloadRuns("a", "s", "b", 0, 0)], id="no outcomes"),
    ],
)
def test_without_unrelated_tests_that_pass_elsewhere_no_device_is_suspected(
    runs: list[WorkloadRuns],
) -> None:
    assert suspects(runs) == []
