"""Kernels of installed packages and of Python files: named locally, allowed on a server, judged as
ours are, and refused with the reason.

The packages are those of examples/, with the metadata that pip would write.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gonogo
from api import in_process
from gonogo import emulator
from gonogo.cli.app import app, main
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import registry
from gonogo.reports.check_line import check_line
from gonogo.spec.test_spec import TestSpec
from gonogo_service.app import create_app
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
L2NORM = {"kernel": "l2norm_fw", "shape": [8, 64], "tolerance": {"rtol": 0.05, "atol": 0.0}}
CAPPED = {"kernel": "softcap", "shape": [8, 64], "parameters": {"cap": 2}}


@dataclass(frozen=True)
class Source:
    """A kernel that we don't ship: what names it, a test of it, and a wrong build of it."""

    name: str
    spec: dict[str, Any]
    wrong: str
    words: str
    inputs: tuple[str, ...]

    def command(self, name: str, *arguments: str) -> tuple[int, Any]:
        parameters = ("--parameters", json.dumps(self.spec.get("parameters", {})))
        return command(name, "--kernel", self.name, "--shape", "8,64", *parameters, *arguments)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, examples_installed: Path) -> Iterator[Path]:
    path = tmp_path / "softcap.py"
    path.write_text(SOFTCAP)
    yield path
    for kernel in list(registry.loaded()):
        registry.unregister(kernel)
    registry.allow_installed(False)


@pytest.fixture(params=["package", "file"])
def source(request: pytest.FixtureRequest, file: Path) -> Source:
    if request.param == "file":
        return Source(str(file), CAPPED, "skipped/squashed", "without tanh", ("x",))
    words = "total leaves out tile 0 of 2"
    return Source("l2norm_fw", L2NORM, "without-tile-0/total", words, ("x", "gamma"))


def command(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def test_a_local_command_checks_gauges_and_shows_the_kernel_that_it_names(source: Source) -> None:
    assert source.command("check", "--build", "correct", "--rtol", "0.02")[0] == 0
    assert list(registry.loaded()) == [source.spec["kernel"]], "no other kernel was named"
    code, result = source.command("check", "--build", source.wrong, "--atol", "1")
    assert (code, result["verdict"]) == (1, "pass_by_tolerance")
    assert source.words in result["diagnosis"]["words"]
    code, shown = command("kernels", "show", source.name)
    assert (code, tuple(shown["inputs"]), shown["outputs"]) == (0, source.inputs, ["y"])
    assert source.wrong in str(shown)
    text = CliRunner().invoke(app, ["kernels", "show", source.name]).stdout
    assert f"gonogo check --kernel {source.name} --shape" in text
    _, gauge = source.command("gauge", "--atol", "1", "--seeds", "1", "--no-search")
    assert (gauge["false_alarms"]["count"], gauge["sharpness"]) == (0, "blunt")
    parts = gauge["misses"]["parts"]
    assert {part["unexplained"]["count"] for part in parts.values()} == {1}
    assert source.wrong in parts
    assert "ttnn-bf16" not in gauge["gates"]


def test_the_list_names_installed_kernels_and_imports_none() -> None:
    code, listed = command("kernels", "list")
    assert (code, listed["installed"]) == (0, ["l2norm_fw", "l2norm_gradients"])
    assert not registry.loaded()
    command("kernels", "show", "l2norm_fw")
    with pytest.raises(FieldError, match="did you mean 'l2norm_fw'"):
        TestSpec.parse({**L2NORM, "kernel": "l2nrm_fw"})


def test_the_line_that_repeats_a_seed_has_its_parameters() -> None:
    line = check_line(CAPPED, build="correct", executor="emulator", seed=3, output="y")
    assert """--parameters '{"cap":2}'""" in line


def test_a_reference_that_can_t_be_traced_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = import_module("l2norm_kind")

    def transformed(x: Any, gamma: Any, epsilon: Any) -> Any:
        return {"y": np.fft.fft(x)}

    broken = replace(package.L2NORM_FW, reference=transformed, ways=())
    monkeypatch.setattr(package, "L2NORM_FW", broken)
    words = ["gonogo", "check", "--kernel", "l2norm_fw", "--shape", "8,64", "--rtol", "0.01"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"gonogo: {__file__}:")
    assert "np.fft can't be traced" in line


def test_a_program_judges_it_by_name() -> None:
    assert registry.KERNELS.get("l2norm_gradients") is None, "nobody named it before"
    chance = np.random.default_rng(0)
    x, dy = (chance.normal(size=(16, 96)).astype("float32") for _ in range(2))
    gamma = chance.uniform(size=96).astype("float32")
    r = 1 / np.sqrt((x**2).sum(1, keepdims=True) + np.float32(1e-6))
    xhat, p = x * r, dy * gamma
    projected = xhat * (p * xhat).sum(1, keepdims=True)
    inputs = {"x": x, "gamma": gamma, "dy": dy}
    verdicts = [
        gonogo.judge(kernel="l2norm_gradients", inputs=inputs, outputs={"dx": dx}).verdict
        for dx in (r * (p - projected), r * p)
    ]
    assert verdicts == ["pass", "pass_by_tolerance"]


def test_its_tensors_are_judged_where_they_lie(source: Source, tmp_path: Path) -> None:
    registry.load([source.name])
    test = TestSpec.parse({**source.spec, "tolerance": {"atol": 1.0}})
    given = quantise(test, generate(test, 0))
    (tmp_path / "spec.json").write_text(json.dumps({"test": test.canonical()}))
    for name in source.inputs:
        np.save(tmp_path / f"{name}.npy", given[name])
    names = ("spec.json", *(f"{name}.npy" for name in (*source.inputs, "y")))
    paths = [str(tmp_path / name) for name in names]
    for build, verdict in (("correct", "pass"), (source.wrong, "pass_by_tolerance")):
        np.save(tmp_path / "y.npy", emulator.run(test, given, build)["y"])
        assert command("judge", *paths)[1]["verdict"] == verdict


def test_a_child_process_runs_its_builds(source: Source) -> None:
    registry.load([source.name])
    test = TestSpec.parse(source.spec)
    given = quantise(test, generate(test, 1))
    with load("emulator", source.wrong, isolated=True) as runner:
        there = runner.run(test, given, seed=1)["y"]
    assert np.array_equal(there, emulator.run(test, given, source.wrong)["y"])


def test_a_server_runs_what_its_setting_allows_alone(source: Source, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'g.db'}"
    with in_process(database, kernels=(source.name,)) as api:
        job = api.submit(test=source.spec, build=source.wrong)
        assert api.get(f"/jobs/{job}")["test"] == source.spec
        for change, field in (
            ({"kernel": "l2norm_gradients"}, "test.kernel"),
            ({"kernel": str(tmp_path / "softcap.py")}, "test.kernel"),
            ({"parameters": {"cap": 0}}, "test.parameters.cap"),
        ):
            body = {"test": source.spec | change, "build": "correct", "seeds": {"count": 1}}
            answer = api.client.post("/api/v1/jobs", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field)
        document = api.client.get("/api/v1/openapi.json").text
        assert source.spec["kernel"] in document
        assert "l2norm_gradients" not in document
    registry.unregister(source.spec["kernel"])
    with in_process(database) as api:  # what an earlier setting allowed is still shown
        assert source.spec["kernel"] in api.client.get(f"/jobs/{job}").text
        assert api.client.get("/").status_code == 200
    with pytest.raises(FieldError) as caught:
        create_app(api.settings.model_copy(update={"kernels": ("l2nrm",)}))
    assert str(caught.value) == (
        "GONOGO_KERNELS: no installed package offers this kernel "
        "(allowed: l2norm_fw, l2norm_gradients); got 'l2nrm'"
    )


def test_the_names_of_kernels_need_no_numpy() -> None:
    code = (
        "import sys; from gonogo.spec.test_spec import KERNELS; import gonogo.cli.app\n"
        "print('numpy' in sys.modules and 'softmax' in KERNELS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (["odd_fw = no_such_module:KERNEL"], "can't be loaded from package-0 1: ModuleNotFound"),
        (["odd_fw = l2norm_kind:__name__"], "package-0 1 offers 'l2norm_kind'"),
        (["odd_fw = l2norm_kind:L2NORM_FW"], "offers the kernel 'l2norm_fw' under this"),
        (["odd_fw = a:b", "odd_fw = c:d"], "is offered by package-0 1 and package-1 1"),
    ],
)
def test_a_package_that_can_t_be_used_is_named(
    points: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, point in enumerate(points):
        folder = tmp_path / f"package_{number}-1.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: package-{number}\nVersion: 1\n"
        (folder / "METADATA").write_text(metadata)
        (folder / "entry_points.txt").write_text(f"[gonogo.kernels]\n{point}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FieldError) as on_a_server:
        registry.load(["odd_fw"])
    registry.allow_installed()
    with pytest.raises(FieldError) as locally:
        TestSpec.parse({"kernel": "odd_fw", "shape": [2, 2]})
    assert words in on_a_server.value.reason
    assert words in locally.value.reason
    assert (on_a_server.value.field, locally.value.field) == ("GONOGO_KERNELS", "test.kernel")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("softcap.py", None, "is a relative path"),
        ("/no/such/softcap.py", None, "can't be loaded: FileNotFoundError"),
        ("broken.py", "1 / 0", "can't be loaded: ZeroDivisionError"),
        ("empty.py", "KERNEL = 3", "has no kernel"),
        ("taken.py", SOFTCAP.replace('"softcap"', '"softmax"'), "has the name of another one"),
    ],
)
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
