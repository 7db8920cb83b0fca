"""Rows whose stored statistic moved: counted where the program reproduces the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import missed
from gonogo.numerics.replay.program import Program

Floats = NDArray[np.float32]
EPSILON = np.float32(1e-6)
STORED = "bf16: square, variance, variance + epsilon, rstd, x^, gamma x^ stored"


def stored(values: Floats) -> Floats:
    return round_to(np.asarray(values, np.float32), "bf16")


def rstd_of(x: Floats, factor: float) -> Floats:
    """rstd of a composite of single operations, off by a factor before it is stored."""
    variance = stored(stored(x * x).mean(axis=1, keepdims=True))
    return stored(np.float32(factor) / np.sqrt(stored(variance + EPSILON)))


def case(
    factor: float, seed: int = 2, rows: int = 32, features: int = 256, **changes: Any
) -> tuple[dict[str, Any], int]:
    """The arguments of judge() for an RMSNorm composite, and how many rows have another rstd."""
    generator = np.random.default_rng(seed)
    x = stored(generator.normal(size=(rows, features)))
    gamma = stored(1 + 0.1 * generator.normal(size=features))
    rstd = rstd_of(x, factor)
    y = stored(stored(x * rstd) * gamma)
    arguments = {
        "kernel": "rmsnorm_fw",
        "inputs": {"x": x, "gamma": gamma},
        "outputs": {"y": y},
        "tolerance": {"rtol": 5e-2, "atol": 5e-2},
        "epsilon": 1e-6,
        "numerics": {"input": "bf16", "output": "bf16"},
    }
    return arguments | changes, int((rstd != rstd_of(x, 1.0)).sum())


@pytest.mark.parametrize("arithmetic", [None, STORED])
def test_every_row_whose_stored_rstd_moved_is_counted(arithmetic: str | None) -> None:
    arguments, moved = case(1.001, arithmetic=arithmetic)
    assert 2 < moved < 16
    judgment = gonogo.judge(**arguments)
    counted = judgment.outputs["y"]["missed_rows"]
    assert counted == {"arithmetic": STORED, "missed": moved, "rows": 32}
    assert f"  y: all but {moved} of 32 rows are those of {STORED}" in judgment.words


def test_a_right_kernel_that_stores_misses_no_row_and_one_that_stores_nothing_counts_none() -> None:
    right, moved = case(1.0)
    assert moved == 0
    judgment = gonogo.judge(**right)
    assert judgment.verdict == "pass"
    assert judgment.outputs["y"]["missed_rows"]["missed"] == 0
    x, gamma = right["inputs"]["x"], right["inputs"]["gamma"]
    y = stored(x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + EPSILON) * gamma)
    plain = gonogo.judge(**{**right, "outputs": {"y": y}})
    assert plain.arithmetic == "fp32-inside"
    assert "missed_rows" not in plain.outputs["y"]


def test_an_output_that_no_program_reproduces_in_most_rows_has_no_count() -> None:
    arguments, _ = case(1.0)
    y = arguments["outputs"]["y"] * np.float32(1.004)
    judgment = gonogo.judge(**{**arguments, "outputs": {"y": stored(y)}})
    assert judgment.arithmetic == "unknown"
    assert "missed_rows" not in judgment.outputs["y"]


def test_a_program_that_misses_most_rows_is_not_the_kernel_s() -> None:
    arguments, moved = case(1.003, seed=4, arithmetic=STORED)
    assert 16 < moved < 32
    assert "missed_rows" not in gonogo.judge(**arguments).outputs["y"]


def test_single_elements_all_over_the_output_are_no_missed_rows() -> None:
    arguments, _ = case(1.0)
    y = arguments["outputs"]["y"].copy()
    y[::4, 7] *= np.float32(1.5)
    judgment = gonogo.judge(**{**arguments, "outputs": {"y": y}})
    assert judgment.explanation in ("suspect", "unexplained")
    assert "missed_rows" not in judgment.outputs["y"]


@pytest.mark.parametrize(("moved", "is_counted"), [(16, True), (17, False)])
def test_at_most_half_of_the_rows_are_missed_ones(moved: int, is_counted: bool) -> None:
    arguments, _ = case(1.0, arithmetic=STORED)
    y = arguments["outputs"]["y"].copy()
    y[:moved] = case(1.01)[0]["outputs"]["y"][:moved]
    statistics = gonogo.judge(**{**arguments, "outputs": {"y": y}}).outputs["y"]
    assert statistics.get("missed_rows") == (
        {"arithmetic": STORED, "missed": moved, "rows": 32} if is_counted else None
    )


@pytest.mark.parametrize(
    ("rows", "features", "is_counted"), [(7, 256, False), (8, 256, True), (32, 3, False)]
)
def test_few_rows_or_elements_are_not_counted(rows: int, features: int, is_counted: bool) -> None:
    arguments, _ = case(1.0, rows=rows, features=features, arithmetic=STORED)
    assert ("missed_rows" in gonogo.judge(**arguments).outputs["y"]) == is_counted


def test_a_suspect_seed_with_two_missed_rows_makes_the_test_unexplained() -> None:
    wrong, moved = case(1.001)
    seeds = [gonogo.judge(**wrong), *(gonogo.judge(**case(1.0, seed)[0]) for seed in (3, 4))]
    assert [seed.explanation for seed in seeds] == ["suspect", "explained", "explained"]
    pooled = gonogo.pool(seeds)
    assert (pooled.verdict, pooled.explanation) == ("pass_by_tolerance", "unexplained")
    counted = {"arithmetic": STORED, "missed": moved, "rows": 96, "seeds": 3}
    assert pooled.outputs["y"]["missed_rows"] == counted
    assert pooled.words.splitlines()[:2] == [
        "3 seeds: 1 suspect, 2 pass",
        f"y: all but {moved} of 96 rows in 3 seeds are those of {STORED}",
    ]
    assert pooled.words.splitlines()[2] == seeds[0].words.splitlines()[0]


def test_one_missed_row_of_all_seeds_stays_suspect() -> None:
    wrong, moved = case(1.0002, seed=4)
    assert moved == 1
    seed = gonogo.judge(**wrong)
    assert seed.outputs["y"]["missed_rows"]["missed"] == 1
    assert seed.explanation == "suspect"
    right = [gonogo.judge(**case(1.0, number)[0]) for number in (2, 3)]
    assert gonogo.pool([seed, *right]).verdict == "suspect"
    assert gonogo.pool([seed, seed, *right]).verdict == "pass_by_tolerance"


@pytest.mark.parametrize(
    ("shape", "enough"), [((8, 4), True), ((7, 4), False), ((8, 3), False)], ids=str
)
def test_few_rows_or_few_elements_in_each_are_not_counted(
    shape: tuple[int, int], enough: bool
) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    graph = NormalizedRows(Rows(x, None, None, float(EPSILON)))
    assert missed.has_rows(graph) is enough
    program = Program(stored={"rstd": "bf16"})
    output = graph.replay(program).values
    counted = missed.find_missed(graph, round_to(output, "bf16"), "bf16", [program])
    assert (counted is not None) is enough
    assert missed.find_missed(graph, graph.replay(Program()).values, "bf16", [Program()]) is None
