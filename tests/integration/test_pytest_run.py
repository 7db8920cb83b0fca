"""Anybody's pytest with the plug-in: seeds, hollow passes in the summary, strict mode, the SQLite file, a server, pytest-xdist."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
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
from plugged import Run as Pytest
from plugged import environment, in_a_process, in_this_process

from gonogo.inputs import generate, quantise
from gonogo.numerics.formats import round_to
from gonogo.numerics.layernorm import reference
from gonogo.recorded import Comparison
from gonogo.reports import lines
from gonogo.tests import TestSpec
from gonogo_pytest import server, spool, surroundings
from gonogo_pytest.__main__ import main
from gonogo_pytest.collecting import Collector
from gonogo_pytest.delivery import catch_up
from gonogo_pytest.local import LocalFile
from gonogo_pytest.records import Record, encoded, new_id
from gonogo_pytest.spool import PREFIX, Run

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

    def test_red(): gonogo.compare(np.float32([1.0, 2.5]), [1.0, 2.0], atol=1e-3, rtol=0)
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


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Pytest:
    """pytest within this process."""
    return in_this_process(monkeypatch)


def test_without_a_server_the_numbers_of_each_seed_go_into_a_file(project: Path, run: Pytest) -> None:
    said = run(project, "--gonogo-seeds=2", "--gonogo-build=b1", "-m", "not slow")
    assert said[0].split()[0] == ".H.H.F.."
    summary = said[said.index(next(line for line in said if "gonogo: 1 hollow" in line)) :]
    assert summary[1] == "HOLLOW test_kernel.py::test_backward[double-subtract] seeds 0-1"
    assert summary[2].startswith("  layernorm_bw [1, 32, 64]: pass_by_tolerance (budget of tt-train). Green and wrong")
    assert (
        "unjudged: test_kernel.py::test_loose seed 5: the tolerance is 1,680,000 times fp32's own rounding, of which 0.005 was used" in said
    )
    red = "unjudged: test_kernel.py::test_red: the tolerance is 12,600 times fp32's own rounding, and the error 500 times the tolerance"
    assert red in said
    assert "6 comparisons of 4 tests: 2 pass, 2 pass_by_tolerance, 2 unjudged" in said
    assert said[-1].startswith("1 failed, 5 passed, 2 hollow")
    with sqlite3.connect(project / ".gonogo.sqlite") as file:
        tests = file.execute("SELECT name, seed, outcome FROM tests ORDER BY number").fetchall()
        hollow = file.execute("SELECT verdict, within, budget_ratio FROM outputs WHERE verdict <> 'pass' AND output = 'dx'").fetchall()
        (header,) = file.execute("SELECT header FROM runs").fetchone()
        told = [json.loads(line) for (line,) in file.execute("SELECT line FROM tests ORDER BY number")]
    file.close()
    assert not list(project.glob(f"{PREFIX}*")), "it is in the file"
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
    said = in_a_process(project, *options, "--gonogo-suite=nightly", "--gonogo-label=branch=main")
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


KILLED = """
    import gonogo, os, pathlib, pytest, signal, time

    def test_fine(gonogo_seed): gonogo.compare([1.0, 2.0], [1.0, 2.001], rtol=0.1)
    def test_red(): assert 0

    @pytest.fixture
    def compared(): gonogo.compare([1.0], [1.0])

    def test_kills_pytest(gonogo_seed, compared):
        (spool,) = pathlib.Path().glob(".gonogo-unsent-*")
        while '"node":"test_suite.py::test_kills_pytest[seed0]","record"' not in spool.read_text():
            time.sleep(0.01)  # another process's file: nothing to wait on
        os.kill(os.getppid(), signal.SIGKILL)
    """
"""pytest-xdist's controller is killed by a test in one of its processes, which end with it."""


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_killed_run_and_one_whose_server_is_away_are_told_once_by_the_next(
    tmp_path: Path, run: Pytest, free_port: int, capfd: Any
) -> None:
    folder, url = tmp_path / "suite", f"http://127.0.0.1:{free_port}"
    folder.mkdir()
    file = folder / "test_suite.py"
    file.write_text(dedent(KILLED))
    in_a_process(folder, "-p", "xdist.plugin", "-n1", f"--gonogo={url}", "--gonogo-seeds=1", status=-signal.SIGKILL)
    (killed,) = folder.glob(f"{PREFIX}*")
    file.write_text("def test_fine(): pass\n")
    said = run(folder, f"--gonogo={url}", status=0)
    assert said[-3].startswith(f"not delivered: {url} can't be reached: "), said
    (away,) = set(folder.glob(f"{PREFIX}*")) - {killed}
    assert said[-2] == f"numbers: {away.name}; the next run delivers them, or `python -m gonogo_pytest`"
    assert main([str(folder)]) == 3
    assert capfd.readouterr().out.count("not delivered: ") == 1, "who is away is asked once"
    kept = {path: path.read_bytes() for path in (killed, away)}

    def jobs() -> dict[str, dict[str, int]]:
        return {each["id"]: each["outcomes"] for each in client.get("/api/v1/jobs").json()["items"]}

    with on_port(f"sqlite:///{tmp_path / 'gonogo.sqlite'}", port=free_port) as (client, _):
        run(folder, "--gonogo=other.sqlite", status=0)
        assert not jobs(), "they were for another place"
        said = run(folder, f"--gonogo={url}", status=0)
        assert [line.partition(":")[0] for line in said[-4:-1]] == ["numbers", "delivered, too", "delivered, too"], said
        assert ", which was killed: " in said[-3]
        told = jobs()
        assert sorted(told.values(), key=len) == [{"passed": 1}, {"passed": 1}, {"passed": 1, "failed": 1, "crash": 1}]
        (job,) = [job for job, outcomes in told.items() if "crash" in outcomes]
        (first, *_) = client.get(f"/api/v1/jobs/{job}/results").json()["items"]
        assert first["outputs"]["test_suite.py::test_kills_pytest"]["message"].startswith(spool.KILLED)
        assert "test_suite.py::test_kills_pytest/actual" in first["outputs"], "the numbers of the phases before"
        assert not list(folder.glob(f"{PREFIX}*"))
        for path, data in kept.items():  # it was killed again, before it had heard the server's answer
            path.write_bytes(data)
        assert main([str(folder)]) == 0
        assert jobs() == told
        assert not list(folder.glob(f"{PREFIX}*"))


def test_the_example_of_the_documentation_says_what_stands_there(tmp_path: Path, run: Pytest) -> None:
    text = (ROOT / "docs/pytest.md").read_text()
    (tmp_path / "test_ln.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    shown = text.partition("$ pytest -q\n")[2].partition("```")[0].splitlines()
    said = run(tmp_path, status=0)

    def without_numbers(lines: list[str]) -> list[str]:
        return [re.sub(r"\d[\d.]*(e[-+]\d+)?", "N", line) for line in lines]

    assert said[0].split()[0] == shown[0].split()[0]
    assert without_numbers(said[1:-2]) == without_numbers(shown[1:-2])
    assert said[-1].partition(" in ")[0] == shown[-1].partition(" in ")[0]


def finished(folder: Path, to: str, **header: str) -> Collector:
    """A run with one test at its end."""
    collector = Collector(lambda: {"format": "gonogo", "version": 1, "suite": "s", **header}, root=folder, to=to, asked=True)
    collector._add(Record("t.py::test", "passed", seed=1, comparisons=[Comparison(outputs={"actual": {"max_abs": 1.0}})]))
    collector.pytest_sessionfinish(0)
    return collector


def test_what_a_server_never_takes_is_set_aside(tmp_path: Path, service: httpx.Client) -> None:
    url = str(service.base_url)
    refused = finished(tmp_path, url, format="other")
    assert refused.ended[0].startswith(f"not delivered: {url} answers 422: lines.1.format")
    (path,) = tmp_path.iterdir()
    assert refused.ended[1:] == [f"numbers: {path.name}"]
    assert path.suffix == spool.REFUSED
    (told,) = finished(tmp_path, url).ended
    assert told.startswith(f"numbers: {url}/jobs/")
    (again,) = catch_up(tmp_path)
    assert not again[0]
    assert next(catch_up(tmp_path, to=str(tmp_path / "kept.sqlite")))[0], "where everything may be kept"
    assert [each.name for each in tmp_path.iterdir()] == ["kept.sqlite"], "its spool is deleted"


def test_a_run_that_goes_on_is_no_left_over_and_a_damaged_file_is_said(tmp_path: Path) -> None:
    code = "from pathlib import Path; from gonogo_pytest.spool import Spool; s = Spool(Path(), 'r1', 'x', {}); print(1); input()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "1\n"
        assert not list(spool.left_over(tmp_path))
        other.stdin.close()
    (left,) = spool.left_over(tmp_path)
    left.path.write_text("{}\n[]\n")
    ((worked, words),) = catch_up(tmp_path)
    assert not worked
    assert words.startswith(f"{left.path.name} can't be read: not what a run of pytest leaves")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("t.py::ü\udfff", "failed", seed=3, repeat=1, duration_ms=0.1, measurements={"x": math.nan}, line=7)
    record.comparisons.append(Comparison(name="a", outputs={"dx": {"max_abs": 1 / 3, "needed_atol": {"0.1": 2e-300}}}))
    file = spool.Spool(tmp_path, "r1", "x", {"suite": "s"})
    for number in range(2):  # run again by a plug-in
        file.began("n1")
        file.heard("n1", record, done=False)
        file.heard("n1", record, done=bool(number))
    file.began("n2")
    file.ended(1, "then")
    file.close(keep=True)
    with next(iter(tmp_path.iterdir())).open("ab") as torn:
        torn.write(b'{"node":"n3","rec')
    (left,) = spool.left_over(tmp_path)
    (read,) = [each.read() for each in spool.left_over(tmp_path)]
    assert left.path.exists()
    assert (read.id, read.to, read.header, read.exit_status, read.finished_at) == ("r1", "x", {"suite": "s"}, 1, "then")
    assert [encoded(each.to_json()) for each in read.records] == [
        encoded(each.to_json()) for each in (record, Record("n2", "crash", message=spool.KILLED))
    ]


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
    path = tmp_path / "kept.sqlite"
    path.write_text("this is no database " * 10)
    first, second = finished(tmp_path, str(path)).ended
    (left,) = tmp_path.glob(f"{PREFIX}*")
    assert first == f"not delivered: {path}: file is not a database"
    assert second == f"numbers: {left.name}; the next run delivers them, or `python -m gonogo_pytest`"
    path.unlink()
    told, too = finished(tmp_path, str(path)).ended
    assert told.startswith(f"numbers: {path}, run ")
    assert too.startswith("delivered, too: the run of ")
    nowhere = tmp_path / "nowhere"
    assert finished(nowhere, str(path)).ended[0].startswith(f"the run can't be kept in {nowhere} until it is delivered: [Errno 2]")
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT COUNT(*), SUM(exit_status) FROM runs").fetchone() == (3, 0)
    file.close()


def test_two_processes_may_write_the_same_file_and_a_run_is_there_once(tmp_path: Path) -> None:
    header = {"started_at": "", "suite": "s"}
    with LocalFile(tmp_path / "kept.sqlite") as one, LocalFile(tmp_path / "kept.sqlite") as other:
        for name in ("run 0", "run 1"):
            for file in (one, other):
                file.add(Run(name, "", header, [Record("t.py::test", "passed")]))
    with sqlite3.connect(tmp_path / "kept.sqlite") as found:
        assert found.execute("SELECT run, number FROM tests ORDER BY run").fetchall() == [("run 0", 0), ("run 1", 0)]
    found.close()


@pytest.mark.parametrize(
    ("variables", "commit"),
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
def test_the_commit_is_what_the_ci_says(variables: dict[str, str], commit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": "b" * 40}}}))
    assert surroundings.commit_of(variables) == commit
