"""Judge small kernels: right ones are explained, wrong ones aren't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.sums import narrow_sum
from gonogo.graph import trace
from gonogo.judgment import judge, pooled_entries
from gonogo.spec.verdicts import Explanation
from tests.unit.domain.judgment.kernels import Array, graphs, inputs, judged, layernorm, stored

F = np.float32


def running_mean(x: Array) -> Array:
    """Return the mean by one running total."""
    return np.add.accumulate(x, axis=-1)[..., -1:] / F(x.shape[-1])


def reversed_mean(x: Array) -> Array:
    """Return the mean in the opposite order."""
    return running_mean(x[..., ::-1])


RIGHT: dict[str, dict[str, Any]] = {
    "pairwise sums": {},
    "a running sum": {"mean_of": running_mean},
    "a running sum from the end": {"mean_of": reversed_mean},
    "a mean in float64": {"mean_of": lambda x: x.mean(-1, keepdims=True, dtype=np.float64)},
}
WRONG: dict[str, dict[str, Any]] = {
    "N - 1": {"count": 255},
    "rstd 1e-3 too large": {"scale": 1.001},
    "another epsilon": {"epsilon": 1e-3},
    "x^ squared": {"term": np.square},
    "a mean without the last tile": {
        "mean_of": lambda x: x[..., :-32].sum(-1, keepdims=True) / F(256)
    },
}


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_are_explained(name: str, form: str) -> None:
    given = inputs(form=form)
    result = judged(given, layernorm(**given, **RIGHT[name]), form)
    assert result.explanation is Explanation.explained, result.message
    assert result.rounding_ratio <= 1.05


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_unexplained(name: str, form: str) -> None:
    given = inputs(form=form)
    result = judged(given, layernorm(**given, **WRONG[name]), form)
    assert result.explanation is Explanation.unexplained, result.message
    assert result.diagnosis is not None
    assert result.diagnosis.share > 0.9
    assert result.rounding_ratio > 2


def one_row(y: Array) -> None:
    y[3, 128:] = 0


def other_row(y: Array) -> None:
    y[5] = y[4]


def one_step(y: Array) -> None:
    y[7] *= F(1 + 2**-7)


def not_a_number(y: Array) -> None:
    y[2, 2] = np.nan


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("damage", [one_row, other_row, one_step, not_a_number])
def test_damage_in_one_row_is_found(damage: Callable[[Array], None], form: str) -> None:
    given = inputs(form=form)
    y = stored(layernorm(**given), form)
    damage(y)
    result = judged(given, y, form)
    assert result.explanation is Explanation.unexplained, result.message


def test_a_stored_value_is_found_and_named() -> None:
    given = inputs(form="bf16")
    result = judged(given, layernorm(**given, rstd_as="bf16"), "bf16")
    assert result.explanation is Explanation.explained, result.message
    assert "rstd in bf16" in result.arithmetic


def test_a_value_that_is_stored_truncated_is_found() -> None:
    given = inputs(form="bf16")
    x, gamma, beta = (np.asarray(given[name], F) for name in ("x", "gamma", "beta"))
    centered = x - x.mean(-1, keepdims=True)
    rstd = round_to(1 / np.sqrt((centered**2).mean(-1, keepdims=True) + F(1e-5)), "bf16", "zero")
    y = round_to(centered * rstd * gamma + beta, "bf16", "zero")
    result = judged(given, y, "bf16")
    assert result.explanation is Explanation.explained, result.message
    assert result.program.stored == {"rstd": "bf16/zero", "y": "bf16/zero"}


@pytest.mark.parametrize("totals", ["running", "2 parts", "4 lanes"])
def test_a_sum_with_16_bit_totals_is_found(totals: str) -> None:
    dy = round_to(np.random.default_rng(1).normal(size=(50, 40)), "fp16")
    graph = trace(lambda dy: {"dbeta": np.sum(dy, axis=0)}, {"dy": dy})
    dbeta = narrow_sum(dy.T, "fp16", totals)
    outputs = {"dbeta": dbeta}
    answer = judge([graph], {"dy": dy}, outputs, {"dbeta": "fp16"}, ["fp16"]).outputs["dbeta"]
    assert answer.explanation is Explanation.explained
    assert ".total in fp16" in answer.arithmetic
    assert answer.program.totals == totals


def test_an_input_that_is_stored_with_fewer_digits_than_it_has_is_a_fault() -> None:
    given = inputs()
    rounded = {**given, "x": round_to(given["x"], "bf16")}
    result = judged(given, stored(layernorm(**rounded), "bf16"), "bf16")
    assert result.explanation is Explanation.unexplained
    assert "x is stored in bf16" in result.message


def test_a_stored_value_does_not_hide_in_fp32() -> None:
    given = inputs()
    result = judged(given, layernorm(**given, rstd_as="bf16"))
    assert result.explanation is Explanation.unexplained


def test_a_declared_program_explains_its_outputs_alone() -> None:
    given = inputs(form="bf16")
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    y = stored(layernorm(**given, rstd_as="bf16"), "bf16")
    answers = [
        judge(ways, given, {"y": y}, {"y": "bf16"}, ["bf16"], [Program(stored=keys)]).explanation
        for keys in ({"rstd": "bf16"}, {"xhat": "bf16"})
    ]
    assert answers == [Explanation.explained, Explanation.unexplained]


def test_rounding_that_leaves_nothing_is_inconclusive() -> None:
    given = {**inputs((32, 64)), "beta": np.zeros(64), "x": np.full((32, 64), 0.1, F)}
    result = judged(given, np.full((32, 64), 3e-5))
    assert result.explanation is Explanation.inconclusive


def test_inf_is_right_where_the_reference_is() -> None:
    def doubled(x: Array) -> dict[str, Array]:
        y = x * 2.0
        return {"y": y}

    x = np.array([1.0, 4e4, -4e4, 3.0])
    graph = [trace(doubled, {"x": x})]
    answers = [
        judge(graph, {"x": x}, {"y": np.array(y)}, {"y": "fp16"}, ["fp16"]).explanation
        for y in ([2, np.inf, -np.inf, 6], [2, np.inf, np.inf, 6], [2, 65504, -np.inf, 6])
    ]
    assert [answer is Explanation.explained for answer in answers] == [True, False, False]


def test_no_stored_value_that_overflows_explains_an_output() -> None:
    given = inputs(form="fp16")
    given["x"] = stored(2000 * given["x"], "fp16")  # its variance is no fp16
    y = np.broadcast_to(given["beta"], given["x"].shape)
    assert judged(given, y, "fp16").explanation is Explanation.unexplained


def test_a_small_factor_of_all_rows_is_found_in_bf16() -> None:
    given = inputs((64, 1024), "bf16")
    result = judged(given, layernorm(**given, scale=1 + 4e-7), "bf16")
    assert result.explanation is not Explanation.explained, result.message


def test_seeds_add_up() -> None:
    def results(scale: float) -> Explanation:
        seeds = []
        for seed in range(4):
            given = inputs((16, 64), seed=seed)
            seeds.append(judged(given, layernorm(**given, scale=scale)))
        return pooled_entries(seed.entry() for seed in seeds).explanation

    assert results(1.0) is Explanation.explained
    assert results(1 + 6e-7) is not Explanation.explained


def test_unknown_outputs_and_shapes_are_refused() -> None:
    given = inputs((8, 32))
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    with pytest.raises(ValueError, match="it has y, mean, rstd"):
        judge(ways, given, {"z": given["x"]}, {"z": "fp32"})
    with pytest.raises(ValueError, match="its reference"):
        judge(ways, given, {"y": given["x"][:4]}, {"y": "fp32"})
