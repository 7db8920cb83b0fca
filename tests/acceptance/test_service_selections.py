"""Tests that exist already, through the whole service: HTTP in, a real GoogleTest program, stored
results, the page, the command."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import documented
import forked
from gonogo.cli.kit.client import Client
from gtest_programs import BEHAVIOURS, LAYERNORM, builds_file
from patience import scaled
from records import pick
from running_service import Service, clean_environment, family, submit, until
from servers import RedisServer

TARGET = {"executor": "gtest", "arch": "wormhole", "board": "n150"}


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
    gtest_programs: dict[str, Path],
) -> Iterator[Service]:
    """Yield one service with a gtest worker for all jobs: a test that crashes or hangs must not
    spoil the next."""
    folder = tmp_path_factory.mktemp("selections")
    builds = builds_file(folder, gtest_programs)
    url, limit = f"sqlite:///{folder / 'gonogo.sqlite'}", {"GONOGO_PER_SEED_DEADLINE_S": scaled(20)}
    settings = {name: str(value) for name, value in (limit | {"GONOGO_BUILDS": builds}).items()}
    service = Service(folder, url, redis_server.url, **settings)
    service.workers.clear()
    try:
        service.add_worker("gtest")
        service.start_all_but_workers()
        with service.client() as client:
            for name in (BEHAVIOURS, LAYERNORM):
                client.call("POST", "/builds", body={"name": name, "executor": "gtest"})
        yield service
    finally:
        service.close()


def run(client: Client, build: str, suite: str, count: int = 1) -> dict[str, Any]:
    """Submit a selection, wait for its end and return the job."""
    test = {"selection": {"suite": suite}}
    return client.wait(submit(client, count, test=test, build=build, target=TARGET))


def items(client: Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the job's iterations in order."""
    return sorted(client.pages(f"/jobs/{job['id']}/results"), key=lambda item: item["iteration"])


def test_the_hollow_one_of_two_green_tests_is_found_out_and_its_term_named(place: Service) -> None:
    with place.client() as client:
        job = run(client, LAYERNORM, "nightly", 2)
        assert job["verdict"] == "pass_by_tolerance", f"{job}\n{place.logs()}"
        assert job["outcomes"] == {"passed": 4}
        for item in items(client, job):
            assert item["seed"] is None
            names = ("verdict", "explanation", "outcome")
            right = pick(item["outputs"]["LayerNormBackward.Right"], *names)
            wrong = pick(item["outputs"]["LayerNormBackward.SubtractsTwice"], *names)
            assert right == ("pass", "explained", "passed")
            assert wrong == ("pass_by_tolerance", "unexplained", "passed")
            dx = item["outputs"]["LayerNormBackward.SubtractsTwice/dx"]
            assert dx["tolerance_ratio"] < 1
            assert dx["rounding_ratio"] > 100
            assert dx["test"]["tolerance"]["atol"] == 0.5
            assert item["outputs"]["LayerNormBackward.SubtractsTwice/dgamma"]["verdict"] == "pass"
            assert dx["arithmetic"]
        assert [item["iteration"] for item in items(client, job)] == [0, 1]
        diagnosis = client.call("GET", f"/jobs/{job['id']}/diagnosis")
        diagnosed = "LayerNormBackward.SubtractsTwice/dx: s1 is subtracted twice"
        assert diagnosis["words"].startswith(diagnosed)
        assert diagnosis["seed"] is None
        assert diagnosis["iteration"] in {0, 1}
        (flag,) = client.pages("/flags", kind="passes_by_tolerance")
        evidence = client.call("GET", f"/flags/{flag['id']}")["evidence"]
        assert pick(evidence, "output", "seeds") == ("LayerNormBackward.SubtractsTwice/dx", 2)
        assert evidence["tolerance"]["atol"] == 0.5
        assert "--suite nightly" in evidence["check"]
        page = documented.HTTP.get(f"{place.url}/jobs/{job['id']}").text
        assert "LayerNormBackward.SubtractsTwice" in page
        assert "s1 is subtracted twice" in page
        assert "suite nightly" in page


def test_green_and_red_without_arrays_are_not_judged_and_both_are_told(place: Service) -> None:
    with place.client() as client:
        job = run(client, BEHAVIOURS, "plain", 2)
        assert job["verdict"] == "not_judged", f"{job}\n{place.logs()}"
        assert job["counts"] == {"not_judged": 2}
        assert job["outcomes"] == {"passed": 4, "failed": 4, "skipped": 4}
        first = items(client, job)[0]
        outcomes = {
            name.removeprefix("Plain."): pick(output, "verdict", "outcome")
            for name, output in first["outputs"].items()
        }
        assert outcomes == {
            "Passes": ("not_judged", "passed"),
            "FailsThreeTimesOnOneExpression": ("not_judged", "failed"),
            "FailsOnTwoExpressions": ("not_judged", "failed"),
            "SkipsItself": ("skipped", "skipped"),
            "RecordsNumbers": ("not_judged", "passed"),
            "DISABLED_IsDisabled": ("skipped", "skipped"),
        }
        thrice = first["outputs"]["Plain.FailsThreeTimesOnOneExpression"]
        (failure,) = thrice["failures"]
        assert pick(failure, "expression", "count") == ("allclose(max_diff)", 3)
        assert thrice["measurements"] == {"max_diff": 0.75}
        assert first["outputs"]["Plain.RecordsNumbers"]["measurements"]["tiles"] == 265
        assert job["diagnosis"] is None
        page = documented.HTTP.get(f"{place.url}/jobs/{job['id']}").text
        assert "allclose(max_diff)" in page
        assert "chart-seeds" not in page  # no numbers, no scatter of them
        address = f"{place.url}/api/v1/jobs/{job['id']}/results?format="
        rows = list(csv.DictReader(io.StringIO(documented.HTTP.get(f"{address}csv").text)))
        assert len(rows) == 12
        assert {(row["seed"], row["iteration"]) for row in rows} == {("", "0"), ("", "1")}
        assert {row["outcome"] for row in rows} == {"passed", "failed", "skipped"}
        lines = documented.HTTP.get(f"{address}ndjson").text.splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == [0, 1]


def test_a_hang_names_its_test_and_leaves_no_process(place: Service) -> None:
    with place.client() as client:
        job = run(client, BEHAVIOURS, "quick")
        assert job["verdict"] == "hang", f"{job}\n{place.logs()}"
        (item,) = items(client, job)
        assert {name: output["outcome"] for name, output in item["outputs"].items()} == {
            "BadHang.Before": "passed",
            "BadHang.Spins": "hang",
            "BadHang.After": "skipped",
        }
        assert "waiting for the reader kernel" in item["outputs"]["BadHang.Spins"]["message"]
        artifacts = client.pages(f"/jobs/{job['id']}/artifacts")
        assert "log" in {artifact["kind"] for artifact in artifacts}

    def is_gone() -> bool:
        processes = family(place.workers[0].pid)
        return not any("behaviours" in process.name() for process in processes)

    until(is_gone, what="the hung program's end")


def call(place: Service, *words: str, code: int) -> str:
    """Run a command against the service, check its exit code and return its stdout."""
    env = clean_environment(GONOGO_URL=place.url)
    done = forked.run(words, env, place.folder)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}{place.logs()}"
    return done.stdout


def test_the_command_submits_and_a_red_test_is_never_exit_code_0(place: Service) -> None:
    words = f"submit --executor gtest --build {BEHAVIOURS} --watch --json --fail-on hollow"
    common = words.split()
    green = json.loads(call(place, *common, "--filter", "Plain.Passes", code=0))
    assert (green["verdict"], green["outcomes"]) == ("not_judged", {"passed": 1})
    red = json.loads(call(place, *common, "--filter", "Plain.FailsOn*", code=1))
    assert (red["verdict"], red["outcomes"]) == ("not_judged", {"failed": 1})
    call(place, *common, "--filter", "Nope.*", code=1)
    shown = call(place, "results", red["id"], code=0)
    assert "Plain.FailsOnTwoExpressions" in shown
    assert "failed" in shown
    assert "filter Plain.FailsOn*" in call(place, "jobs", "list", code=0)
