"""`gonogo check`: the report, the exit codes, and kernels that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.judging import judging
from gonogo.judging.inputs import generate
from gonogo.judging.judging import SeedJudgement
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.cli import check
from patience import WAIT_S

EXAMPLES = Path(__file__).parents[3] / "examples" / "numpy_executor"
PLUGIN = """
import os, numpy as np

class Kernels:
    def __init__(self, build):
        if build == "misspelt":
            raise ValueError(f"unknown build {build!r}")
        if build == "no-driver":
            raise OSError("no driver")
        self.build = build
        self.runs = 0

    def run(self, test, inputs):
        self.runs += 1
        x = inputs["x"].astype("f8")
        mean = x.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + test.get("epsilon", 1e-6))
        y = (x - mean) * rstd * inputs["gamma"] + inputs["beta"]
        outputs = {"y": y, "mean": mean[..., 0], "rstd": rstd[..., 0]}
        outputs = {name: np.asarray(value, np.float32) for name, value in outputs.items()}
        if self.build == "raises" and self.runs == 2:
            raise RuntimeError("no such op")
        if self.build == "shape":
            outputs["y"] = outputs["y"][:1]
        if self.build == "missing":
            del outputs["mean"]
        if self.build == "nan":
            outputs["y"].flat[5] = np.nan
        if self.build == "dies" and self.runs == 2:
            os._exit(7)
        if self.build == "wrong":
            outputs["y"] = outputs["y"] * np.float32(1.25)
        return outputs
"""

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Return a function that calls the command in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["check", *arguments])

    return call


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor `mine` whose builds are the ways in which a kernel can misbehave."""
    (tmp_path / "my_kernels.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GONOGO_EXECUTORS", "mine=my_kernels:Kernels,gone=no_such_module:Kernels")


def report(result: Result) -> dict[str, Any]:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    check_report: dict[str, Any] = json.loads(result.stdout)
    return check_report


FORWARD = ("--kernel", "layernorm_fw", "--shape", "2,3,64", "--executor", "mine", "--json")


def test_a_right_kernel_passes_and_the_report_has_the_contracts_form(run: Run) -> None:
    words = "--shape 2,20,64 --build correct --seeds 2 --seed-start 7 --repeats 2 --json"
    result = run(*words.split())
    check_report = report(result)
    assert result.exit_code == 0
    assert list(check_report) == ["verdict", "counts", "seeds", "diagnosis"]
    assert (check_report["verdict"], check_report["counts"], check_report["diagnosis"]) == (
        "pass",
        {"pass": 4},
        None,
    )
    assert [(row["seed"], row["repeat"]) for row in check_report["seeds"]] == [
        (7, 0),
        (7, 1),
        (8, 0),
        (8, 1),
    ]
    first, again, other, _ = check_report["seeds"]
    assert {
        "seed",
        "repeat",
        "verdict",
        "explanation",
        "device",
        "host_run",
        "position",
        "duration_ms",
        "kernel_s",
        "outputs",
    } <= set(first)
    assert [row["position"] for row in check_report["seeds"]] == [0, 1, 2, 3]
    assert list(first["outputs"]) == ["dx", "dgamma", "dbeta"]
    assert first["outputs"]["dx"]["verdict"] == "pass"
    assert first["outputs"]["dx"]["digest"] == again["outputs"]["dx"]["digest"]
    assert first["outputs"]["dx"]["digest"] != other["outputs"]["dx"]["digest"]


WRONG = ("--shape", "3,100,512", "--build", "tt-train-2025")
GREEN = ("--rtol", "1e-3", "--atol", "0.5")


def test_a_green_and_wrong_kernel_is_a_pass_by_tolerance_with_its_diagnosis(run: Run) -> None:
    result = run(*WRONG, *GREEN, "--json")
    check_report = report(result)
    assert result.exit_code == 1
    assert check_report["counts"] == {"pass_by_tolerance": 1}
    assert check_report["seeds"][0]["outputs"]["dx"]["tolerance_ratio"] < 1
    assert check_report["seeds"][0]["outputs"]["dgamma"]["verdict"] == "pass"
    diagnosis = check_report["diagnosis"]
    assert diagnosis["seed"] == 0
    assert diagnosis["words"].startswith(
        "dx: s1 is subtracted twice in P_centered, and s2 sums only tile 15 of 16 (counted from 0)"
    )
    assert (list(diagnosis["faults"]), diagnosis["can_tell"]) == (["dx"], True)


def test_the_fault_of_an_own_kernel_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    monkeypatch.setenv("GONOGO_EXECUTORS", "numpy=numpy_executor:NumpyExecutor")
    words = ("--executor", "numpy", "--build", "no-s2", "--shape", "32,64", *GREEN)
    fp32 = ("--numerics", '{"input": "fp32", "output": "fp32"}')
    diagnosis = report(run(*words, *fp32, "--json"))["diagnosis"]
    assert diagnosis["words"].startswith("dx: share is missing in inner: explains ")


def test_people_see_the_verdict_the_ratios_and_the_diagnosis(run: Run) -> None:
    result = run(*WRONG, *GREEN)
    assert result.exit_code == 1
    fault = "s1 is subtracted twice in P_centered"
    for words in ("Hollow pass", fault, "error ÷ tolerance", "error ÷ rounding", "Green and wrong"):
        assert words in result.stdout
    assert "Traceback" not in result.output


def test_a_tight_tolerance_turns_it_red(run: Run) -> None:
    check_report = report(run(*WRONG, "--atol", "1e-4", "--json"))
    assert check_report["verdict"] == "fail"
    right = report(run("--shape", "4,64", "--build", "correct", "--atol", "1e-6", "--json"))
    assert right["verdict"] == "fail_by_tolerance"


@pytest.mark.parametrize(
    ("seeds", "is_suspect", "verdict", "code"),
    [("1", (0,), "suspect", 1), ("2", (1,), "suspect", 0), ("3", (0, 2), "pass_by_tolerance", 1)],
)
def test_seeds_that_are_suspect_together_are_not_green(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    seeds: str,
    is_suspect: tuple[int, ...],
    verdict: str,
    code: int,
) -> None:
    judge, words = judging.judge, ("--shape", "4,64", "--build", "correct", "--seeds", seeds)
    small = TestSpec.parse({"kernel": "layernorm_bw", "shape": [4, 64]})
    drawn = {generate(small, seed)["x"].tobytes() for seed in is_suspect}

    def edge(test: TestSpec, raw: Any, *arguments: Any, **named: Any) -> SeedJudgement:
        judged = judge(test, raw, *arguments, **named)
        if raw["x"].tobytes() not in drawn:
            return judged
        suspect: Any = {"verdict": Verdict.suspect, "explanation": Explanation.suspect}
        outputs = {**judged.outputs, "dx": replace(judged.outputs["dx"], **suspect)}
        return replace(judged, **suspect, outputs=outputs)

    monkeypatch.setattr(judging, "judge", edge)
    result = run(*words, "--json")
    assert (report(result)["verdict"], result.exit_code) == (verdict, code)
    shown = run(*words).stdout
    assert ("more seeds decide" in shown) is (verdict == "suspect")
    assert ("dx: suspect in 2 of 3 seeds" in shown) is (verdict != "suspect")


@pytest.mark.parametrize(
    ("fail_on", "code"), [("any", 1), ("suspect", 1), ("hollow", 1), ("new", 1), ("fail", 0)]
)
def test_fail_on_says_what_makes_the_exit_code(run: Run, fail_on: str, code: int) -> None:
    words = "--shape 64,256 --build tt-train-2025 --json --fail-on"
    assert run(*words.split(), fail_on).exit_code == code


def test_inputs_numerics_and_the_other_comparators_reach_the_test(run: Run) -> None:
    inputs = '{"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}'
    words = "--shape 1,2048 --build double-subtract --epsilon 1e-6 --pcc 0.99 --json --inputs"
    check_report = report(run(*words.split(), inputs))
    assert check_report["seeds"][0]["outputs"]["dx"]["max_abs"] == 1000
    assert check_report["seeds"][0]["outputs"]["dx"]["pcc_deficit"] is None
    assert check_report["verdict"] == "fail", "an undefined PCC isn't met"


BAD = [
    (("--shape", "0,4"), "test.shape.0"),
    (("--shape", "four"), "test.shape"),
    (("--shape", "9000,9000"), "test.shape"),
    (("--shape", "4,4", "--rtol", "nan"), "test.tolerance.rtol"),
    (("--shape", "4,4", "--ulp", "-1"), "test.tolerance.ulp"),
    (("--shape", "4,4", "--epsilon", "0"), "test.epsilon"),
    (("--shape", "4,4", "--kernel", "softmx"), "test.kernel"),
    (("--shape", "4,4", "--inputs", "{"), "test.inputs"),
    (("--shape", "4,4", "--numerics", '{"input": "int8"}'), "test.numerics.input"),
    (("--shape", "4,4", "--seed-start", str(2**53 - 1), "--seeds", "2"), "seeds"),
    (("--shape", "4,4", "--deadline", "nan"), "deadline"),
    (("--shape", "4,4", "--executor", "nope"), "executor"),
    (("--shape", "4,4", "--build", "nope"), "build"),
    (("--shape", "4,4", "--kernel", "layernorm_fw", "--build", "group-boundaries"), "build"),
    (("--shape", "4,4", "--kernel", "layernorm_fw", "--build", "drop-s1"), "build"),
    (("--shape", "4,4", "--kernel", "rmsnorm_fw", "--build", "double-subtract"), "build"),
    (("--shape", "4,4", "--build", "half-groups", "--seeds", "2"), "build"),
    (("--shape", "4,4", "--reference-build", "mean-last-tile-missing"), "reference_build"),
]


@pytest.mark.parametrize(("arguments", "field"), BAD)
def test_bad_input_names_its_field_and_runs_nothing(
    run: Run, arguments: tuple[str, ...], field: str
) -> None:
    result = run("--build", "correct", *arguments, "--json")
    assert isinstance(result.exception, FieldError), result.output
    assert result.exception.field == field
    assert result.stdout == ""


def test_the_limit_of_elements_is_a_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_MAX_ELEMENTS", "100")
    result = run("--shape", "4,64", "--build", "correct")
    assert "allowed: 100 elements" in str(result.exception)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("build", "verdicts", "message"),
    [
        ("right", ["pass", "pass"], None),
        ("raises", ["pass", "error"], "no such op"),
        ("shape", ["error", "error"], "[2, 3, 64]"),
        ("missing", ["error", "error"], "mean"),
        ("nan", ["fail", "fail"], None),
        ("wrong", ["pass_by_tolerance"] * 2, None),
        ("dies", ["pass", "crash"], "status 7"),
    ],
)
def test_a_plug_in_may_do_anything_and_each_seed_gets_its_word(
    run: Run, build: str, verdicts: list[str], message: str | None
) -> None:
    result = run(*FORWARD, "--build", build, "--seeds", "2")
    check_report = report(result)
    assert [row["verdict"] for row in check_report["seeds"]] == verdicts
    assert result.exit_code == int(set(verdicts) != {"pass"})
    if message is not None:
        assert message in check_report["seeds"][-1]["message"]
        assert check_report["seeds"][-1]["outputs"] == {}
    if build == "nan":
        assert check_report["seeds"][0]["outputs"]["y"]["nonfinite"] == 1


@pytest.mark.usefixtures("plugin")
def test_after_a_crash_the_next_seed_runs_in_a_fresh_child(run: Run) -> None:
    rows = report(run(*FORWARD, "--build", "dies", "--seeds", "3"))["seeds"]
    assert [(row["verdict"], row["position"]) for row in rows] == [
        ("pass", 0),
        ("crash", 1),
        ("pass", 0),
    ]
    assert rows[0]["host_run"] == rows[1]["host_run"] != rows[2]["host_run"]


@pytest.mark.usefixtures("plugin")
def test_durations_are_in_milliseconds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    quarters = count()
    monkeypatch.setattr(check, "time", SimpleNamespace(perf_counter=lambda: next(quarters) * 0.25))
    rows = report(run(*FORWARD, "--build", "dies", "--seeds", "2"))["seeds"]
    assert [(row["verdict"], row["duration_ms"]) for row in rows] == [("pass", 250), ("crash", 250)]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("--shape 4,64 --build correct --json", 0, ""),
        ("--shape 0,4 --build correct", 2, "test.shape.0: is too small (allowed: >= 1); got 0"),
        ("--shape 4,4 --build x --executor gone --json", 3, "no_such_module"),
        ("--shape 4,4 --build misspelt --executor mine", 2, "build: executor mine refuses it"),
        ("--shape 4,4 --build no-driver --executor mine", 3, "no driver"),
    ],
)
def test_the_command_s_exit_code_tells_usage_from_infrastructure_and_json_stands_alone(
    line: str, code: int, message: str
) -> None:
    done = command("check", *line.split())
    assert done.returncode == code
    assert message in done.stderr
    if code == 0:
        assert (json.loads(done.stdout)["verdict"], done.stderr) == ("pass", "")
    else:
        assert done.stdout == ""
