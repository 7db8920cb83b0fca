"""A gauge's parts by name, as a service hands them out, and the command line that repeats it."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Any

import pytest
from typer.testing import CliRunner

from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.gauge import kernels
from gonogo.gauge.kernels import RIGHT_KERNELS, Kind, planned
from gonogo.reports.check_line import gauge_line
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.messages.chunk import gauge_parts
from numeric_cases import spec


@pytest.mark.parametrize("kernel", ["layernorm_bw", "groupnorm_fw", "softmax", "matmul", "adam"])
def test_every_part_of_a_kernel_is_planned_under_its_name_and_kind(kernel: str) -> None:
    test = spec(kernel, (8, 8) if kernel == "groupnorm_fw" else (8, 64))
    planned_parts = {part.name: part for part in planned(test)}
    parts = [*kernels.right(test), *kernels.wrong(test)]
    for part in parts:
        assert (planned_parts[part.name].kind, planned_parts[part.name].build) == (
            part.kind,
            part.build,
        )
    assert {part.name for part in parts if part.kind is Kind.go} <= set(RIGHT_KERNELS)


def test_a_worker_knows_the_test_s_parts_and_says_which_it_has_not() -> None:
    test = spec("layernorm_fw", (8, 64), numerics={"fidelity": "hifi3"})
    listed = [{"number": number, **asdict(part)} for number, part in enumerate(planned(test))]
    parts = gauge_parts({"parts": listed}, test, "emulator")
    assert parts is not None
    known = {listed[number]["name"]: part for number, part in parts.items()}
    assert known["hifi3"] is known["hang"] is known["drop-s1"] is None
    stale, reverse = known["stale-register"], known["reversed"]
    assert stale is not None
    assert stale.unsure
    assert reverse is not None
    assert reverse.turned
    foreign_part = {
        "number": 7,
        "name": "mine:x",
        "kind": "no_go",
        "executor": "mine",
        "build": "x",
    }
    foreign_parts = gauge_parts({"parts": [foreign_part]}, test, "mine")
    assert foreign_parts is not None
    foreign = foreign_parts[7]
    assert foreign is not None
    assert (foreign.kind, foreign.build, foreign.unsure) == (Kind.no_go, "x", True)
    assert gauge_parts(None, test, "mine") is None
    for wrong in (
        {"parts": []},
        {"parts": [{**foreign_part, "kind": "x"}]},
        {"parts": [{**foreign_part, "number": -1}]},
        3,
    ):
        with pytest.raises(FieldError):
            gauge_parts(wrong, test, "mine")


@pytest.mark.parametrize(
    "test",
    [
        {"kernel": "groupnorm_fw", "shape": [1, 4, 8], "parameters": {"num_groups": 2},
         "epsilon": 1e-5, "tolerance": {"rtol": 0.01, "atol": 0.05, "pcc": 0.99, "ulp": 8}},
        {"kernel": "layernorm_bw", "shape": [4, 40],
         "tolerance": {"dx": {"rtol": 0.001, "atol": 0.5}, "dbeta": {"frobenius": 0.1}},
         "inputs": {"regime": "normal", "mean": 0, "std": 2}, "numerics": {"fidelity": "hifi3"}},
    ],
)  # fmt: skip
def test_the_line_measures_the_same_test_again(test: dict[str, Any]) -> None:
    canonical = TestSpec.parse(test).canonical()
    line = shlex.split(gauge_line(canonical, start=3, count=1))
    assert line[0] == "gonogo"
    result = CliRunner().invoke(app, [*line[1:], "--no-search", "--json"])
    report = json.loads(result.stdout)
    assert (report["test"], report["seeds"]) == (canonical, 1)


def test_a_tolerance_is_given_once() -> None:
    result = CliRunner().invoke(
        app, ["gauge", "--shape", "4,40", "--atol", "1", "--tolerance", '{"atol": 1}']
    )
    assert "tolerance" in str(result.exception)
