"""The command in a flag's evidence runs the flagged seed of the flagged test: every part of the
spec that `gonogo check` has a flag for."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.reports.check_line import check_line
from gonogo.spec.test_spec import TestSpec


def parsed(line: str) -> dict[str, Any]:
    """The test that the flags of a check command spell, as the command reads them."""
    words = shlex.split(line)
    assert words[:2] == ["gonogo", "check"]
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    test: dict[str, Any] = {
        "kernel": flags["--kernel"],
        "shape": [int(n) for n in flags["--shape"].split(",")],
    }
    test["tolerance"] = {
        n: float(flags[f"--{n}"])
        for n in ("rtol", "atol", "pcc", "frobenius", "ulp")
        if f"--{n}" in flags
    }
    test |= {
        name: json.loads(flags[f"--{name}"])
        for name in ("inputs", "numerics")
        if f"--{name}" in flags
    }
    if "--epsilon" in flags:
        test["epsilon"] = float(flags["--epsilon"])
    return test


@given(
    epsilon=st.sampled_from([1e-6, 1e-5, 1.23456789e-12]),
    tolerance=st.sampled_from(
        [{}, {"rtol": 1e-3, "atol": 0.5}, {"pcc": 0.9999}, {"rtol": 0.016, "atol": 1e-5, "ulp": 32}]
    ),
    inputs=st.sampled_from(
        [
            None,
            {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1},
            {"regime": "uniform", "low": -2, "high": 2},
        ]
    ),
    numerics=st.sampled_from([None, {"input": "fp32", "output": "fp32"}, {"fidelity": "hifi2"}]),
)
def test_the_command_spells_the_same_test(
    epsilon: float, tolerance: dict[str, float], inputs: Any, numerics: Any
) -> None:
    data: dict[str, Any] = {
        "kernel": "layernorm_bw",
        "shape": [3, 5, 7],
        "epsilon": epsilon,
        "tolerance": tolerance,
    }
    data |= {
        name: value
        for name, value in (("inputs", inputs), ("numerics", numerics))
        if value is not None
    }
    test = TestSpec.parse(data)
    line = check_line(
        test.canonical(), build="it's broken", executor="emulator", seed=7, output="dx"
    )
    assert TestSpec.parse(parsed(line)).key == test.key
    assert "--seeds 1 --seed-start 7" in line
    assert "--executor" not in line


def test_of_a_tolerance_per_output_the_flagged_ones_is_taken() -> None:
    test = TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [4, 4],
            "tolerance": {"dx": {"atol": 0.5}, "dgamma": {"pcc": 0.99}},
        }
    )
    line = check_line(test.canonical(), build="b", executor="mine", seed=0, output="dgamma")
    assert line.endswith("--pcc 0.99")
    assert "--executor mine" in line


@pytest.mark.parametrize("output", ["dx", ""])
def test_an_undeclared_tolerance_gives_no_flag(output: str) -> None:
    test = TestSpec.parse(
        {"kernel": "layernorm_bw", "shape": [4, 4], "tolerance": {"dgamma": {"pcc": 0.99}}}
    )
    assert "--pcc" not in check_line(
        test.canonical(), build="b", executor="emulator", seed=0, output=output
    )
