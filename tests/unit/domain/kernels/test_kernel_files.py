"""Kernels in Python files: named on the command line, listed in GONOGO_KERNELS, never sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from api import in_process
from gonogo import emulator
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import registry
from gonogo.reports.check_line import check_line
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.local.runner import load

SOFTCAP = '''
import numpy as np
from gonogo import fields
from gonogo.kernels.kernel import Kernel, Parameter

def softcap(x, cap):
    """Return y = cap tanh(x / cap)."""
    squashed = np.tanh(x / cap)
    y = cap * squashed
    return {"y": y}

CAP = Parameter(lambda value, path: fields.number(value, path, above=0.0), 5.0, "the largest y")
KERNEL = Kernel("softcap", softcap, ("y",), parameters={"cap": CAP})
'''
SPEC = {"kernel": "softcap", "shape": [8, 64], "parameters": {"cap": 2}}
WRONG = "skipped/squashed"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "softcap.py"
    path.write_text(SOFTCAP)
    yield path
    for kernel in list(registry.loaded()):
        registry.unregister(kernel)
    registry.allow_installed(False)


def command(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def test_a_file_is_checked_gauged_and_shown_as_a_kernel_that_we_ship(file: Path) -> None:
    named = ("--kernel", str(file), "--shape", "8,64", "--parameters", '{"cap": 2}')
    assert command("check", *named, "--build", "correct", "--rtol", "0.02")[0] == 0
    code, result = command("check", *named, "--build", WRONG, "--atol", "1")
    assert (code, result["verdict"]) == (1, "pass_by_tolerance")
    assert "without tanh" in result["diagnosis"]["words"]
    _, gauge = command("gauge", *named, "--atol", "1", "--seeds", "1", "--no-search")
    assert (gauge["false_alarms"]["count"], gauge["sharpness"]) == (0, "blunt")
    assert gauge["misses"]["parts"][WRONG]["unexplained"]["count"] == 1
    assert "ttnn-bf16" not in gauge["gates"]
    code, shown = command("kernels", "show", str(file))
    assert (code, shown["kernel"], shown["inputs"]) == (0, "softcap", ["x"])
    assert WRONG in shown["faults"]
    line = check_line(SPEC, build="correct", executor="emulator", seed=3, output="y")
    assert """--parameters '{"cap":2}'""" in line


def test_its_tensors_are_judged_where_they_lie(file: Path, tmp_path: Path) -> None:
    registry.load([str(file)])
    test = TestSpec.parse(SPEC)
    given = quantise(test, generate(test, 0))
    (tmp_path / "spec.json").write_text(json.dumps({"test": test.canonical()}))
    np.save(tmp_path / "x.npy", given["x"])
    for build, verdict in (("correct", "pass"), (WRONG, "pass_by_tolerance")):
        np.save(tmp_path / "y.npy", emulator.run(test, given, build)["y"])
        paths = [str(tmp_path / name) for name in ("spec.json", "x.npy", "y.npy")]
        assert command("judge", *paths)[1]["verdict"] == verdict


def test_a_child_process_loads_the_file_too(file: Path) -> None:
    registry.load([str(file)])
    test = TestSpec.parse(SPEC)
    given = quantise(test, generate(test, 1))
    with load("emulator", WRONG, isolated=True) as runner:
        there = runner.run(test, given, seed=1)["y"]
    assert np.array_equal(there, emulator.run(test, given, WRONG)["y"])


def test_a_server_runs_the_files_of_its_setting_alone(file: Path, tmp_path: Path) -> None:
    with in_process(f"sqlite:///{tmp_path / 'g.db'}", kernels=(str(file),)) as api:
        job = api.submit(test=SPEC, build=WRONG)
        assert api.get(f"/jobs/{job}")["test"] == SPEC
        assert "softcap" in api.client.get(f"/jobs/{job}").text
        for change, field in (
            ({"kernel": str(file)}, "test.kernel"),
            ({"parameters": {"cap": 0}}, "test.parameters.cap"),
        ):
            body = {"test": SPEC | change, "build": "correct", "seeds": {"count": 1}}
            answer = api.client.post("/api/v1/jobs", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field)


BAD = [
    ("softcap.py", None, "is a relative path"),
    ("/no/such/softcap.py", None, "can't be loaded: FileNotFoundError"),
    ("broken.py", "1 / 0", "can't be loaded: ZeroDivisionError"),
    ("empty.py", "KERNEL = 3", "has no kernel"),
    ("taken.py", SOFTCAP.replace('"softcap"', '"softmax"'), "has the name of another one"),
]


@pytest.mark.parametrize(("name", "text", "reason"), BAD)
def test_a_file_that_can_t_be_used_is_refused(
    name: str, text: str | None, reason: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
        name = str(tmp_path / name)
    with pytest.raises(FieldError) as caught:
        registry.load([name])
    assert caught.value.field == "GONOGO_KERNELS"
    assert reason in caught.value.reason
