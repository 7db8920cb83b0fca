"""`gonogo check`: its report, exit codes, a second build, stages, and kernels that misbehave."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gonogo.cli.app import app
from gonogo.errors import FieldError, InfrastructureError
from gonogo.judging import judging
from gonogo.judging.inputs import generate
from gonogo.judging.judging import SeedJudgement
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.cli import check, options, references
from records import pick

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
        if self.build == "nan" and self.runs == 2:
            outputs["y"].flat[5] = np.nan
        if self.build == "dies" and self.runs == 2:
            os._exit(7)
        if self.build == "wrong":
            outputs["y"] = outputs["y"] * np.float32(1.25)
        return outputs
"""
FORWARD = "--kernel layernorm_fw --shape 2,3,64 --executor mine"
WRONG = "--shape 3,20,512 --build tt-train-2025"
GREEN = "--rtol 1e-3 --atol 0.5"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor `mine` whose builds are the ways in which a kernel can misbehave."""
    (tmp_path / "my_kernels.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GONOGO_EXECUTORS", "mine=my_kernels:Kernels,gone=no_such_module:Kernels")


def run(line: str, *words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["check", *line.split(), *words])


def report(line: str, *words: str, code: int) -> dict[str, Any]:
    """Return what the command prints with --json; it must end with this exit code."""
    result = run(line, *words, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    check_report: dict[str, Any] = json.loads(result.stdout)
    return check_report


def test_a_right_kernel_passes_and_the_report_has_the_contracts_form() -> None:
    line = "--shape 2,20,64 --build correct --seeds 2 --seed-start 7 --repeats 2"
    check_report = report(line, code=0)
    assert list(check_report) == ["verdict", "counts", "seeds", "diagnosis"]
    assert pick(check_report, "verdict", "counts", "diagnosis") == ("pass", {"pass": 4}, None)
    seeds = check_report["seeds"]
    ran = [(7, 0, 0), (7, 1, 1), (8, 0, 2), (8, 1, 3)]
    assert [pick(row, "seed", "repeat", "position") for row in seeds] == ran
    names = "seed repeat verdict explanation device host_run position duration_ms kernel_s outputs"
    assert set(names.split()) <= set(seeds[0])
    assert list(seeds[0]["outputs"]) == ["dx", "dgamma", "dbeta"]
    assert seeds[0]["outputs"]["dx"]["verdict"] == "pass"
    first, again, other, _ = (row["outputs"]["dx"]["digest"] for row in seeds)
    assert first == again != other


def test_a_green_and_wrong_kernel_is_a_pass_by_tolerance_with_its_diagnosis() -> None:
    check_report = report(f"{WRONG} {GREEN}", code=1)
    assert check_report["counts"] == {"pass_by_tolerance": 1}
    outputs = check_report["seeds"][0]["outputs"]
    assert outputs["dx"]["tolerance_ratio"] < 1
    assert outputs["dgamma"]["verdict"] == "pass"
    diagnosis = check_report["diagnosis"]
    fault = "s1 is subtracted twice in P_centered"
    last_tile = "s2 sums only tile 15 of 16 (counted from 0)"
    assert diagnosis["words"].startswith(f"dx: {fault}, and {last_tile}")
    assert (diagnosis["seed"], list(diagnosis["faults"])) == (0, ["dx"])
    assert diagnosis["can_tell"] is True
    people = run(f"{WRONG} {GREEN}")
    assert people.exit_code == 1
    for words in ("Hollow pass", fault, "error ÷ tolerance", "error ÷ rounding", "Green and wrong"):
        assert words in people.stdout
    assert "Traceback" not in people.output


def test_the_fault_of_an_own_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    monkeypatch.setenv("GONOGO_EXECUTORS", "numpy=numpy_executor:NumpyExecutor")
    line = f"--executor numpy --build no-s2 --shape 32,64 {GREEN} --numerics"
    diagnosis = report(line, '{"input": "fp32", "output": "fp32"}', code=1)["diagnosis"]
    assert diagnosis["words"].startswith("dx: share is missing in inner: explains ")


def test_a_tight_tolerance_turns_it_red() -> None:
    assert report(f"{WRONG} --atol 1e-4", code=1)["verdict"] == "fail"
    right = report("--shape 4,64 --build correct --atol 1e-6", code=0)
    assert right["verdict"] == "fail_by_tolerance"


@pytest.mark.parametrize(
    ("seeds", "is_suspect", "verdict", "code"),
    [("1", (0,), "suspect", 1), ("2", (1,), "suspect", 0), ("3", (0, 2), "pass_by_tolerance", 1)],
)
def test_seeds_that_are_suspect_together_are_not_green(
    monkeypatch: pytest.MonkeyPatch, seeds: str, is_suspect: Any, verdict: str, code: int
) -> None:
    judge, line = judging.judge, f"--shape 4,64 --build correct --seeds {seeds}"
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
    assert report(line, code=code)["verdict"] == verdict
    shown = run(line).stdout
    assert ("more seeds decide" in shown) is (verdict == "suspect")
    assert ("dx: suspect in 2 of 3 seeds" in shown) is (verdict != "suspect")


def row(seed: int, explanation: str, verdict: str, estimate: float = 0.0) -> options.Row:
    """A seed with one output, and a factor of its rstd that it doesn't show alone."""
    factor = {"source": "rstd", "estimate": estimate, "deviation": 3e-7, "limit": 2.0**-22}
    judged: dict[str, Any] = {"verdict": verdict, "explanation": explanation}
    y = judged | {"common": [{**factor, "is_certain": False}]}
    return {"seed": seed, "repeat": 0, **judged, "outputs": {"y": y}}


RIGHT, EDGE = ("explained", "pass"), ("suspect", "suspect")


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(0, *EDGE), row(1, *RIGHT)], "suspect"),
        ([row(0, *EDGE), row(0, *EDGE)], "suspect"),
        ([row(0, *EDGE), row(1, *EDGE), row(2, *RIGHT)], "pass_by_tolerance"),
        ([row(0, "suspect", "fail"), row(1, *EDGE)], "fail"),
        ([row(seed, *RIGHT, 1e-6) for seed in range(2)], "pass"),
        ([row(seed, *RIGHT, 1e-6) for seed in range(4)], "pass_by_tolerance"),
        ([row(seed, "explained", "fail_by_tolerance", 1e-6) for seed in range(4)], "fail"),
    ],
    ids=["one of two", "a seed twice", "two", "red", "a factor", "that adds up", "and is red"],
)
def test_several_seeds_decide_a_test(rows: list[options.Row], verdict: str) -> None:
    together = options.summary(rows)
    assert together["verdict"] == verdict
    assert sum(together["counts"].values()) == len(rows)
    assert ("together" in together) is (verdict in ("pass_by_tolerance", "fail"))


@pytest.mark.parametrize(
    ("fail_on", "code"), [("any", 1), ("suspect", 1), ("hollow", 1), ("new", 1), ("fail", 0)]
)
def test_fail_on_says_what_makes_the_exit_code(fail_on: str, code: int) -> None:
    report(f"--shape 64,256 --build tt-train-2025 --fail-on {fail_on}", code=code)


def test_inputs_numerics_and_the_other_comparators_reach_the_test() -> None:
    inputs = '{"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}'
    line = "--shape 1,2048 --build double-subtract --epsilon 1e-6 --pcc 0.99 --inputs"
    check_report = report(line, inputs, code=1)
    dx = check_report["seeds"][0]["outputs"]["dx"]
    assert pick(dx, "max_abs", "pcc_deficit") == (1000, None)
    assert check_report["verdict"] == "fail", "an undefined PCC isn't met"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("--shape 0,4", "test.shape.0"),
        ("--shape four", "test.shape"),
        ("--shape 9000,9000", "test.shape"),
        ("--shape 4,4 --rtol nan", "test.tolerance.rtol"),
        ("--shape 4,4 --ulp -1", "test.tolerance.ulp"),
        ("--shape 4,4 --epsilon 0", "test.epsilon"),
        ("--shape 4,4 --kernel softmx", "test.kernel"),
        ("--shape 4,4 --inputs {", "test.inputs"),
        ('--shape 4,4 --numerics {"input":"int8"}', "test.numerics.input"),
        (f"--shape 4,4 --seed-start {2**53 - 1} --seeds 2", "seeds"),
        ("--shape 4,4 --deadline nan", "deadline"),
        ("--shape 4,4 --executor nope", "executor"),
        ("--shape 4,4 --build nope", "build"),
        ("--shape 4,4 --kernel layernorm_fw --build group-boundaries", "build"),
        ("--shape 4,4 --kernel layernorm_fw --build drop-s1", "build"),
        ("--shape 4,4 --kernel rmsnorm_fw --build double-subtract", "build"),
        ("--shape 4,4 --build half-groups --seeds 2", "build"),
        ("--shape 4,4 --reference-build mean-last-tile-missing", "reference_build"),
    ],
)
def test_bad_input_names_its_field_and_runs_nothing(line: str, field: str) -> None:
    result = run(f"--build correct {line} --json")
    assert isinstance(result.exception, FieldError), result.output
    assert (result.exception.field, result.stdout) == (field, "")


def test_the_limit_of_elements_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_MAX_ELEMENTS", "100")
    assert "allowed: 100 elements" in str(run("--shape 4,64 --build correct").exception)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("build", "verdicts", "message"),
    [
        ("right", ["pass", "pass"], None),
        ("raises", ["pass", "error"], "no such op"),
        ("shape", ["error", "error"], "[2, 3, 64]"),
        ("missing", ["error", "error"], "mean"),
        ("nan", ["pass", "fail"], None),
        ("wrong", ["pass_by_tolerance"] * 2, None),
        ("dies", ["pass", "crash"], "status 7"),
    ],
)
def test_a_plug_in_may_do_anything_and_each_seed_gets_its_word(
    build: str, verdicts: list[str], message: str | None
) -> None:
    code = int(set(verdicts) != {"pass"})
    rows = report(f"{FORWARD} --build {build} --seeds 2", code=code)["seeds"]
    assert [one["verdict"] for one in rows] == verdicts
    if message is not None:
        assert message in rows[-1]["message"]
        assert rows[-1]["outputs"] == {}
    if build == "nan":
        assert rows[1]["outputs"]["y"]["nonfinite"] == 1


@pytest.mark.usefixtures("plugin")
def test_after_a_crash_the_next_seed_runs_in_a_fresh_child(monkeypatch: pytest.MonkeyPatch) -> None:
    quarters = count()
    monkeypatch.setattr(check, "time", SimpleNamespace(perf_counter=lambda: next(quarters) * 0.25))
    rows = report(f"{FORWARD} --build dies --seeds 3", code=1)["seeds"]
    ran = [pick(one, "verdict", "position", "duration_ms") for one in rows]
    assert ran == [("pass", 0, 250), ("crash", 1, 250), ("pass", 0, 250)]
    assert rows[0]["host_run"] == rows[1]["host_run"] != rows[2]["host_run"]


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("--build x --executor gone", InfrastructureError, "no_such_module"),
        ("--build misspelt --executor mine", FieldError, "build: executor mine refuses it"),
        ("--build no-driver --executor mine", InfrastructureError, "no driver"),
    ],
)
def test_a_wrong_build_is_told_from_an_executor_that_cannot_start(
    line: str, kind: type[Exception], message: str
) -> None:
    result = run(f"--shape 4,4 {line} --json")
    assert isinstance(result.exception, kind)
    assert (message in str(result.exception), result.stdout) == (True, "")


LARGER = f"--kernel layernorm_bw --shape 64,416 {GREEN} --build correct --reference-build"


@pytest.mark.parametrize("other", ["correct", "double-subtract"])
def test_the_comparison_is_in_the_report_and_a_wrong_reference_is_told(other: str) -> None:
    check_report = report(f"{LARGER} {other} --seeds 2", code=0)
    assert check_report["verdict"] == "pass", "this build is right"
    is_wrong = other != "correct"
    for seed in check_report["seeds"]:
        dx = seed["outputs"]["dx"]["reference"]
        explanation = "unexplained" if is_wrong else "explained"
        assert pick(dx, "build", "explanation") == (other, explanation)
        message = "dx: rounding explains this build, not double-subtract"
        assert (message in seed.get("message", "")) is is_wrong


def test_on_a_terminal_a_table_says_how_far_two_builds_are_apart() -> None:
    output = run(f"{LARGER} bf16-accumulate").stdout
    assert "build correct compared with bf16-accumulate on emulator" in output
    assert "against bf16-accumulate" in output
    assert "elements that differ" in output
    reference = {"build": "other", "explanation": "not_judged"}
    table = references.table([{"outputs": {"y": {"reference": reference}}}])
    assert table is not None
    assert list(table.columns[1].cells) == ["not judged"]


def test_seeds_that_do_not_fit_in_memory_together_are_run_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = 2 * 64 * 416 * references.BYTES_PER_ELEMENT
    monkeypatch.setattr(references, "MAX_REFERENCE_BYTES", two)
    counts = report(f"{LARGER} correct --seeds 5 --repeats 2", code=0)["counts"]
    assert counts == {"pass": 10}


@pytest.mark.parametrize(("other", "message"), [("hang", "no answer"), ("crash", "SIGSEGV")])
def test_a_reference_that_hangs_or_crashes_is_an_error_with_its_name(
    other: str, message: str
) -> None:
    (seed,) = report(f"{LARGER} {other} --deadline 1", code=1)["seeds"]
    assert pick(seed, "verdict", "outputs") == ("error", {})
    assert f"reference build {other}: " in seed["message"]
    assert message in seed["message"]


BUILDS = """
[builds.op]
executor = "pytest"
environment = {{ PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1" }}
options = {{ root = "{root}" }}
[builds.op.suites.staged]
stages = [
    {{ name = "api", files = ["test_api.py"] }},
    {{ name = "kernels", files = ["test_kernels.py"] }},
]
"""


def test_of_a_staged_suite_the_table_and_the_blocker_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_api.py").write_text("def test_api(): pass\n")
    (tmp_path / "test_kernels.py").write_text("def test_right(): assert 0, 'wrong tile'\n")
    (tmp_path / "builds.toml").write_text(BUILDS.format(root=tmp_path))
    monkeypatch.setenv("GONOGO_BUILDS", str(tmp_path / "builds.toml"))
    staged = "--executor pytest --build op --suite staged"
    diagnosis = report(f"{staged} --seeds 2", code=1)["diagnosis"]
    statuses = {stage["name"]: stage["status"] for stage in diagnosis["stages"]["stages"]}
    assert statuses == {"api": "passed", "kernels": "failed"}
    counted = "Of 2 stages 1 passed, 2 (kernels) failed"
    blocker = "the blocker is 'kernels': no test passed, first"
    assert diagnosis["words"].startswith(f"{counted}; {blocker}")
    alone = run(f"{staged} --stage api").stdout
    assert "The stage 'api' passed." in alone
    assert "kernels" not in alone
    for line, words in (
        ("--suite stagd", "suite: unknown suite of op; did you mean 'staged'?"),
        ("--stage kernel", "stage: unknown stage of the suite staged; did you mean 'kernels'"),
    ):
        refused = run(f"{staged} {line}").exception
        assert isinstance(refused, FieldError)
        assert words in str(refused)
