"""A kernel that a test registers goes all the way: check, gauge, judge and HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import softmax
from api import in_process
from gonogo import emulator
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.judging.comparison import case_of_test, record_of
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import rmsnorm
from gonogo.kernels.registry import KERNELS, register, unregister
from gonogo.reports.check_line import check_line
from gonogo.spec.builds import EMULATOR, own_builds
from gonogo.spec.test_spec import TestSpec

TOY = ("--kernel", "softmax_fw", "--shape", "2,32,100", "--parameters", '{"temperature": 0.5}')


@pytest.fixture
def toy() -> Iterator[None]:
    register(softmax.KERNEL)
    yield
    unregister("softmax_fw")


def command(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.usefixtures("toy")
def test_a_registered_kind_is_checked_like_any_other() -> None:
    code, result = command(
        "check", *TOY, "--build", "correct", "--seeds", "3", "--atol", "0.5", "--json"
    )
    assert (code, result["verdict"], list(result["seeds"][0]["outputs"])) == (0, "pass", ["y"])
    for build, expected in (
        ("without-tile-0/total", "total leaves out tile 0 of 4"),
        ("missing/temperature@scaled", "temperature is missing in scaled"),
    ):
        code, result = command("check", *TOY, "--build", build, "--atol", "10", "--json")
        assert (code, result["verdict"]) == (1, "pass_by_tolerance")
        assert expected in result["diagnosis"]["words"]
    # a fault of another kernel changes nothing here: its green would say nothing
    refused = CliRunner().invoke(app, ["check", *TOY, "--build", "double-subtract", "--json"])
    assert isinstance(refused.exception, FieldError)
    assert str(refused.exception) == (
        "build: is not a build of softmax_fw, only of layernorm_bw; it would run as `correct` "
        "(allowed: one of correct, without-tile-0/total, missing/temperature@scaled);"
        " got 'double-subtract'"
    )


@pytest.mark.usefixtures("toy")
def test_a_registered_kind_is_gauged() -> None:
    _, gauge = command("gauge", *TOY, "--atol", "1", "--seeds", "1", "--json", "--no-search")
    assert gauge["false_alarms"]["count"] == 0
    assert gauge["misses"]["parts"]["missing/temperature@scaled"]["unexplained"]["count"] == 1
    assert gauge["sharpness"] == "blunt"
    assert "ttnn-bf16" not in gauge["gates"]


@pytest.mark.usefixtures("toy")
def test_a_registered_kind_s_tensors_are_judged_where_they_lie(tmp_path: Path) -> None:
    test = TestSpec.parse({"kernel": "softmax_fw", "shape": [4, 40]})
    given = quantise(test, generate(test, 0))
    outputs = emulator.run(test, given, "correct")
    (tmp_path / "spec.json").write_text(json.dumps({"test": test.canonical()}))
    for name, array in {**given, **outputs}.items():
        np.save(tmp_path / f"{name}.npy", array)
    code, result = command(
        "judge",
        str(tmp_path / "spec.json"),
        str(tmp_path / "x.npy"),
        str(tmp_path / "y.npy"),
        "--json",
    )
    assert (code, result["verdict"]) == (0, "pass")
    wrong = emulator.run(test, given, "without-tile-0/total")
    case = case_of_test(test.canonical(), {**given, **wrong}, {}, None)
    record = record_of(case, case.judge())
    assert record["explanation"] == "unexplained"
    assert "softmax_fw [4, 40]" in record["words"]


@pytest.mark.usefixtures("toy")
def test_a_registered_kind_is_submitted_and_its_builds_are_listed(tmp_path: Path) -> None:
    assert "missing/temperature@scaled" in own_builds(EMULATOR)
    test = {"kernel": "softmax_fw", "shape": [4, 64], "parameters": {"temperature": 2}}
    with in_process(f"sqlite:///{tmp_path / 'g.db'}") as api:
        job = api.submit(test=test, build="missing/temperature@scaled")
        assert api.get(f"/jobs/{job}")["test"] == test
        assert "softmax_fw" in api.client.get(f"/jobs/{job}").text
        cold = {
            "test": {**test, "parameters": {"temperature": 0}},
            "build": "correct",
            "seeds": {"count": 1},
        }
        answer = api.client.post("/api/v1/jobs", json=cold)
        assert answer.status_code == 422
        assert "test.parameters.temperature" in answer.text
    line = check_line(test, build="correct", executor="emulator", seed=3, output="y")
    assert """--parameters '{"temperature":2}'""" in line


def test_a_kind_that_is_gone_is_unknown() -> None:
    assert "softmax_fw" not in KERNELS
    with pytest.raises(FieldError, match="unknown value"):
        TestSpec.parse({"kernel": "softmax_fw", "shape": [2, 2]})


def test_a_name_is_registered_once() -> None:
    register(rmsnorm.KERNELS[0])  # registering the same kernel again changes nothing
    with pytest.raises(ValueError, match="there is a kernel"):
        register(replace(softmax.KERNEL, name="rmsnorm_fw"))


def test_parameters_belong_to_the_test_s_key_and_those_at_their_default_do_not() -> None:
    plain = TestSpec.parse({"kernel": "groupnorm_fw", "shape": [2, 8, 3, 3]})
    assert (
        TestSpec.parse(
            {"kernel": "groupnorm_fw", "shape": [2, 8, 3, 3], "parameters": {"num_groups": 1}}
        ).key
        == plain.key
    )
    four = TestSpec.parse(
        {"kernel": "groupnorm_fw", "shape": [2, 8, 3, 3], "parameters": {"num_groups": 4}}
    )
    assert four.key != plain.key
    assert TestSpec.parse(four.canonical()) == four
    assert (four.rows, four.features, four.shape_of("mean"), four.shape_of("gamma")) == (
        8,
        18,
        (2, 4),
        (8,),
    )
    assert (four.flat_shape_of("y"), four.flat_shape_of("rstd"), four.input_names) == (
        (8, 18),
        (8,),
        ("x", "gamma", "beta"),
    )


BEYOND = {"regime": "hot_tile", "tile": 2, "value": 1}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"kernel": "groupnorm_fw", "shape": [2, 6], "parameters": {"num_groups": 4}},
     "test.parameters.num_groups"),
    ({"kernel": "groupnorm_fw", "shape": [2, 6], "parameters": {"num_groups": 0}},
     "test.parameters.num_groups"),
    ({"kernel": "groupnorm_fw", "shape": [2, 6], "parameters": {"groups": 2}},
     "test.parameters.groups"),
    ({"kernel": "groupnorm_fw", "shape": [6]}, "test.shape"),
    ({"kernel": "groupnorm_fw", "shape": [2, 64], "numerics": {"output": "bfp8_b"}},
     "test.numerics.output"),
    ({"kernel": "groupnorm_fw", "shape": [2, 64], "inputs": {"gamma": BEYOND}},
     "test.inputs.gamma.tile"),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "parameters": {"num_groups": 2}},
     "test.parameters.num_groups"),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "inputs": {"beta": 1}}, "test.inputs.beta"),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "tolerance": {"mean": {"atol": 1}}},
     "test.tolerance.mean"),
    ({"kernel": "rmsnorm_fw", "shape": [2, 6], "numerics": {"statistics": "maybe"}},
     "test.numerics.statistics"),
    ({"kernel": "layernorm_fw", "shape": [2, 6], "parameters": 3}, "test.parameters"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field"), BAD)
def test_bad_input_names_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(spec)
    assert caught.value.field == field
