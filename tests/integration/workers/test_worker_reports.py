"""Selections in a worker process: a plug-in that misbehaves costs only the iterations in which it
does."""

from __future__ import annotations

from typing import Any

import pytest

from patience import WAIT_S, scaled
from worker_process import Answer, Workplace

BUILDS = """
[builds.watched]
executor = "reporting"
options = { watcher_environment = { REPORT_WATCHER = "{folder}" } }
"""


@pytest.fixture(scope="module")
def place(shared_place: Workplace) -> Workplace:
    (shared_place.folder / "builds.toml").write_text(BUILDS)
    shared_place.start(
        "reporting,troublesome",
        GONOGO_EXECUTORS="reporting=reporting:Reporting,troublesome=troublesome:Troublesome",
        GONOGO_BUILDS=str(shared_place.folder / "builds.toml"),
    )
    return shared_place


def run(place: Workplace, words: str, iterations: int = 3, **changes: Any) -> Answer:
    """Run some iterations with a filter."""
    test = {"selection": {"filter": words, **changes.pop("selection", {})}}
    build = changes.pop("build", "main")
    return place.run(build, iterations, executor="reporting", test=test, **changes)


def test_an_iteration_is_a_row_with_an_entry_per_test(place: Workplace) -> None:
    answer = run(place, "fine")
    assert answer.work == [[0, 0], [1, 0], [2, 0]], place.log()
    assert set(answer.verdicts.values()) == {"not_judged"}
    for row in answer.rows:
        assert row["outputs"]["A.B"]["outcome"] == "passed"
        assert row["outputs"]["A.B"]["seed"] is None
        assert row["outputs"]["A.B"]["deadline"] == str(scaled(20))
        assert row["position"] == row["seed"]
        assert 50 <= row["duration_ms"] < scaled(5_000)
    assert len({row["host_run"] for row in answer.rows}) == 1


@pytest.mark.parametrize(("shuffle", "seeds"), [(True, {4: 4, 5: 5}), (9, {4: 9, 5: 9})])
def test_a_controlled_seed_reaches_the_executor(
    place: Workplace, shuffle: Any, seeds: dict[int, int]
) -> None:
    answer = run(place, "fine", selection={"shuffle": shuffle}, work=[[4, 0], [5, 0]])
    assert {row["seed"]: row["outputs"]["A.B"]["seed"] for row in answer.rows} == seeds


@pytest.mark.parametrize(
    ("words", "verdict", "is_fresh", "message"),
    [
        ("hang", "hang", True, "no answer within"),
        ("crash", "crash", True, "SIGKILL"),
        ("raises", "error", False, "the suite is broken"),
        ("no-list", "error", False, "not a list"),
        ("no-json", "error", False, "JSON"),
        ("no-report", "error", False, "a report: must be an object with a name"),
        ("nothing", "not_run", False, "no test was selected"),
    ],
)
def test_a_bad_executor_costs_only_its_iteration(
    place: Workplace, words: str, verdict: str, is_fresh: bool, message: str
) -> None:
    answer = run(place, f"{words}-sometimes", seed_deadline_s=scaled(1))
    verdicts = {0: "not_judged", 1: verdict, 2: "not_judged"}
    bad = answer.failed(1, verdicts, is_fresh=is_fresh)
    assert message in bad["message"]
    assert bad["outputs"] == {}


@pytest.mark.parametrize(
    ("words", "tests", "message"),
    [
        ("hung", {"A.B": "passed", "A.C": "hang"}, "A.C hung; under"),
        ("hang", {}, "no answer within"),
    ],
)
def test_a_hung_test_runs_again_under_the_watcher_which_names_the_kernel(
    place: Workplace, words: str, tests: dict[str, str], message: str
) -> None:
    answer = run(place, f"{words}-sometimes", build="watched", seed_deadline_s=scaled(1))
    assert answer.verdicts == {0: "not_judged", 1: "hang", 2: "not_judged"}, place.log()
    row = next(row for row in answer.rows if row["seed"] == 1)
    assert {name: output["outcome"] for name, output in row["outputs"].items()} == tests
    assert row["message"].startswith(message)
    stuck = "under the watcher: stuck in the compute: TRISC0 runs of kernels/ln.cpp"
    assert stuck in row["message"]
    (watched,) = answer.contents("watcher")
    assert (watched["outcome"], watched["role"]) == ("hang", "compute")


def test_a_lost_test_gets_the_next_iteration_a_fresh_child_and_keeps_the_log(
    place: Workplace,
) -> None:
    answer = run(place, "lost", 2)
    assert set(answer.verdicts.values()) == {"crash"}
    outputs = answer.rows[0]["outputs"].items()
    assert {name: output["verdict"] for name, output in outputs} == {
        "A.B": "not_judged",
        "A.C": "crash",
    }
    assert len({row["host_run"] for row in answer.rows}) == 2
    assert any("iteration 0 of lost" in log["text"] for log in answer.contents("log"))


def test_a_file_that_is_no_array_is_told_and_not_shown(place: Workplace) -> None:
    (row,) = run(place, "stolen", 1).rows
    assert row["verdict"] == "error"
    assert "passwd is not a .npy file" in row["outputs"]["A.B"]["message"]
    assert "root:" not in str(row)


def test_thousands_of_tests_of_one_iteration_arrive(place: Workplace) -> None:
    (row,) = run(place, "many", 1).rows
    assert len(row["outputs"]) == 3000


@pytest.mark.parametrize(
    ("executor", "build", "changes", "message"),
    [
        ("troublesome", "fine", {"test": {"selection": {}}}, "no report()"),
        ("reporting", "main", {}, "run"),
        ("reporting", "refused", {"test": {"selection": {}}}, "no such build"),
    ],
    ids=["selection of kernels", "kernel of a reporter", "refused build"],
)
def test_what_an_executor_cannot_run_is_an_error_of_every_iteration(
    place: Workplace, executor: str, build: str, changes: dict[str, Any], message: str
) -> None:
    answer = place.run(build, 2, executor=executor, **changes)
    assert answer.verdicts == {0: "error", 1: "error"}
    assert message in answer.rows[0]["message"]


def test_a_canceled_attempt_stops_at_once(place: Workplace) -> None:
    test = {"selection": {"filter": "hang"}}
    patient = {"executor": "reporting", "seed_deadline_s": 10 * WAIT_S}
    attempt = place.publish("main", 200, test=test, **patient)
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "running")
    place.cancel(attempt)
    answer = place.wait(attempt)
    assert (answer.end["outcome"], answer.rows) == ("cancelled", [])
