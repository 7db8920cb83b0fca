"""Kernels of installed packages: named locally, allowed on a server, refused with the reason.

The packages are those of examples/, with the metadata that pip would write.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
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
from gonogo.spec.test_spec import TestSpec
from gonogo_service.app import create_app
from gonogo_workers.local.runner import load

FORWARD = ("--kernel", "l2norm_fw", "--shape", "64,1024")
SPEC = {"kernel": "l2norm_fw", "shape": [64, 1024], "tolerance": {"rtol": 0.05, "atol": 0.0}}
pytestmark = pytest.mark.usefixtures("examples_installed")


def command(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def test_a_local_command_loads_the_kernel_that_it_names() -> None:
    assert command("check", *FORWARD, "--build", "correct", "--rtol", "0.01")[0] == 0
    code, result = command("check", *FORWARD, "--build", "without-tile-0/total", "--rtol", "0.05")
    assert (code, result["verdict"]) == (1, "pass_by_tolerance")
    assert "total leaves out tile 0 of 32" in result["diagnosis"]["words"]
    assert list(registry.loaded()) == ["l2norm_fw"], "the other package was not named"
    with pytest.raises(FieldError, match="did you mean 'l2norm_fw'"):
        TestSpec.parse({**SPEC, "kernel": "l2nrm_fw"})


def test_the_list_names_an_installed_kernel_and_show_describes_it() -> None:
    code, listed = command("kernels", "list")
    assert (code, listed["installed"]) == (0, ["l2norm_fw", "l2norm_gradients"])
    assert not registry.loaded(), "listing imports nothing"
    code, shown = command("kernels", "show", "l2norm_fw")
    assert (code, shown["inputs"], shown["outputs"]) == (0, ["x", "gamma"], ["y"])
    words = "The fault without-tile-0/total of its reference."
    assert shown["builds"][1] == {"build": "without-tile-0/total", "what it does": words}


def test_a_reference_that_can_t_be_traced_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = import_module("l2norm_kind")

    def transformed(x: Any, gamma: Any, epsilon: Any) -> Any:
        return {"y": np.fft.fft(x)}

    broken = replace(package.L2NORM_FW, reference=transformed, ways=())
    monkeypatch.setattr(package, "L2NORM_FW", broken)
    monkeypatch.setattr(sys, "argv", ["gonogo", "check", *FORWARD, "--rtol", "0.01"])
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"gonogo: {__file__}:")
    assert "np.fft can't be traced" in line


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["l2norm_fw", "l2norm_gradients"])
def test_the_gauge_finds_every_mutant_and_no_right_kernel(kernel: str) -> None:
    shape = ("--kernel", kernel, "--shape", "64,1024", "--rtol", "0.1", "--atol", "0.05")
    _, gauge = command("gauge", *shape, "--seeds", "1", "--no-search", "--gate", "ulp-1")
    assert gauge["false_alarms"]["count"] == 0
    parts = gauge["misses"]["parts"]
    unexplained = {name: part["unexplained"]["count"] for name, part in parts.items()}
    assert set(unexplained.values()) == {1}
    assert len(unexplained) == len(registry.KERNELS[kernel].builds) - 1


def test_a_program_judges_it_by_name() -> None:
    test = registry.KERNELS.get("l2norm_gradients")
    assert test is None, "nobody named it before"
    chance = np.random.default_rng(0)
    x, dy = (chance.normal(size=(64, 256)).astype("float32") for _ in range(2))
    gamma = chance.uniform(size=256).astype("float32")
    inputs = {"x": x, "gamma": gamma, "dy": dy}

    def gradient(s_times: np.float32) -> Any:
        r = 1 / np.sqrt((x**2).sum(1, keepdims=True) + np.float32(1e-6))
        xhat, p = x * r, dy * gamma
        return r * (p - s_times * xhat * (p * xhat).sum(1, keepdims=True))

    right, wrong = (
        gonogo.judge(kernel="l2norm_gradients", inputs=inputs, outputs={"dx": gradient(times)})
        for times in (np.float32(1), np.float32(0))
    )
    assert (right.verdict, wrong.verdict) == ("pass", "pass_by_tolerance")


def test_a_child_process_runs_its_builds() -> None:
    registry.load(["l2norm_fw"])
    test = TestSpec.parse(SPEC)
    given = quantise(test, generate(test, 1))
    with load("emulator", "without-last/total", isolated=True) as runner:
        there = runner.run(test, given, seed=1)["y"]
    assert np.array_equal(there, emulator.run(test, given, "without-last/total")["y"])


def test_a_server_knows_the_kernels_that_its_setting_allows(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'g.db'}"
    with in_process(database, kernels=("l2norm_fw",)) as api:
        job = api.submit(test=SPEC, build="without-tile-0/total")
        assert api.get(f"/jobs/{job}")["test"] == SPEC
        body = {
            "test": {**SPEC, "kernel": "l2norm_gradients"},
            "build": "correct",
            "seeds": {"count": 1},
        }
        answer = api.client.post("/api/v1/jobs", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, "test.kernel")
        assert answer.json()["limit"].endswith(", l2norm_fw")
        document = api.client.get("/api/v1/openapi.json").text
        assert "l2norm_fw" in document
        assert "l2norm_gradients" not in document
    registry.unregister("l2norm_fw")
    with in_process(database) as api:  # what an earlier setting allowed is still shown
        assert "l2norm_fw" in api.client.get(f"/jobs/{job}").text
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
        (
            ["odd_fw = no_such_module:KERNEL"],
            "can't be loaded from package-0 1: ModuleNotFoundError: No module named 'no_such_",
        ),
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
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: package-{number}\nVersion: 1\n"
        )
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
