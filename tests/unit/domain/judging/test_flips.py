"""Flips between two builds: counted by hand, and on NumPy twins of a LayerNorm."""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gonogo.arithmetic.formats import round_to
from gonogo.judging.flip_summary import FlipsSummary, pooled, pooled_rows
from gonogo.judgment.pairs import flips_of, sign_probability
from gonogo.spec.compared_outputs import FlipCounts

Doubles = NDArray[np.float64]


def summary(output: Any, reference: Any) -> FlipsSummary:
    """Return the flips of one seed."""
    return pooled({"y": [asdict(flips_of(output, reference))]})[0]


def test_flips_are_counted_by_direction_and_by_row() -> None:
    other = np.array([[1.0, -1.0, 2.0, 0.0], [1.0, 1.0, -4.0, np.nan], [1.0, 1.0, 1.0, np.inf]])
    values = other.copy()
    values[0, :3] += [2.0**-7, 2.0**-7, 2.0**-6]  # away from zero, toward it, away
    values[0, 3] = -1e-3  # a zero has no direction
    values[1, 2] += 0.5
    values[1, 3] = 1.0
    assert flips_of(values, other) == FlipCounts(10, 5, 2, 2, 1, 1)


def test_values_of_a_vector_are_rows_of_their_own() -> None:
    assert flips_of(2 * np.ones(20), np.ones(20)).rows_away == 20


def layernorm(seed: int, lanes: int = 32, factor: float = 1.0, form: str = "bf16") -> Doubles:
    """Return y (32, 1024) of an fp32 LayerNorm whose sums have so many running totals."""
    x = round_to(np.random.default_rng(seed).uniform(-1, 1, (32, 1024)), "bf16").astype(np.float32)

    def average(values: Any) -> Any:
        totals = np.cumsum(values.reshape(32, -1, lanes), axis=1, dtype=np.float32)[:, -1]
        return np.float32(np.cumsum(totals, axis=1, dtype=np.float32)[:, -1:] / np.float32(1024))

    centered = x - average(x)
    rstd = np.float32(factor / np.sqrt(average(centered * centered).astype(np.float64) + 1e-6))
    return round_to(centered * rstd, form)


@pytest.mark.parametrize("factor", [1 + 3e-6, 1 - 3e-6])
def test_a_common_factor_moves_all_flips_one_way(factor: float) -> None:
    counts = [flips_of(layernorm(seed, factor=factor), layernorm(seed)) for seed in range(4)]
    (y,) = pooled({"y": [asdict(one) for one in counts]})
    assert y.one_way
    assert (y.toward if factor > 1 else y.away) == 0
    flipped, rows = max(y.away, y.toward), max(y.rows_away, y.rows_toward)
    way = "away from" if factor > 1 else "toward"
    assert y.words == (
        f"one way: {flipped} of {flipped} flips point {way} zero, in {rows} of {rows} rows"
        f" (sign test: {y.probability:.2g})"
    )


def test_right_kernels_that_sum_in_another_order_flip_both_ways() -> None:
    for one, other in combinations((4, 8, 32), 2):
        y = summary(layernorm(0, one, form="fp32"), layernorm(0, other, form="fp32"))
        assert not y.one_way
        assert y.words.startswith("both ways: ")


def test_equal_bits_and_few_rows_are_said() -> None:
    ones = np.ones((3, 4))
    assert summary(ones, ones).words == "no element differs"
    assert summary(ones * 2, ones).words == (
        "too few rows to tell: 12 of 12 flips point away from zero, in 3 of 3 rows"
        " (sign test: 0.25)"
    )


def test_repeats_of_a_seed_count_once_and_rows_without_a_comparison_not_at_all() -> None:
    def row(seed: int, repeat: int, value: float) -> dict[str, Any]:
        counts = asdict(flips_of(np.full((2, 2), value), np.ones((2, 2))))
        outputs = {"y": {"reference": {"flips": counts}}, "rstd": {}}
        return {"seed": seed, "repeat": repeat, "outputs": outputs}

    (y,) = pooled_rows([row(0, 0, 2.0), row(0, 1, 2.0), row(1, 0, 1.0)])
    assert (y.output, y.seeds, y.elements, y.differing) == ("y", 2, 8, 4)


@pytest.mark.parametrize(("one", "other"), [(8, 0), (15, 3), (7, 7), (0, 0), (6000, 5800)])
def test_the_sign_test_is_the_binomial_one(one: int, other: int) -> None:
    exact = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert sign_probability(one, other) == pytest.approx(exact, rel=1e-9)
