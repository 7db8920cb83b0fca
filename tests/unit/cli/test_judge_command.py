"""`gonogo judge`: stored tensors, their names and shapes, and the messages about wrong ones."""

from __future__ import annotations

import io
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

TOLERANCE = {"rtol": 1e-3, "atol": 0.5}
TEST: dict[str, Any] = {"kernel": "layernorm_bw", "shape": [3, 100, 512], "tolerance": TOLERANCE}
SPEC = TestSpec.parse(TEST)
RAW = generate(SPEC, 0)
GIVEN = quantise(SPEC, RAW)


DECLARED = ("--arithmetic", "tt-train")


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

    def judge(self, *names: str, options: tuple[str, ...] = DECLARED) -> Result:
        files = [name if "=" in name else self.path(f"{name}.npy") for name in names]
        words = ["judge", self.path("spec.json"), *files, "--json", *options]
        return CliRunner().invoke(app, words)


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
    faults = "s1 is subtracted twice in P_centered, and s2 sums only tile 15 of 16"
    assert judge_report["diagnosis"]["words"].startswith(f"dx: {faults} (counted from 0)")
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
    rounded = report(stored.judge(*INPUTS, *OUTPUTS, options=(*DECLARED, "--quantise")))
    numbers, others = rounded["seeds"][0]["outputs"]["dx"], whole["seeds"][0]["outputs"]["dx"]
    assert numbers["distance"] == others["distance"], "against what the device was given"
    assert numbers["max_abs"] != others["max_abs"], "against the unquantised"


def test_raw_files_beside_the_given_ones_are_what_tolerances_compare_with(stored: Stored) -> None:
    raw: list[str] = []
    for name in ("x", "dy", "gamma"):
        stored.store(f"{name}32", RAW[name])
        raw += ["--raw", f"{name}={stored.path(f'{name}32.npy')}"]
    judge_report = report(stored.judge(*INPUTS, *OUTPUTS, options=(*DECLARED, *raw)))
    for name, array in RAW.items():
        stored.store(name, array)
    rounded = report(stored.judge(*INPUTS, *OUTPUTS, options=(*DECLARED, "--quantise")))
    assert judge_report["seeds"] == rounded["seeds"]


def test_people_see_a_table(stored: Stored) -> None:
    files = [stored.path(f"{name}.npy") for name in (*INPUTS, *OUTPUTS)]
    result = CliRunner().invoke(app, ["judge", stored.path("spec.json"), *files, *DECLARED])
    assert result.exit_code == 1
    assert "Hollow pass" in result.stdout
    assert "s1 is subtracted twice" in result.stdout


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def lying(shape: str = "(3, 100, 512)", version: int = 1, text: str = "") -> bytes:
    """A .npy file of four bytes whose header says something else."""
    text = text or f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
    head = bytes([version, 0]) + len(text).to_bytes(2, "little")
    return b"\x93NUMPY" + head + text.encode() + b"1234"


ALL = (*INPUTS, *OUTPUTS)
BROKEN: dict[str, tuple[tuple[str, ...], str, bytes | None, tuple[str, ...]]] = {
    # names, a file and what stands in it (None: it isn't there), and what is said
    "shape": (ALL, "dx.npy", npy(np.zeros((9, 512), "f4")), ("[9, 512]", "[3, 100, 512]")),
    "transposed": (ALL, "dx.npy", npy(np.zeros((512, 300), "f4")), ("[512, 300]", "[3, 100, 512]")),
    "integers": (ALL, "dx.npy", npy(np.zeros((3, 100, 512), "i4")), ("int32", "float32")),
    "pickle": (ALL, "dx.npy", npy(np.array([{"a": 1}], object)), ("object", "float32")),
    "huge": (ALL, "dx.npy", lying("(1000000, 1000000)"), ("[1000000, 1000000]", "[3, 100, 512]")),
    "lying": (ALL, "dx.npy", lying(), ("can't be read", "614400 bytes, and 4 follow")),
    "version": (ALL, "dx.npy", lying(version=9), ("version 9.0", "1.0, 2.0, 3.0")),
    "nested": (ALL, "dx.npy", lying(text="(" * 5000), ("no header of a .npy file",)),
    "text": (ALL, "dx.npy", b"not an array", ("can't be read",)),
    "empty": (ALL, "dx.npy", b"", ("can't be read",)),
    "archive": (ALL, "dx.npy", b"PK\x03\x04" + bytes(40), ("can't be read",)),
    "not there": (ALL, "dx.npy", None, ("can't be read",)),
    "unknown": ((*ALL, "y"), "y.npy", npy(np.zeros(4, "f4")), ("dgamma",)),
    "no spec": (ALL, "spec.json", None, ("spec.json",)),
    "no JSON": (ALL, "spec.json", b"{", ("JSON",)),
    "bad spec": (ALL, "spec.json", json.dumps({**TEST, "shape": [0]}).encode(), ("test.shape",)),
    "twice": ((*ALL, "dx"), "", b"", ("dx", "twice")),
    "no input": (("x", "gamma", "mean", "dy", "dx"), "", b"", ("rstd",)),
    "no output": (INPUTS, "", b"", ("dx, dgamma, dbeta",)),
}


@pytest.mark.parametrize(("names", "file", "content", "words"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_judged_is_said_with_file_and_shape(
    stored: Stored, names: tuple[str, ...], file: str, content: bytes | None, words: tuple[str, ...]
) -> None:
    if content is None:
        (stored.folder / file).unlink()
    elif file:
        (stored.folder / file).write_bytes(content)
    result = stored.judge(*names)
    assert isinstance(result.exception, JobError), result.output
    message = str(result.exception)
    assert [word for word in (*words, "" if "spec" in file else file) if word not in message] == []
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
