"""`gonogo judge`: stored tensors, their names and shapes, and the messages about wrong ones."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.cli.app import app
from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec

TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 100, 512],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}

SPEC = TestSpec.parse(TEST)
RAW = generate(SPEC, 0)
GIVEN = quantise(SPEC, RAW)


@cache
def outputs_of(build: str) -> dict[str, Any]:
    return emulator.run(SPEC, GIVEN, build)


class Stored:
    """A folder with the tensors of one seed of a build; `judge` runs the command on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.save("spec.json", TEST)
        for name, array in (GIVEN | outputs_of("tt-train-2025")).items():
            self.store(name, array.reshape(SPEC.shape_of(name)))

    def store(self, name: str, array: np.ndarray[Any, Any]) -> None:
        np.save(self.folder / f"{name}.npy", array)

    def save(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def judge(self, *names: str, options: tuple[str, ...] = ("--arithmetic", "tt-train")) -> Result:
        files = [name if "=" in name else self.path(f"{name}.npy") for name in names]
        return CliRunner().invoke(
            app, ["judge", self.path("spec.json"), *files, "--json", *options]
        )


WORMHOLE = "tt-train's dataflow on a Wormhole"
INPUTS = ("x", "gamma", "mean", "rstd", "dy")
OUTPUTS = ("dx", "dgamma", "dbeta")


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def report(result: Result) -> dict[str, Any]:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    judge_report: dict[str, Any] = json.loads(result.stdout)
    return judge_report


def test_stored_tensors_get_the_verdict_and_the_diagnosis_of_a_run(stored: Stored) -> None:
    result = stored.judge(*INPUTS, *OUTPUTS)
    judge_report = report(result)
    assert result.exit_code == 1
    assert list(judge_report) == ["verdict", "counts", "seeds", "diagnosis"]
    assert judge_report["verdict"] == "pass_by_tolerance"
    assert judge_report["diagnosis"]["words"].startswith(
        "dx: s1 is subtracted twice in P_centered, and s2 sums only tile 15 of 16 (counted from 0)"
    )
    row = judge_report["seeds"][0]
    assert (row["seed"], row["repeat"], row["arithmetic"]) == (None, 0, WORMHOLE)
    assert list(row["outputs"]) == list(OUTPUTS)


def test_any_subset_of_the_outputs_in_files_of_any_name_will_do(stored: Stored) -> None:
    stored.store("grad", outputs_of("correct")["dbeta"])
    result = stored.judge(*INPUTS, f"dbeta={stored.path('grad.npy')}")
    assert (report(result)["verdict"], result.exit_code) == ("pass", 0)
    assert list(report(result)["seeds"][0]["outputs"]) == ["dbeta"]


def test_dimensions_of_one_and_flat_rows_are_taken(stored: Stored) -> None:
    whole = report(stored.judge(*INPUTS, *OUTPUTS))
    stored.store("gamma", GIVEN["gamma"].reshape(1, 1, 1, 512))
    stored.store("mean", GIVEN["mean"].reshape(3, 100, 1))
    stored.store("rstd", GIVEN["rstd"])
    stored.store("x", GIVEN["x"].astype(np.float64))
    stored.store("dx", np.asfortranarray(np.load(stored.path("dx.npy")).reshape(300, 512)))
    again = report(stored.judge(*INPUTS, *OUTPUTS))
    assert again["seeds"] == whole["seeds"]


def test_a_job_is_a_spec_too_and_its_build_names_the_arithmetic(stored: Stored) -> None:
    job = {"test": TEST, "build": "tt-train-2025", "target": {"executor": "emulator"}}
    stored.save("spec.json", {**job, "seeds": {"count": 1}})
    known = report(stored.judge(*INPUTS, "dbeta", options=()))["seeds"][0]
    assert known["arithmetic"] == WORMHOLE
    stored.save("spec.json", {"test": TEST, "build": "main", "target": {"executor": "ttnn"}})
    dbeta = np.load(stored.path("dy.npy")).reshape(300, 512).astype("f8").sum(0)
    stored.store("dbeta", round_to(dbeta, "bf16").astype("f4"))
    row = report(stored.judge(*INPUTS, "dbeta", options=()))["seeds"][0]
    assert (row["verdict"], row["arithmetic"]) == ("pass", "blocked sums")


def test_unquantised_inputs_are_refused_unless_asked_to_be_rounded(stored: Stored) -> None:
    whole = report(stored.judge(*INPUTS, *OUTPUTS))
    for name, array in RAW.items():
        stored.store(name, array)
    refused = stored.judge(*INPUTS, *OUTPUTS)
    assert isinstance(refused.exception, FieldError)
    assert refused.exception.field.startswith("x[")
    assert "bf16" in str(refused.exception)
    rounded = report(
        stored.judge(*INPUTS, *OUTPUTS, options=("--arithmetic", "tt-train", "--quantise"))
    )
    numbers, others = rounded["seeds"][0]["outputs"]["dx"], whole["seeds"][0]["outputs"]["dx"]
    assert numbers["distance"] == others["distance"], "against what the device was given"
    assert numbers["max_abs"] != others["max_abs"], "against the unquantised"


def test_raw_files_beside_the_given_ones_are_what_tolerances_compare_with(stored: Stored) -> None:
    raw: list[str] = []
    for name in ("x", "dy", "gamma"):
        stored.store(f"{name}32", RAW[name])
        raw += ["--raw", f"{name}={stored.path(f'{name}32.npy')}"]
    judge_report = report(
        stored.judge(*INPUTS, *OUTPUTS, options=("--arithmetic", "tt-train", *raw))
    )
    for name, array in RAW.items():
        stored.store(name, array)
    rounded = report(
        stored.judge(*INPUTS, *OUTPUTS, options=("--arithmetic", "tt-train", "--quantise"))
    )
    assert judge_report["seeds"] == rounded["seeds"]


def test_people_see_a_table(stored: Stored) -> None:
    files = [stored.path(f"{name}.npy") for name in (*INPUTS, *OUTPUTS)]
    result = CliRunner().invoke(
        app, ["judge", stored.path("spec.json"), *files, "--arithmetic", "tt-train"]
    )
    assert result.exit_code == 1
    assert "Hollow pass" in result.stdout
    assert "s1 is subtracted twice" in result.stdout


def broken(stored: Stored, how: str) -> Result:
    """Run the command on a folder with one mistake."""
    names = [*INPUTS, *OUTPUTS]
    match how:
        case "shape":
            stored.store("dx", np.zeros((3, 100, 511), np.float32))
        case "transposed":
            stored.store("dx", np.zeros((512, 300), np.float32))
        case "integers":
            stored.store("dx", np.zeros((3, 100, 512), np.int32))
        case "pickle":
            np.save(stored.path("dx.npy"), np.array([{"a": 1}], dtype=object), allow_pickle=True)
        case "text":
            (stored.folder / "dx.npy").write_text("not an array")
        case "empty":
            (stored.folder / "dx.npy").write_bytes(b"")
        case "huge" | "lying" | "nested" | "version":
            (stored.folder / "dx.npy").write_bytes(lying_header(how))
        case "archive":
            with (stored.folder / "dx.npy").open("wb") as file:
                np.savez(file, dx=np.zeros(3))
        case "not_run":
            (stored.folder / "dx.npy").unlink()
        case "unknown":
            stored.store("y", np.zeros(4, np.float32))
            names.append("y")
        case "twice":
            names.append("dx")
        case "no input":
            names.remove("rstd")
        case "no output":
            names = list(INPUTS)
        case "spec":
            stored.save("spec.json", {**TEST, "shape": [0]})
        case "no json":
            (stored.folder / "spec.json").write_text("{")
        case "no spec":
            (stored.folder / "spec.json").unlink()
    return stored.judge(*names)


def lying_header(how: str) -> bytes:
    """A .npy file of four bytes whose header says something else."""
    shape = "(1000000, 1000000)" if how == "huge" else "(3, 100, 512)"
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
    text = "(" * 5000 if how == "nested" else text
    version = b"\x09\x00" if how == "version" else b"\x01\x00"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode() + b"1234"


BROKEN = [
    ("shape", ["dx.npy", "[3, 100, 511]", "[3, 100, 512]"]),
    ("transposed", ["dx.npy", "[512, 300]", "[3, 100, 512]"]),
    ("integers", ["dx.npy", "int32", "float32"]),
    ("pickle", ["dx.npy", "object", "float32"]),
    ("huge", ["dx.npy", "[1000000, 1000000]", "[3, 100, 512]"]),
    ("lying", ["dx.npy", "can't be read", "614400 bytes, and 4 follow"]),
    ("version", ["dx.npy", "version 9.0", "1.0, 2.0, 3.0"]),
    ("nested", ["dx.npy", "no header of a .npy file"]),
    ("text", ["dx.npy", "can't be read"]),
    ("empty", ["dx.npy", "can't be read"]),
    ("archive", ["dx.npy", "can't be read"]),
    ("not_run", ["dx.npy", "can't be read"]),
    ("unknown", ["y.npy", "dgamma"]),
    ("twice", ["dx", "twice"]),
    ("no input", ["rstd"]),
    ("no output", ["dx, dgamma, dbeta"]),
    ("spec", ["test.shape"]),
    ("no json", ["spec.json", "JSON"]),
    ("no spec", ["spec.json"]),
]


@pytest.mark.parametrize(("how", "words"), BROKEN)
def test_what_cannot_be_judged_is_said_with_file_and_shape(
    stored: Stored, how: str, words: list[str]
) -> None:
    result = broken(stored, how)
    assert isinstance(result.exception, JobError), result.output
    for word in words:
        assert word in str(result.exception)
    assert result.stdout == ""


def test_other_mistakes_of_the_flags(stored: Stored) -> None:
    for options in (
        ("--arithmetic", "moreh"),
        ("--raw", "x"),
        ("--raw", f"x={stored.path('x.npy')}", "--quantise"),
    ):
        assert isinstance(stored.judge(*INPUTS, *OUTPUTS, options=options).exception, JobError)


def test_nan_in_a_stored_output_fails(stored: Stored) -> None:
    dx = np.load(stored.path("dx.npy"))
    dx[1, 5, 7] = np.nan
    stored.store("dx", dx)
    judge_report = report(stored.judge(*INPUTS, "dx"))
    assert judge_report["verdict"] == "fail"
    assert judge_report["seeds"][0]["outputs"]["dx"]["nonfinite"] == 1
