"""Anybody's pytest with the plug-in: seeds, hollow passes in the summary, strict mode, the SQLite
file, a server, pytest-xdist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from textwrap import dedent
from typing import Any

import httpx
import numpy as np
import pytest

from api import on_port
from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.pytest_plugin import server, spool, surroundings
from gonogo.pytest_plugin.delivery import catch_up
from gonogo.pytest_plugin.records import new_id
from gonogo.pytest_plugin.spool import PREFIX
from gonogo.reports import lines
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from pytest_plugin import Run as Pytest
from pytest_plugin import environment, finished, in_a_process, in_this_process

ROOT = Path(__file__).parents[3]
TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 64]})
SUITE = """
    import gonogo, numpy as np, pytest

    @pytest.mark.parametrize("build", ["correct", "double-subtract"])
    def test_backward(build, gonogo_seed):
        with np.load(f"{build}-{gonogo_seed}.npz") as file:
            given = dict(file)
        inputs = {name: given[name] for name in ("x", "gamma", "dy", "mean", "rstd")}
        gonogo.compare(
            given["dx"], given["expected"], rtol=1e-3, atol=0.5, kernel="layernorm_bw",
            inputs=inputs,
        )

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
        inputs = {name: array.reshape(TEST.shape_of(name)) for name, array in given.items()}
        inputs["expected"] = exact_outputs(TEST, raw)["dx"].reshape(TEST.shape)
        for build in ("correct", "double-subtract"):
            dx = emulator.run(TEST, given, build)["dx"].reshape(TEST.shape)
            np.savez(folder / f"{build}-{seed}.npz", **inputs, dx=dx)
    return folder


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[httpx.Client]:
    """A server on a port of its own."""
    file = copyfile(sqlite_template, tmp_path_factory.mktemp("server") / "gonogo.sqlite")
    with on_port(f"sqlite:///{file}") as (client, _):
        yield client


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Pytest:
    return in_this_process(monkeypatch)


def test_without_a_server_the_numbers_of_each_seed_go_into_a_file(
    project: Path, run: Pytest
) -> None:
    output_lines = run(project, "--gonogo-seeds=2", "--gonogo-build=b1", "-m", "not slow")
    assert output_lines[0].split()[0] == ".H.H.F.."
    begin = next(place for place, line in enumerate(output_lines) if "gonogo: 1 hollow" in line)
    summary = output_lines[begin:]
    hollow_test = "HOLLOW PASS test_kernel.py::test_backward[double-subtract]"
    assert summary[1].startswith(f"{hollow_test} seeds 0-1, worst: seed ")
    judged = "Hollow pass (arithmetic: blocked sums). Green and wrong"
    assert summary[2].startswith(f"  layernorm_bw [1, 32, 64]: {judged}")
    for test, times, words in (
        ("test_loose seed 5", "1,680,000", ", of which 0.005 was used"),
        ("test_red", "12,600", ", and the error 500 times the tolerance"),
    ):
        too_wide = f"the tolerance is {times} times fp32's own rounding{words}"
        assert f"Not judged: test_kernel.py::{test}: {too_wide}" in output_lines
    assert "6 comparisons of 4 tests: 2 not judged, 2 pass, 2 hollow pass" in output_lines
    assert output_lines[-1].startswith("1 failed, 5 passed, 2 hollow")
    (path,) = project.glob(".gonogo/*.jsonl")
    header, *records = map(json.loads, path.read_text().splitlines())
    tests = [(one["name"], one.get("seed"), one["outcome"]) for one in records]
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
    hollow = [record["comparisons"][0]["outputs"]["dx"] for record in (records[1], records[3])]
    assert [output["verdict"] for output in hollow] == ["pass_by_tolerance"] * 2
    assert all(output["rounding_ratio"] > 10 for output in hollow)
    assert records[4]["measurements"] == {"seed": 5.0}
    assert header["build"] == "b1"
    report = lines.parse(path.read_bytes())  # as a server imports it
    has_test = [case.comparisons[0].test is not None for case in report.cases[:5]]
    assert has_test == [True] * 4 + [False]


AT_THE_EDGE = """
    from dataclasses import replace
    from gonogo.judging import comparison
    from gonogo.spec.verdicts import Explanation, Verdict

    judge = comparison.TestCase.judge

    def edge(case):
        answer, suspect = judge(case), (Verdict.suspect, Explanation.suspect)
        statistics = {**answer.outputs["y"].statistics, "reason": "9 deviations"}
        y = replace(answer.outputs["y"], verdict=suspect[0], explanation=suspect[1],
                    statistics=statistics)
        return replace(answer, verdict=suspect[0], explanation=suspect[1], outputs={"y": y})

    comparison.TestCase.judge = edge
    """


EDGE = """
    import gonogo, numpy as np

    def test_edge(gonogo_seed):
        x = np.random.default_rng(gonogo_seed).normal(size=(4, 64)).astype("f4")
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6))
        inputs = {"x": x, "gamma": np.ones(64, "f4")}
        gonogo.compare(y, y, rtol=1e-2, kernel="rmsnorm_fw", inputs=inputs)
    """
XDIST = ("-p", "xdist.plugin", "-n2")


@pytest.mark.parametrize(
    ("parallel", "seeds", "strict", "status"),
    [((), 1, True, 1), ((), 2, False, 0), (XDIST, 2, True, 1)],
    ids=["one seed", "two seeds", "xdist"],
)
def test_a_test_whose_every_seed_is_suspect_is_not_green(
    tmp_path: Path, parallel: tuple[str, ...], seeds: int, strict: bool, status: int
) -> None:
    (tmp_path / "conftest.py").write_text(dedent(AT_THE_EDGE))
    (tmp_path / "test_edge.py").write_text(dedent(EDGE))
    options = [*parallel, "--gonogo=off", f"--gonogo-seeds={seeds}"]
    lines = in_a_process(tmp_path, *options, *(["--gonogo-strict"] * strict), status=status)
    tests = f"test_edge.py::test_edge {'seed 0' if seeds == 1 else 'seeds 0-1'}"
    listed = [line.partition(",")[0] for line in lines if line.startswith(("HOLLOW", "SUSPECT"))]
    assert listed == [f"{'SUSPECT' if seeds == 1 else 'HOLLOW PASS'} {tests}"]
    says = "fails the run for" if strict else "would fail"
    assert f"--gonogo-strict {says} {seeds} of {seeds} tests: {tests}" in lines
    assert any("more seeds decide" in line for line in lines) is (seeds == 1)


def test_strict_and_parallel_the_server_judges_the_same(
    project: Path, service: httpx.Client
) -> None:
    options = "-p xdist.plugin -n1 --gonogo-strict --gonogo-seeds=1 --gonogo-seed-start=1"
    about = "--gonogo-suite=nightly --gonogo-label=branch=main"
    to = f"--gonogo={service.base_url}"
    output_lines = in_a_process(project, *options.split(), *about.split(), to)
    assert output_lines[-1].startswith("2 failed, 4 passed"), output_lines
    assert "HOLLOW PASS test_kernel.py::test_backward[double-subtract] seed 1" in output_lines
    (numbers_line,) = [line for line in output_lines if line.startswith("numbers: ")]
    job = service.get(f"/api/v1/jobs/{numbers_line.split()[1].rpartition('/')[2]}").json()
    assert (job["kind"], job["verdict"]) == ("import", "pass_by_tolerance")
    assert job["labels"] == {"branch": "main"}
    assert job["test"]["selection"]["suite"] == "nightly"
    results = service.get(f"/api/v1/jobs/{job['id']}/results").json()["items"]
    outputs = {name: output for row in results for name, output in row["outputs"].items()}
    hollow = outputs["test_kernel.py::test_backward[double-subtract]"]
    ended = (hollow["outcome"], hollow["verdict"], hollow["worker"][:2])
    assert ended == ("passed", "pass_by_tolerance", "gw"), "red for strictness only"
    assert outputs["test_kernel.py::test_backward[double-subtract]/dx"]["rounding_ratio"] > 10
    assert outputs["test_kernel.py::test_backward[correct]"]["verdict"] == "pass"
    assert outputs["test_kernel.py::test_loose"]["verdict"] == "not_judged"
    assert outputs["test_kernel.py::test_loose/actual"]["tolerance_roundings"] > 1e6


def test_the_example_of_the_documentation_says_what_stands_there(
    tmp_path: Path, run: Pytest
) -> None:
    text = (ROOT / "docs/pytest.md").read_text()
    code = text.partition("cat > test_ln.py <<'EOF'\n")[2].partition("EOF\n")[0]
    (tmp_path / "test_ln.py").write_text(code)
    shown = text.partition("$ pytest -q\n")[2].partition("```")[0].splitlines()
    output_lines = run(tmp_path, status=0)

    def without_numbers(lines: list[str]) -> list[str]:
        return [re.sub(r"\d[\d.]*(e[-+]\d+)?", "N", line) for line in lines]

    assert output_lines[0].split()[0] == shown[0].split()[0]
    assert without_numbers(output_lines[1:-2]) == without_numbers(shown[1:-2])
    assert output_lines[-1].partition(" in ")[0] == shown[-1].partition(" in ")[0]


ODD = """
    import gonogo, numpy as np

    ones = np.ones((8, 64), "float32")

    def compare(inputs, kernel="layernorm_fw", expected=ones):
        gonogo.compare(ones, expected, rtol=0.1, kernel=kernel, inputs=inputs)

    def test_no_kernel(): compare({"x": ones}, "l2norm_fx")
    def test_no_input(): compare({"x": ones})
    def test_no_array(): compare({"x": ones, "gamma": "ones"})
    def test_red(): compare({"x": ones}, "l2norm_fx", ones + 1)
    def test_typo(): gonogo.compare(ones, ones, rtoll=1)

    def test_own(gonogo_seed):
        x = np.random.default_rng(gonogo_seed).normal(size=(16, 256)).astype("float32")
        y = x.astype("float64") / np.sqrt((x.astype("float64") ** 2).sum(-1, keepdims=True) + 1e-6)
        off = (y * (1.02 + 0.01 * gonogo_seed)).astype("float32")
        inputs = {"x": x, "gamma": np.ones(256, "float32")}
        gonogo.compare(off, y, rtol=0.1, kernel="l2norm_fw", inputs=inputs, name="own kernel")

    def test_its_own_assertion(): gonogo.compare("l2norm_fx", x=ones, y=ones)
    """


@pytest.mark.usefixtures("examples_installed")
def test_what_cant_be_judged_changes_no_outcome_and_has_one_line(
    tmp_path: Path, run: Pytest
) -> None:
    (tmp_path / "test_odd.py").write_text(dedent(ODD))
    output = run(tmp_path, "--tb=short", "--gonogo=off")
    assert output[0].split()[0] == "...FFHHHF"
    start = next(number for number, line in enumerate(output) if "gonogo: 1 hollow" in line)
    places = [line for line in output[:start] if re.match(r"[\w/.]+:\d+: in ", line)]
    shown = [line.split(": in ")[1] for line in places]
    only = "of a traceback only the test's lines are shown"
    assert shown == ["test_red", "compare", "test_typo", "test_its_own_assertion"], only
    problems = [line for line in output if line.startswith("NOT JUDGED ")]
    unknown = "test.kernel: unknown value; did you mean 'l2norm_"
    for line, test, words in zip(
        problems,
        ("no_kernel", "no_input", "no_array", "red", "its_own_assertion"),
        (
            unknown,
            "gamma, beta missing: layernorm_fw needs x, gamma, beta",
            "TypeError: gamma must be an array of real numbers; got str of <U4",
            *(unknown, unknown),
        ),
        strict=True,
    ):
        assert line.startswith(f"NOT JUDGED test_odd.py::test_{test}: {words}")
    hollow = "test_odd.py::test_own seeds 0-2"
    assert output[start + 1] == f"HOLLOW PASS {hollow} (own kernel), worst: seed 2"
    assert "tolerance_ratio 0.4" in output[start + 3], "the worst seed's numbers"
    strict = f"--gonogo-strict would fail 3 of 9 tests: {hollow}"
    assert strict in output
    failing = run(tmp_path, "--gonogo=off", "--gonogo-strict")
    assert failing[0].split()[0] == "...FFFFFF"
    assert not [line for line in failing if "would fail" in line]
    warned = run(tmp_path, "--gonogo=off", "--gonogo-compare=warn", "-k", "its_own", status=0)
    assert any(f"ComparisonWarning: not judged: {unknown}" in line for line in warned)


def test_what_a_server_never_takes_is_set_aside(tmp_path: Path, service: httpx.Client) -> None:
    url = str(service.base_url)
    refused = finished(tmp_path, url, format="other")
    assert refused.ended[0].startswith(f"not delivered: {url} answers 422: lines.1.format")
    (path,) = tmp_path.iterdir()
    assert refused.ended[1:] == [f"numbers: {path.name}"]
    assert path.suffix == spool.REFUSED
    path.rename(path.with_suffix(""))  # as if it had been killed before
    numbers_line, earlier_line = finished(tmp_path, url).ended
    assert numbers_line.startswith(f"numbers: {url}/jobs/")
    assert earlier_line.startswith("not delivered: the run of ")
    assert len(finished(tmp_path, url).ended) == 1, "it is not tried again"
    (again,) = catch_up(tmp_path)
    assert not again[0]
    assert next(catch_up(tmp_path, to=str(tmp_path / "kept")))[0], "where everything may be kept"
    assert [file.name for file in tmp_path.iterdir()] == ["kept"], "its spool is deleted"


def test_what_a_server_refuses_is_said_in_its_words(service: httpx.Client) -> None:
    with pytest.raises(server.Undelivered, match=r"answers 422: .*lines\.1\.format"):
        server.send(str(service.base_url), new_id(), b'{"format":"other"}', [])
    with pytest.raises(server.Undelivered, match="answers 404"):
        server.send(f"{service.base_url}/elsewhere", new_id(), b"{}", [])


def test_a_large_run_is_several_imports(
    service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BYTES", 200)
    line = json.dumps({"name": "t.py::test_%d", "outcome": "passed"})
    run, header = new_id(), b'{"format": "gonogo", "version": 1, "suite": "large"}'
    sent = [(line % number).encode() for number in range(9)]
    answers, again = (server.send(str(service.base_url), run, header, sent) for _ in range(2))
    assert [answer["tests"] for answer in answers] == [3, 3, 3]
    ids = [[answer["id"] for answer in every] for every in (answers, again)]
    assert ids[0] == ids[1], "sent twice, stored once"


GITHUB = {"GITHUB_SHA": "a" * 40, "GITHUB_REPOSITORY": "org/name"}
GITLAB = {"CI_PROJECT_PATH": "org/name"}


@pytest.mark.parametrize(
    ("variables", "commit"),
    [
        ({}, None),
        (GITHUB, ("a" * 40, None)),
        ({**GITHUB, "GITHUB_EVENT_PATH": "event.json"}, ("b" * 40, 7)),
        ({**GITLAB, "CI_COMMIT_SHA": "c" * 40, "CI_MERGE_REQUEST_IID": "3"}, ("c" * 40, 3)),
        ({**GITLAB, "CI_COMMIT_SHA": "../x"}, None),
    ],
)
def test_the_commit_is_what_the_ci_says(
    variables: dict[str, str], commit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if commit is not None:
        commit = {"repository": "org/name", "sha": commit[0], "pull_request": commit[1]}
    monkeypatch.chdir(tmp_path)
    pull = {"number": 7, "head": {"sha": "b" * 40}}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": pull}))
    assert surroundings.commit_of(variables) == commit


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--gonogo=localhost:8717", "'localhost:8717' would be a folder; a server's address"),
        ("--gonogo=htp://x", "'htp://x' would be a folder; a server's address begins with http://"),
        ("--gonogo=test_one.py", "'test_one.py' is a file; it takes a server or a folder"),
        ("--gonogo=test_one.py::test_one", "'test_one.py::test_one' is a file"),
        ("--gonogo-seeds=0", "argument --gonogo-seeds: must be at least 1; got '0'"),
    ],
)
def test_an_option_that_would_do_something_else_is_refused(
    tmp_path: Path, option: str, words: str
) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(gonogo_seed): pass")
    command = [sys.executable, "-m", "pytest", "-p", "gonogo.pytest_plugin.plugin", "-q", option]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_one.py"]
