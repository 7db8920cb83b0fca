"""`gonogo gauge`: one test by flags, many from a file, builds of a plug-in, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gonogo.cli.app import app
from gonogo.errors import FieldError, FieldErrors, JobError
from gonogo.gauge.tests_file import parse

PLUGIN = """
import os, numpy as np

class Kernels:
    def __init__(self, build):
        self.build = build

    def run(self, test, inputs):
        if self.build == "dies":
            os._exit(7)
        x = inputs["x"].astype("f8")
        mean = x.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + test.get("epsilon", 1e-6))
        y = (x - mean) * rstd * inputs["gamma"] + inputs["beta"]
        if self.build == "wrong":
            y = y + 0.01
        outputs = {"y": y, "mean": mean[..., 0], "rstd": rstd[..., 0]}
        return {name: array.astype("f4") for name, array in outputs.items()}
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor `mine` with a right build, a wrong one and one that dies."""
    (tmp_path / "my_gauged_kernels.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GONOGO_EXECUTORS", "mine=my_gauged_kernels:Kernels")


def run(line: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["gauge", *line.split()])


def report(line: str, *, code: int) -> dict[str, Any]:
    """Return what the command prints with --json; it must end with this exit code."""
    result = run(f"{line} --json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    gauge_report: dict[str, Any] = json.loads(result.stdout)
    return gauge_report


SMALL = "--shape 8,70 --seeds 1 --no-search"
PLUGGED = "--kernel layernorm_fw --shape 4,64 --seeds 2 --no-search --executor mine"


def test_a_loose_tolerance_is_blunt() -> None:
    gauge_report = report("--shape 8,70 --seeds 2 --no-search --rtol 1e-3 --atol 0.5", code=1)
    assert gauge_report["sharpness"] == "blunt"
    assert gauge_report["misses"]["parts"]["double-subtract"]["rate"] == 1.0
    assert gauge_report["false_alarms"]["count"] == 0
    assert gauge_report["elsewhere"] == []
    assert gauge_report["advice"]["rejected"]


def test_the_exit_code_is_0_for_a_sharp_test_without_false_alarms(tmp_path: Path) -> None:
    first = report("--shape 8,64 --seeds 1 --no-search", code=1)
    assert first["advice"]["works"], first["advice"]["words"]
    file = tmp_path / "advised.toml"
    tolerance = json.dumps(first["advice"]["tolerance"]).replace(":", " =")
    file.write_text(
        "[defaults]\nseeds = 1\n[[entries]]\n[entries.test]\nkernel = 'layernorm_bw'\n"
        f"shape = [8, 64]\ntolerance = {tolerance}\n"
    )
    assert report(str(file), code=0)["tests"][0]["sharpness"] == "sharp"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("atol", "fail_on", "code"),
    [("0.5", "hollow", 1), ("0.5", "fail", 0), ("1e-9", "hollow", 0), ("1e-9", "fail", 1)],
)
def test_what_makes_the_exit_code_1_can_be_chosen(atol: str, fail_on: str, code: int) -> None:
    report(f"{SMALL} --atol {atol} --fail-on {fail_on}", code=code)


@pytest.mark.slow
def test_other_inputs_are_tried_where_no_tolerance_works() -> None:
    line = "--kernel layernorm_fw --shape 8,64 --seeds 1 --atol 0.5"
    gauge_report = report(line, code=1)
    assert not gauge_report["advice"]["works"]
    advice = {others["name"]: others["advice"]["words"] for others in gauge_report["elsewhere"]}
    assert advice.keys() == {"offset x", "hot tile of x", "small x"}
    assert all(advice.values())


TINY = "{test: {kernel: layernorm_bw, shape: [4, 4]}}"
YAML = """
defaults:
  seeds: 1
  test: {kernel: layernorm_bw, tolerance: {rtol: 0.001, atol: 0.5}}
entries:
  - name: nightly
    test: {shape: [8, 70]}
  - test: {kernel: layernorm_fw, shape: [8, 64]}
"""


def test_a_file_of_many_tests_gives_one_summary(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(YAML)
    result = run(f"{file} --no-search")
    assert result.exit_code == 1
    head, *lines = result.stdout.splitlines()
    assert "a tolerance works" in head
    assert lines[0].startswith("nightly")
    assert "blunt" in lines[0]
    assert lines[1].startswith("layernorm_fw 8x64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entries: [{test: {kernel: layernorm_bw}}]", "entries.0.test.shape"),
        ("entries: [{name: a, nmae: b, test: {kernel: layernorm_bw}}]", "entries.0.nmae"),
        ("entries: []", "entries"),
        ("entries: 3", "entries"),
        ("[1, 2]", "entries.0"),
        ("null", "file"),
        ("a: [", "isn't YAML"),
        ("[" * 9000, "can't be read"),
        (f"entries: [{TINY}, {TINY}]", "two tests"),
    ],
)
def test_a_wrong_file_is_a_usage_error_that_names_the_place(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(text)
    result = run(str(file))
    assert isinstance(result.exception, JobError)
    assert message in str(result.exception)


def test_a_file_that_is_not_there_and_a_shape_beside_a_file_are_usage_errors() -> None:
    assert isinstance(run("none.yaml").exception, JobError)
    assert isinstance(run("none.yaml --shape 4,4").exception, FieldError)
    assert isinstance(run("").exception, FieldError)


def test_an_entry_takes_what_it_leaves_out_from_the_defaults() -> None:
    data = {
        "defaults": {"seeds": 5, "builds": ["b"], "executor": "mine"},
        "entries": [{"test": {"kernel": "layernorm_fw", "shape": [2, 32]}}],
    }
    (entry,) = parse(data, seeds=3)
    assert (entry.seeds, entry.builds, entry.executor) == (5, ("b",), "mine")
    assert entry.name == "layernorm_fw 2x32"


def test_all_problems_of_a_file_of_tests_are_told_at_once() -> None:
    good = {"kernel": "layernorm_fw", "shape": [2, 32]}
    tests: list[Any] = [
        {"name": "a", "test": {**good, "kernel": "layernorm_fv", "shape": [0]}, "sedes": 2},
        {"name": "a", "test": good, "seeds": 0, "gates": ["kernelbenhc"]},
        7,
        {"name": "a", "test": good, "builds": "b", "seeds": -1},
        {"name": "b", "test": good, "executor": ""},
        {"name": "c", "test": good},
        {"name": "c", "test": good},
    ]
    with pytest.raises(FieldErrors) as error:
        parse({"name": "a suite", "defaults": {"test": 1}, "entries": tests}, seeds=3)
    assert sorted(problem.field for problem in error.value.problems) == [
        "entries.0.sedes",
        "entries.0.test.kernel",
        "entries.0.test.shape.0",
        "entries.1.gates.0",
        "entries.1.name",
        "entries.1.seeds",
        "entries.2",
        "entries.3.builds",
        "entries.3.name",
        "entries.3.seeds",
        "entries.4.executor",
        "entries.6.name",
        "file.name",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_builds_of_a_plug_in_are_the_right_kernels_of_its_gauge() -> None:
    gauge_report = report(f"{PLUGGED} --atol 0.05 --build right --wrong-build wrong", code=1)
    assert gauge_report["false_alarms"]["parts"]["mine:right"]["of"] == 2
    wrong = gauge_report["misses"]["parts"]["mine:wrong"]
    assert (wrong["of"], wrong["count"], wrong["unexplained"]["count"]) == (2, 2, 2)
    assert list(gauge_report["false_alarms"]["parts"]) == ["mine:right"]
    models = gauge_report["arithmetic"]
    assert {line["arithmetic"] for line in models["mean-not-subtracted"]} >= {None}
    (y,) = (line for line in models["mine:right"] if line["output"] == "y")
    assert y["arithmetic"] is not None
    assert isinstance(y["detection_limits"], list)


@pytest.mark.usefixtures("plugin")
def test_a_build_that_dies_is_named_and_counts_into_no_rate() -> None:
    gauge_report = report(f"{PLUGGED} --build dies", code=1)
    assert gauge_report["broken"] == {"mine:dies": 2}
    assert "mine:dies" not in gauge_report["false_alarms"]["parts"]


def test_a_person_sees_parts_windows_and_gates() -> None:
    shown = run("--shape 8,64 --seeds 1 --no-search --atol 0.5").stdout
    parts = ("double-subtract", "detection limits", "correct, reversed", "tt-train")
    for words in (*parts, "right kernels need", "gate of a public suite", "the test is blunt"):
        assert words in shown
