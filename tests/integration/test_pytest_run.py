"""Anybody's pytest with the plug-in: seeds, hollow passes in the summary, strict mode, the SQLite file, a server, pytest-xdist."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import numpy as np
import pytest
from api import on_port

from gonogo.inputs import generate, quantise
from gonogo.numerics.formats import round_to
from gonogo.numerics.layernorm import reference
from gonogo.pytest_run import server, surroundings
from gonogo.pytest_run.collecting import Collector
from gonogo.pytest_run.local import LocalFile, new_id
from gonogo.pytest_run.records import Record
from gonogo.recorded import Comparison
from gonogo.reports import lines
from gonogo.tests import TestSpec

ROOT = Path(__file__).parents[2]
TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 64]})
SUITE = """
    import gonogo, numpy as np, pytest

    @pytest.mark.parametrize("build", ["correct", "double-subtract"])
    def test_backward(build, gonogo_seed):
        given = np.load(f"{build}-{gonogo_seed}.npz")
        inputs = {name: given[name] for name in ("x", "gamma", "dy", "mean", "rstd")}
        gonogo.compare(given["dx"], given["expected"], rtol=1e-3, atol=0.5, kernel="layernorm_bw", inputs=inputs, profile="tt-train")

    @pytest.mark.gonogo_seeds(1, start=5)
    def test_loose(gonogo, gonogo_seed):
        gonogo.measure("seed", gonogo.seed)
        gonogo.compare(np.float32([1.0, 2.0]), [1.0, 2.001], rtol=0.1)

    def test_red(): assert 0, "no numbers"
    def test_plain(): pass
    @pytest.mark.parametrize("gonogo_seed", [3])
    def test_own_seeds(gonogo_seed): assert gonogo_seed == 3
    """


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite with a right and a wrong kernel, on two seeds."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "test_kernel.py").write_text(dedent(SUITE))
    for seed in (0, 1):
        raw = generate(TEST, seed)
        given = quantise(TEST, raw)
        inputs = {name: np.asarray(array).reshape(TEST.shape_of(name)) for name, array in given.items()}
        right = reference(TEST, given)["dx"].reshape(TEST.shape)
        s1 = given["rstd"][:, None] * (given["dy"] * given["gamma"]).mean(axis=1, keepdims=True)
        for build, dx in (("correct", right), ("double-subtract", right - s1.reshape(*TEST.shape[:-1], 1))):
            expected = reference(TEST, raw)["dx"].reshape(TEST.shape)
            np.savez(folder / f"{build}-{seed}.npz", **inputs, dx=round_to(dx, "bf16"), expected=expected)
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server on a port of its own."""
    with on_port(f"sqlite:///{tmp_path_factory.mktemp('server') / 'gonogo.sqlite'}") as (client, _):
        yield client


def run(project: Path, *options: str, status: int = 1, **environment: str) -> list[str]:
    """The lines that pytest writes."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gonogo.pytest_plugin", "-p", "no:cacheprovider", "--tb=no", *options]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_"))}
    told = {**clean, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(command, cwd=project, env=told, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_without_a_server_the_numbers_of_each_seed_go_into_a_file(project: Path) -> None:
    said = run(project, "--gonogo-seeds=2", "--gonogo-build=b1", "-m", "not slow")
    assert said[0].split()[0] == ".H.H.F.."
    summary = said[said.index(next(line for line in said if "gonogo: 1 hollow" in line)) :]
    assert summary[1] == "HOLLOW test_kernel.py::test_backward[double-subtract] seeds 0-1"
    assert summary[2].startswith("  layernorm_bw [1, 32, 64]: pass_by_tolerance (budget of tt-train). Green and wrong")
    assert (
        "unjudged: test_kernel.py::test_loose seed 5: the tolerance is 1.68e+06 times fp32's own rounding, of which 0.005 was used" in said
    )
    assert "5 comparisons of 3 tests: 2 pass, 2 pass_by_tolerance, 1 unjudged" in said
    assert said[-1].startswith("1 failed, 5 passed, 2 hollow")
    with sqlite3.connect(project / ".gonogo.sqlite") as file:
        tests = file.execute("SELECT name, seed, outcome FROM tests ORDER BY number").fetchall()
        hollow = file.execute("SELECT verdict, within, budget_ratio FROM outputs WHERE verdict <> 'pass' AND output = 'dx'").fetchall()
        (header,) = file.execute("SELECT header FROM runs").fetchone()
        told = [json.loads(line) for (line,) in file.execute("SELECT line FROM tests ORDER BY number")]
    file.close()
    assert tests == [
        ("test_kernel.py::test_backward[correct]", 0, "passed"),
        ("test_kernel.py::test_backward[double-subtract]", 0, "passed"),
        ("test_kernel.py::test_backward[correct]", 1, "passed"),
        ("test_kernel.py::test_backward[double-subtract]", 1, "passed"),
        ("test_kernel.py::test_loose", 5, "passed"),
        ("test_kernel.py::test_red", None, "failed"),
        ("test_kernel.py::test_plain", None, "passed"),
        ("test_kernel.py::test_own_seeds[3]", 3, "passed"),
    ]
    assert [(verdict, within, ratio > 10) for verdict, within, ratio in hollow] == [("pass_by_tolerance", 1, True)] * 2
    assert told[4]["measurements"] == {"seed": 5.0}
    assert json.loads(header)["build"] == "b1"
    # the file's lines are those that a server imports
    report = lines.parse("\n".join([header, *map(json.dumps, told)]).encode())
    assert [case.comparisons[0].test is not None for case in report.cases[:5]] == [True, True, True, True, False]


def test_strict_and_parallel_the_server_judges_the_same(project: Path, service: httpx.Client) -> None:
    options = ["-p", "xdist.plugin", "-n1", f"--gonogo={service.base_url}", "--gonogo-strict", "--gonogo-seeds=1", "--gonogo-seed-start=1"]
    said = run(project, *options, "--gonogo-suite=nightly", "--gonogo-label=branch=main")
    assert said[-1].startswith("2 failed, 4 passed"), said
    assert "HOLLOW test_kernel.py::test_backward[double-subtract] seed 1" in said
    (told,) = [line for line in said if line.startswith("numbers: ")]
    job = service.get(f"/api/v1/jobs/{told.split()[1].rpartition('/')[2]}").json()
    assert (job["kind"], job["state"], job["verdict"], job["labels"]) == ("import", "finished", "pass_by_tolerance", {"branch": "main"})
    assert job["test"]["selection"]["suite"] == "nightly"
    results = service.get(f"/api/v1/jobs/{job['id']}/results").json()["items"]
    outputs = {name: each for row in results for name, each in row["outputs"].items()}
    hollow = outputs["test_kernel.py::test_backward[double-subtract]"]
    assert (hollow["outcome"], hollow["verdict"], hollow["worker"][:2]) == ("passed", "pass_by_tolerance", "gw"), "red for strictness only"
    assert outputs["test_kernel.py::test_backward[double-subtract]/dx"]["budget_ratio"] > 10
    assert outputs["test_kernel.py::test_backward[correct]"]["verdict"] == "pass"
    assert outputs["test_kernel.py::test_loose"]["verdict"] == "unjudged"
    assert outputs["test_kernel.py::test_loose/actual"]["tolerance_roundings"] > 1e6


def finished(path: Path, url: str, *records: Record) -> list[str]:
    """What a run with these records says at its end."""
    collector = Collector(lambda: {"format": "gonogo", "version": 1, "suite": "s", "build": "b"}, url=url, path=path, asked=True)
    collector.records += records
    collector.pytest_sessionfinish(0)
    return collector.ended


def test_what_a_server_could_not_be_told_is_kept_and_told_by_the_next_run(tmp_path: Path, service: httpx.Client) -> None:
    path, url = tmp_path / "kept.sqlite", str(service.base_url)
    record = Record("t.py::test", "passed", seed=1, comparisons=[Comparison(outputs={"actual": {"max_abs": 1.0}})])
    first, second = finished(path, "http://127.0.0.1:1", record)
    assert first.startswith("not sent: http://127.0.0.1:1 can't be reached: ")
    assert second.startswith(f"numbers: {path}, run ")
    with sqlite3.connect(path) as file:  # the server comes back at another address
        file.execute("UPDATE runs SET server = ?", (url,))
    file.close()
    told, caught_up = finished(path, url, record)
    assert told.startswith(f"numbers: {url}/jobs/")
    assert caught_up.startswith("sent, too: the run ")
    assert len(finished(path, url, record)) == 1, "once"


def test_what_a_server_refuses_is_said_in_its_words(service: httpx.Client) -> None:
    with pytest.raises(server.Unsent, match=r"answers 422: .*lines\.1\.format"):
        server.send(str(service.base_url), new_id(), b'{"format":"other"}', [])
    with pytest.raises(server.Unsent, match="answers 404"):
        server.send(f"{service.base_url}/elsewhere", new_id(), b"{}", [])


def test_a_large_run_is_several_imports(service: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 200)
    line = json.dumps({"name": "t.py::test_%d", "outcome": "passed"})
    run, header = new_id(), b'{"format": "gonogo", "version": 1, "suite": "large"}'
    answers = server.send(str(service.base_url), run, header, [(line % number).encode() for number in range(9)])
    assert [each["tests"] for each in answers] == [3, 3, 3]
    again = server.send(str(service.base_url), run, header, [(line % number).encode() for number in range(9)])
    assert [each["id"] for each in again] == [each["id"] for each in answers], "sent twice, stored once"


def test_a_file_that_can_t_be_written_stops_no_tests(tmp_path: Path) -> None:
    (tmp_path / "kept.sqlite").write_text("this is no database " * 10)
    collector = Collector(lambda: {"suite": "s"}, url=None, path=tmp_path / "kept.sqlite", asked=True)
    collector.records.append(Record("t.py::test", "passed"))
    collector.pytest_sessionfinish(0)
    assert collector.ended == [f"numbers could not be kept in {tmp_path / 'kept.sqlite'}: file is not a database"]


def test_two_processes_may_write_the_same_file(tmp_path: Path) -> None:
    files = [LocalFile(tmp_path / "kept.sqlite") for _ in range(2)]
    for number, file in enumerate(files):
        file.start(f"run {number}", {"started_at": "", "suite": "s"})
    for number, file in enumerate(files):
        file.add(f"run {number}", [(0, Record("t.py::test", "passed"))])
    assert len(list(files[0].lines("run 1"))) == 2
    for file in files:
        file.close()


@pytest.mark.parametrize(
    ("environment", "commit"),
    [
        ({}, None),
        (
            {"GITHUB_SHA": "a" * 40, "GITHUB_REPOSITORY": "org/name"},
            {"repository": "org/name", "sha": "a" * 40, "pull_request": None},
        ),
        (
            {"GITHUB_SHA": "a" * 40, "GITHUB_REPOSITORY": "org/name", "GITHUB_EVENT_PATH": "event.json"},
            {"repository": "org/name", "sha": "b" * 40, "pull_request": 7},
        ),
        (
            {"CI_COMMIT_SHA": "c" * 40, "CI_PROJECT_PATH": "group/name", "CI_MERGE_REQUEST_IID": "3"},
            {"repository": "group/name", "sha": "c" * 40, "pull_request": 3},
        ),
        ({"CI_COMMIT_SHA": "../x", "CI_PROJECT_PATH": "group/name"}, None),
    ],
)
def test_the_commit_is_what_the_ci_says(environment: dict[str, str], commit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": "b" * 40}}}))
    assert surroundings.commit_of(environment) == commit
