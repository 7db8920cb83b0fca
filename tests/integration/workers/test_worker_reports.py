"""Selections in a worker process: a plug-in that misbehaves costs only the iterations in which it
does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from patience import WAIT_S, scaled
from servers import RedisServer
from worker_process import Answer, Workplace

BUILDS = """
[builds.watched]
executor = "reporting"
options = { watcher_environment = { REPORT_WATCHER = "{folder}" } }
"""


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[Workplace]:
    """One worker for the whole module."""
    place = Workplace(
        redis_server.url.removesuffix("/0") + "/6", tmp_path_factory.mktemp("reports")
    )
    (place.folder / "builds.toml").write_text(BUILDS)
    place.start(
        "reporting,troublesome",
        GONOGO_EXECUTORS="reporting=reporting:Reporting,troublesome=troublesome:Troublesome",
        GONOGO_BUILDS=str(place.folder / "builds.toml"),
    )
    yield place
    place.close()


def run(place: Workplace, words: str, iterations: int = 3, **changes: Any) -> Answer:
    """Run some iterations with a filter."""
    selection = {"filter": words, **changes.pop("selection", {})}
    return place.run(
        changes.pop("build", "main"),
        iterations,
        executor="reporting",
        test={"selection": selection},
        **changes,
    )


def test_an_iteration_is_a_row_with_an_entry_per_test(place: Workplace) -> None:
    answer = run(place, "fine")
    assert answer.work == [[0, 0], [1, 0], [2, 0]], place.log()
    assert set(answer.verdicts.values()) == {"not_judged"}
    for row in answer.rows:
        assert row["outputs"]["A.B"]["outcome"] == "passed"
        assert row["outputs"]["A.B"]["seed"] is None
        assert row["outputs"]["A.B"]["deadline"] == str(scaled(20))
        assert row["duration_ms"] >= 0
    assert [row["position"] for row in sorted(answer.rows, key=lambda row: row["seed"])] == [
        0,
        1,
        2,
    ]
    assert len({row["host_run"] for row in answer.rows}) == 1


def test_a_controlled_seed_reaches_the_executor(place: Workplace) -> None:
    varied = run(place, "fine", selection={"shuffle": True}, work=[[4, 0], [5, 0]])
    assert {row["seed"]: row["outputs"]["A.B"]["seed"] for row in varied.rows} == {4: 4, 5: 5}
    fixed = run(place, "fine", selection={"shuffle": 9}, work=[[4, 0], [5, 0]])
    assert {row["seed"]: row["outputs"]["A.B"]["seed"] for row in fixed.rows} == {4: 9, 5: 9}


@pytest.mark.parametrize(
    ("words", "verdict", "fresh", "message"),
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
    place: Workplace, words: str, verdict: str, fresh: bool, message: str
) -> None:
    answer = run(place, f"{words}-sometimes", seed_deadline_s=scaled(1))
    assert answer.verdicts == {0: "not_judged", 1: verdict, 2: "not_judged"}, place.log()
    assert answer.finished is not None
    assert answer.finished["outcome"] == "done"
    assert len({row["host_run"] for row in answer.rows}) == (2 if fresh else 1)
    bad = next(row for row in answer.rows if row["seed"] == 1)
    assert message in bad["message"]
    assert bad["outputs"] == {}


@pytest.mark.parametrize(
    ("words", "tests", "message"),
    [
        ("hung", {"A.B": "passed", "A.C": "hang"}, "A.C hung; under"),
        ("hang", {}, "no answer within LIMIT s"),
    ],
)
def test_a_hung_test_runs_again_under_the_watcher_which_names_the_kernel(
    place: Workplace, words: str, tests: dict[str, str], message: str
) -> None:
    answer = run(place, f"{words}-sometimes", build="watched", seed_deadline_s=scaled(1))
    assert answer.verdicts == {0: "not_judged", 1: "hang", 2: "not_judged"}, place.log()
    row = next(row for row in answer.rows if row["seed"] == 1)
    assert {name: output["outcome"] for name, output in row["outputs"].items()} == tests
    assert row["message"].startswith(message.replace("LIMIT", f"{scaled(1):g}"))
    assert (
        "under the watcher: stuck in the compute: TRISC0 runs of kernels/ln.cpp" in row["message"]
    )
    (watched,) = [artifact for artifact in answer.artifacts if artifact["kind"] == "watcher"]
    assert (watched["seed"], watched["content"]["outcome"], watched["content"]["role"]) == (
        1,
        "hang",
        "compute",
    )


def test_a_test_that_was_lost_gets_the_next_iteration_a_fresh_child_and_keeps_the_log(
    place: Workplace,
) -> None:
    answer = run(place, "lost", 2)
    assert set(answer.verdicts.values()) == {"crash"}
    assert {name: output["verdict"] for name, output in answer.rows[0]["outputs"].items()} == {
        "A.B": "not_judged",
        "A.C": "crash",
    }
    assert len({row["host_run"] for row in answer.rows}) == 2
    assert any(
        "iteration 0 of lost" in artifact["content"]["text"]
        for artifact in answer.artifacts
        if artifact["kind"] == "log"
    )


def test_a_file_that_is_no_array_is_told_and_not_shown(place: Workplace) -> None:
    (row,) = run(place, "stolen", 1).rows
    assert row["verdict"] == "error"
    assert "passwd is not a .npy file" in row["outputs"]["A.B"]["message"]
    assert "root:" not in str(row)


def test_thousands_of_tests_of_one_iteration_arrive(place: Workplace) -> None:
    (row,) = run(place, "many", 1).rows
    assert len(row["outputs"]) == 3000


def test_an_executor_of_kernels_says_that_it_runs_no_selections(place: Workplace) -> None:
    answer = place.run("fine", 2, executor="troublesome", test={"selection": {}})
    assert answer.verdicts == {0: "error", 1: "error"}
    assert "no report()" in answer.rows[0]["message"]


def test_a_reporter_says_that_it_runs_no_kernels(place: Workplace) -> None:
    answer = place.run("main", 2, executor="reporting")
    assert answer.verdicts == {0: "error", 1: "error"}
    assert "run" in answer.rows[0]["message"]


def test_a_refused_build_is_an_error_of_every_iteration(place: Workplace) -> None:
    answer = place.run("refused", 2, executor="reporting", test={"selection": {}})
    assert answer.verdicts == {0: "error", 1: "error"}
    assert "no such build" in answer.rows[0]["message"]


def test_a_cancelled_attempt_stops_at_once(place: Workplace) -> None:

    attempt = place.publish(
        "main",
        200,
        executor="reporting",
        test={"selection": {"filter": "hang"}},
        seed_deadline_s=10 * WAIT_S,
    )
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "running")
    place.cancel(attempt)
    answer = place.wait(attempt)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "cancelled"
    assert answer.rows == []
