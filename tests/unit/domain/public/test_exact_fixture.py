"""The pytest fixture `exact_inputs`, and `gonogo check --exact`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from exact_kernels import exact_test
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.pytest_plugin.exact import draw
from gonogo.spec.regimes import EXACT_KERNELS
from gonogo.workloads import exact_outputs
from pytest_plugin import in_this_process

PROGRAM = """
import numpy as np
import pytest

@pytest.mark.gonogo_seeds(2, start=3)
def test_layer_norm(exact_inputs, gonogo_seed):
    inputs = exact_inputs("layernorm_fw", (2, 8, 64), "fp32")
    assert list(inputs) == ["x", "gamma", "beta"] and len(inputs) == 3
    assert inputs.x.shape == (2, 8, 64)
    x = inputs.x
    ddof = 0 if gonogo_seed == 3 else 1
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + np.float32(1e-6))
    inputs.check(y=(x - x.mean(-1, keepdims=True)) * rstd * inputs.gamma + inputs.beta)
"""


def test_the_fixture_draws_inputs_of_the_tests_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    lines = in_this_process(monkeypatch)(tmp_path, "--gonogo=off", "--tb=short", "-rf")
    assert "1 failed, 1 passed" in lines[-1]
    output = "\n".join(lines)
    assert "test_layer_norm[seed4]" in output
    assert "variance divides by N - 1" in output


@pytest.mark.parametrize("kernel", EXACT_KERNELS)
def test_every_kernel_has_exact_inputs_and_a_judgment_of_each_output(kernel: str) -> None:
    grouped = kernel == "groupnorm_fw"
    fields = {"parameters": {"num_groups": 8}} if grouped else {}
    inputs = draw(1, kernel, (2, 16, 32) if grouped else (16, 64), "fp32", **fields)
    test = exact_test(kernel, *inputs.x.shape, fmt="fp32", **fields)
    flat = {name: inputs[name].reshape(test.flat_shape_of(name)) for name in inputs}
    right = exact_outputs(test, flat)
    outputs = {name: value.astype(np.float32) for name, value in right.items()}
    judgements = inputs.judge(**outputs)
    assert set(judgements) == set(test.outputs)
    inputs.check(**outputs)
    for name in outputs:
        with pytest.raises(AssertionError, match=f"{name}: .* values are wrong"):
            inputs.check(**{name: outputs[name] * np.float32(1.01)})


def test_names_that_do_not_exist_are_refused() -> None:
    inputs = draw(0, "layernorm_fw", (16, 64))
    with pytest.raises(ValueError, match=r"no output 'dx' \(allowed: y, mean, rstd\)"):
        inputs.judge(dx=inputs.x)
    with pytest.raises(AttributeError, match="no input 'dy'"):
        _ = inputs.dy
    with pytest.raises(FieldError, match=r"test.numerics.input.x: .* share an exponent"):
        draw(0, "layernorm_fw", (16, 64), "bfp8_b")


def check(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", "--exact", "--kernel", "layernorm_bw", *arguments])


def test_check_exact_says_which_term_is_wrong() -> None:
    result = check("--shape", "8,256", "--build", "drop-s1", "--json")
    row = json.loads(result.stdout)["seeds"][0]
    assert row["outputs"]["dx"]["exact"]["fault"] == "missing:s1@P_centered"
    assert "s1 is missing in P_centered" in row["message"]
    assert row["outputs"]["dbeta"]["exact"]["mismatches"] == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--shape", "4,1000", "--build", "correct"), "test.shape"),
        (("--shape", "4,8192", "--build", "correct"), "test.shape"),
        (("--shape", "4,64", "--build", "correct", "--inputs", '{"x": 1}'), "exact"),
    ],
)
def test_check_exact_refuses_what_cannot_be_exact(arguments: tuple[str, ...], field: str) -> None:
    result = check(*arguments)
    assert isinstance(result.exception, FieldError)
    assert result.exception.field == field
