"""Pairs of builds: which one fails, and which way their values differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gonogo.arithmetic.formats import round_to
from gonogo.judgment.pairs import Flips, Pair, flips_of, paired, sign_probability
from tests.unit.domain.judgment.kernels import Array, inputs, judged, layernorm, stored


def test_flips_are_counted_by_direction_and_by_row() -> None:
    other = np.array([[1.0, -1.0, 2.0, 0.0], [1.0, 1.0, -4.0, np.nan], [1.0, 1.0, 1.0, np.inf]])
    values = other.copy()
    values[0, :3] += [2.0**-7, 2.0**-7, 2.0**-6]  # away from zero, toward it, away
    values[0, 3] = -1e-3  # a zero has no direction
    values[1, 2] += 0.5
    values[1, 3] = 1.0
    assert flips_of(values, other) == Flips(10, 5, 2, 2, 1, 1)
    assert flips_of(2 * np.ones(20), np.ones(20)).rows_away == 20


def pair(builds: tuple[dict[str, float], dict[str, float]], seeds: int = 4) -> Pair:
    """Return the answer about two builds of a LayerNorm, in bf16."""
    judgments, flips = [], []
    for seed in range(seeds):
        given = inputs((32, 256), "bf16", seed=seed)
        outputs: list[Array] = [layernorm(**given, **build) for build in builds]
        one, other = (judged(given, y, "bf16") for y in outputs)
        judgments.append((one, other))
        flips.append(flips_of(*(stored(y, "bf16") for y in outputs)))
    return paired(judgments, flips)


@pytest.mark.parametrize(
    ("builds", "answers", "counts", "sentence"),
    [
        (({}, {}), ("explained", "explained"), (0, 0), "no value differs"),
        (({"count": 200}, {}), ("unexplained", "explained"), (4, 0), "only this one fails on 4"),
        (({}, {"count": 200}), ("explained", "unexplained"), (0, 4), "only the other on 4 (sign"),
    ],
)
def test_each_build_keeps_its_own_answer(
    builds: tuple[dict[str, float], dict[str, float]],
    answers: tuple[str, str],
    counts: tuple[int, int],
    sentence: str,
) -> None:
    answer = pair(builds)
    assert (answer.explanation, answer.other) == answers
    assert (answer.worse, answer.better) == counts
    assert answer.of_seeds == (0.125 if any(counts) else 1.0)
    assert answer.message.startswith(f"this build is {answers[0]}, the other {answers[1]}; ")
    assert sentence in answer.message


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [
        ([1.0], "one way: 2,973 of 2,973 flips point away from zero, in 64 of 64 rows (sign test:"),
        ([-1.0], "one way: 2,822 of 2,822 flips point toward zero, in 64 of 64 rows (sign test:"),
        ([1.0, -1.0], "both ways: "),
        ([1.0] + [0.0] * 31, "too few rows to tell: "),
    ],
)
def test_a_common_factor_moves_values_one_way(factors: list[float], sentence: str) -> None:
    """factors: those of the rows, less 1, in 2^-10."""
    given = inputs((32, 256), "bf16")
    right = judged(given, layernorm(**given), "bf16")
    factor = 1 + np.resize(factors, (32, 1)) * 2.0**-10
    others = [np.random.default_rng(seed).normal(0, 1, (32, 256)) for seed in range(2)]
    rounded = [(round_to(other * factor, "bf16"), round_to(other, "bf16")) for other in others]
    assert sentence in paired([(right, right)] * 2, [flips_of(*both) for both in rounded]).message


@pytest.mark.parametrize(("one", "other"), [(8, 0), (15, 3), (7, 7), (0, 0), (6000, 5800)])
def test_the_sign_test_is_the_binomial_one(one: int, other: int) -> None:
    exact = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert sign_probability(one, other) == pytest.approx(exact, rel=1e-9)


def test_no_seeds_are_no_pair() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        paired([], [])
