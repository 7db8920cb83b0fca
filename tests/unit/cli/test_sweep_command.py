"""`gonogo sweep`: what it reports of right, wrong and hanging builds, and of lost runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.sweep import cases

PLUGIN = """
import numpy as np

class Kernels:
    def __init__(self, build):
        pass

    def run(self, test, inputs):
        if inputs["x"].shape[-1] % 2:
            raise NotImplementedError("odd widths")
        x = inputs["x"].astype("f8")
        e = np.exp(x - x.max(-1, keepdims=True))
        return {"y": (e / e.sum(-1, keepdims=True)).astype("f4")}
"""


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four, in any time."""
    every = cases.cases

    def first(*args: Any) -> Iterator[cases.Case]:
        return islice(every(*args), 4)

    monkeypatch.setattr(cases, "cases", first)


def gonogo(*words: str) -> Result:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def sweep(*words: str, code: int) -> dict[str, Any]:
    result = gonogo("sweep", "--seconds", "600", *words)
    assert result.exit_code == code, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_a_right_kernel_has_no_failure() -> None:
    report = sweep("--kernel", "softmax", code=0)
    assert (report["verdict"], report["counts"]) == ("pass", {"pass": 4})
    assert (report["failures"], report["errors"]) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "verdict", "shape"),
    [
        (("--build", "mask-missing", "--kernel", "layernorm_fw"), "pass_by_tolerance", [1, 1]),
        (("--build", "unmasked/total", "--kernel", "softmax"), "pass_by_tolerance", [1, 2]),
        (("--build", "crash", "--kernel", "softmax", "--seed", "3"), "crash", [1, 1]),
    ],
)
def test_the_printed_command_repeats_the_smallest_failure(
    words: tuple[str, ...], verdict: str, shape: list[int]
) -> None:
    failure = sweep(*words, code=1)["failures"][0]
    assert (failure["verdict"], failure["test"]["shape"]) == (verdict, shape)
    assert failure["message"]
    again = gonogo(*shlex.split(failure["command"])[1:])
    assert (again.exit_code, json.loads(again.stdout)["verdict"]) == (1, verdict)


def test_what_could_not_be_run_is_no_failure_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my_kernels.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GONOGO_EXECUTORS", "mine=my_kernels:Kernels")
    report = sweep("--kernel", "softmax", "--executor", "mine", "--build", "any", code=3)
    assert (report["verdict"], report["failures"]) == ("error", [])
    assert list(report["errors"]) == ["NotImplementedError: odd widths"]
    assert report["counts"]["error"] < sum(report["counts"].values())


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--build", "no/such"), "is no fault of layernorm_bw in this shape"),
        (("--kernel", "layernrm"), "did you mean 'layernorm_fw'"),
        (("--seconds", "0"), "seconds: is too small"),
    ],
)
def test_what_cannot_be_swept_is_refused(words: tuple[str, ...], refused: str) -> None:
    usual = ("sweep", "--kernel", "layernorm_bw", "--seconds", "600")
    problem = CliRunner().invoke(app, [*usual, *words]).exception
    assert isinstance(problem, FieldError)
    assert refused in str(problem)
