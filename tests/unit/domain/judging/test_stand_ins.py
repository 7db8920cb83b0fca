"""The noise of running sums doesn't explain a fault that all rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import gonogo
from benchmarks.corpus.judging import ask
from benchmarks.corpus.sources.libraries import question
from benchmarks.libraries import mutants
from benchmarks.libraries.cases import case_named
from gonogo.judging.limits.stand_ins import simpler_program
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.program import CANCELLED, WELFORD, Order, Program

EPSILON = 1e-6
RUNNING = Program(order=Order.running)
DRAWN = np.random.default_rng(2).standard_normal((24, 4096)).astype(np.float32)
ALIKE = np.ldexp(DRAWN[:1], np.arange(24)[:, None] % 12)


def graph_of(x: Array) -> NormalizedRows:
    return NormalizedRows(Rows(x.astype(np.float64), None, None, EPSILON, centered=False))


def normalized(x: Array, mean_square: Array, epsilon: float = EPSILON) -> Array:
    """RMSNorm in fp32 from the mean square of each row."""
    rstd = 1 / np.sqrt(mean_square.astype(np.float32) + np.float32(epsilon))
    return x * rstd[:, None].astype(np.float32)


def exact(x: Array) -> Array:
    return np.square(x, dtype=np.float64).mean(axis=1)


def running(x: Array) -> Array:
    return np.add.accumulate(x * x, axis=1)[:, -1] / np.float32(x.shape[1])


def in_two_lanes(x: Array) -> Array:
    """As noisy as running sums, and by none of the orders that are simulated."""
    squares = x * x
    lanes = [np.add.accumulate(squares[:, lane::2], axis=1)[:, -1] for lane in (0, 1)]
    return (lanes[0] + lanes[1]) / np.float32(x.shape[1])


WRONG = [
    pytest.param(exact(DRAWN), 0.0, id="epsilon is missing"),
    pytest.param(exact(DRAWN), 2 * EPSILON, id="twice the epsilon"),
    pytest.param(exact(DRAWN) * (1 + 1e-6), EPSILON, id="a factor"),
]


@pytest.mark.parametrize(("mean_square", "epsilon"), WRONG)
def test_a_fault_of_all_rows_is_no_running_sum(mean_square: Array, epsilon: float) -> None:
    output = normalized(DRAWN, mean_square, epsilon)
    assert simpler_program(graph_of(DRAWN), output, RUNNING, "fp32") == Program()


@pytest.mark.parametrize("mean_square", [running, in_two_lanes, exact])
def test_right_kernels_keep_their_program(mean_square: Callable[[Array], Array]) -> None:
    output = normalized(DRAWN, mean_square(DRAWN))
    assert simpler_program(graph_of(DRAWN), output, RUNNING, "fp32") is None


def test_rows_that_are_alike_share_what_their_running_sums_round_to() -> None:
    output = normalized(ALIKE, running(ALIKE))
    assert simpler_program(graph_of(ALIKE), output, RUNNING, "fp32") is None


@pytest.mark.parametrize(
    "x",
    [DRAWN, np.zeros_like(DRAWN), np.where(np.arange(24)[:, None] < 2, 0, DRAWN).astype("f4")],
    ids=["drawn", "zeros", "two rows of zeros"],
)
def test_a_kernel_without_epsilon_has_no_wrong_one(x: Array) -> None:
    rows = Rows(x.astype(np.float64), None, None, 0.0, centered=False)
    with np.errstate(all="ignore"):
        output = np.nan_to_num(normalized(x, exact(x), 0.0))
        result = simpler_program(NormalizedRows(rows), output, RUNNING, "fp32")
    assert result is None


BESIDE = round_to(np.random.default_rng(1).standard_normal((17, 3000)) + 3.5, "bf16")
CANCELING = Program(CANCELLED)


def beside(variance: Array, factor: float = 1.0) -> Array:
    return (np.float32(factor) / np.sqrt(variance.astype(np.float32) + np.float32(1e-5)))[:, None]


def statistic() -> RowStatistic:
    return RowStatistic(Rows(BESIDE.astype(np.float64), None, None, 1e-5), rstd=True)


@pytest.mark.parametrize("program", [CANCELING, replace(CANCELING, order=Order.running)])
def test_a_factor_of_an_rstd_output_is_larger_than_any_order_s_error(program: Program) -> None:
    """E[x^2] - mean^2 in 4 lanes is off by a quarter of it, in 32 lanes by a thousandth."""
    output = beside(BESIDE.var(axis=1), 1.0001)
    assert simpler_program(statistic(), output, program, "fp32") == Program()


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 32])
def test_an_rstd_output_whose_squares_cancel_keeps_its_program(lanes: int) -> None:
    squares = BESIDE * BESIDE
    parts = [np.add.accumulate(squares[:, lane::lanes], axis=1)[:, -1] for lane in range(lanes)]
    mean = BESIDE.mean(axis=1, dtype=np.float64).astype(np.float32)
    variance = np.sum(parts, axis=0, dtype=np.float32) / np.float32(3000) - mean * mean
    assert simpler_program(statistic(), beside(variance), CANCELING, "fp32") is None


@pytest.mark.parametrize("seed", [1, 2])
def test_a_factor_of_an_rstd_output_beside_16_bits_is_flagged(seed: int) -> None:
    x = round_to(np.random.default_rng(seed).standard_normal((17, 3000)) + 3.5, "bf16")
    mean = x.mean(axis=1, dtype=np.float64).astype(np.float32)
    for factor, explanation in ((1.0, "explained"), (1.0001, "unexplained")):
        rstd = (factor / np.sqrt(x.var(axis=1, dtype=np.float64) + 1e-5)).astype(np.float32)
        y = ((x - mean[:, None]) * rstd[:, None]).astype(ml_dtypes.bfloat16)
        judgment = gonogo.judge(
            kernel="layernorm_fw",
            inputs={
                "x": x.astype(ml_dtypes.bfloat16),
                "gamma": np.ones(3000, ml_dtypes.bfloat16),
                "beta": np.zeros(3000, ml_dtypes.bfloat16),
            },
            outputs={"y": y, "mean": mean, "rstd": rstd},
            epsilon=1e-5,
        )
        assert judgment.outputs["rstd"]["explanation"] == explanation


def test_few_rows_may_agree_by_chance() -> None:
    output = normalized(DRAWN[:7], exact(DRAWN[:7]), 0.0)
    assert simpler_program(graph_of(DRAWN[:7]), output, RUNNING, "fp32") is None


@pytest.mark.parametrize(
    ("program", "form"),
    [(RUNNING, "bf16"), (replace(RUNNING, stored={"x^": "bf16"}), "fp32"), (Program(), "fp32")],
    ids=["another format", "a program that stores", "the first rung"],
)
def test_nothing_stands_in_for_a_fault(program: Program, form: str) -> None:
    output = normalized(DRAWN, exact(DRAWN), 0.0)
    assert simpler_program(graph_of(DRAWN), output, program, form) is None


def test_welfords_updates_are_noisy_only_beside_a_mean() -> None:
    x = (DRAWN + np.float32(100)).astype(np.float32)
    rows = Rows(x.astype(np.float64), None, None, EPSILON)
    variance = x.var(axis=1, dtype=np.float64)
    off = (x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)).astype("f4")
    rstd = 1 / np.sqrt(variance * (1 + 1e-5) + EPSILON)
    output = off * rstd[:, None].astype(np.float32)
    assert simpler_program(NormalizedRows(rows), output, Program(WELFORD), "fp32") == Program()


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        ("fp32: epsilon-missing", "rmsnorm_fw-16x4096-normal-fp32"),
        ("fp32 lanes: epsilon-wrong", "layernorm_fw-16x4096-offset-100-fp32"),
    ],
)
def test_a_wrong_epsilon_on_long_rows_is_flagged(edit: str, name: str) -> None:
    case = case_named(name)
    mutant = mutants.mutant_named(edit, case.kind)
    wrong = mutants.run(mutant.source, case, 0, mutant.edit.name)
    assert ask(question(case, 0), wrong).explanation == "unexplained"
    right = mutants.run(mutant.source, case, 0)
    assert ask(question(case, 0), right).explanation == "explained"
