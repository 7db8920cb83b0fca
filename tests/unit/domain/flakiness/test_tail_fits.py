"""Tails against plain code: fits by Zhang and Stephens, survival, thresholds, bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gonogo.flakiness import tails
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.tails import pareto_fit, rates_in_words, survival, tail

Floats = NDArray[np.float64]


def quantiles(count: int, shape: float = 0.0) -> Floats:
    """Return quantiles of a generalized Pareto distribution: a sample without noise."""
    places = (np.arange(count) + 0.5) / count
    return np.asarray(stats.genpareto.ppf(places, shape), dtype=np.float64)


def plain_fit(excess: Iterable[float]) -> tuple[float, float]:
    """Zhang and Stephens, Technometrics 51, 2009, as they write it; the shape is xi = -k."""
    x = sorted(excess)
    n, m = len(x), 20 + int(len(x) ** 0.5)
    quarter = x[int(n / 4 + 0.5) - 1]
    theta = [1 / x[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * quarter) for j in range(1, m + 1)]

    def log_likelihood(b: float) -> float:
        k = -sum(math.log(1 - b * value) for value in x) / n
        return n * (math.log(b / k) + k - 1)

    logs = [log_likelihood(b) for b in theta]
    weights = [1 / sum(math.exp(other - one) for other in logs) for one in logs]
    best = sum(weight * b for weight, b in zip(weights, theta, strict=True))
    k = -sum(math.log(1 - best * value) for value in x) / n
    return -k, k / best


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("count", [10, 13, 37])
def test_a_fit_is_zhang_and_stephens_s(shape: float, count: int) -> None:
    rows = np.stack([quantiles(count, shape), 3.0 * quantiles(count, shape) ** 1.2])
    for row, fitted_shape, fitted_scale in zip(rows, *pareto_fit(rows), strict=True):
        assert (fitted_shape, fitted_scale) == pytest.approx(plain_fit(row), rel=1e-9)


def test_a_shape_is_shrunk_as_by_ten_exceedances_of_shape_a_fifth() -> None:
    rows = quantiles(30, -0.4)[None]
    shape, scale = pareto_fit(rows)
    shrunk, same_scale = pareto_fit(rows, shrink=True)
    assert float(shrunk[0]) == pytest.approx((30 * float(shape[0]) + 10 * 0.2) / 40)
    assert same_scale == scale


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_fit_of_few_or_equal_numbers_is_finite(count: int) -> None:
    for row in (np.full(count, 0.25), np.append(np.zeros(count - 1), 1.0)):
        shape, scale = pareto_fit(row[None])
        assert np.isfinite(shape).all()
        assert (scale > 0).all()


@pytest.mark.parametrize("shape", [-0.5, -1e-7, 0.0, 1e-12, 1e-7, 0.3, 2.0])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_survival_and_drawn_numbers_are_scipy_s(shape: float, scale: float) -> None:
    for z in (0.0, 0.3, 0.99, 1.0, 2.5):
        probability = survival(z, np.array([shape]), np.array([scale]))
        assert probability == pytest.approx(
            [stats.genpareto.sf(z, shape, scale=scale)], rel=1e-6, abs=1e-12
        )
    uniform = np.array([[0.0, 0.2, 0.9, 0.999]])
    expected = stats.genpareto.ppf(uniform, shape, scale=scale)
    assert tails._drawn(uniform, shape, scale) == pytest.approx(expected, rel=1e-6)


def test_a_fit_that_failed_predicts_nothing() -> None:
    assert survival(1.0, np.array([math.nan]), np.array([1.0])).tolist() == [0.0]


@pytest.mark.parametrize(("seeds", "exceedances"), [(20, [10]), (40, [20, 14, 10]), (39, [19, 13])])
def test_thresholds_lie_between_the_seeds_that_they_part(
    seeds: int, exceedances: list[int]
) -> None:
    ratios = np.arange(1, seeds + 1) / 100
    fitted = tail(ratios).thresholds
    assert [fit.exceedances for fit in fitted] == exceedances
    for fit in fitted:
        assert fit.threshold == pytest.approx((seeds - fit.exceedances + 0.5) / 100)


def test_a_threshold_at_the_limit_leaves_nothing_to_predict() -> None:
    below, above = 0.5 + np.arange(20) / 100, 2.0 - 0.69 + np.arange(20) / 100
    at_limit = tail([*below, *above])
    assert at_limit.thresholds == ()
    assert "too many above the limit" in at_limit.words
    assert at_limit.predicted == at_limit.observed.failures / 40 == 0.5
    assert at_limit.upper == pytest.approx(stats.beta.ppf(0.95, 20.5, 20.5))
    assert not at_limit.at_most


def test_nearly_equal_numbers_have_no_tail() -> None:
    nearly = 0.5 + 1e-10 * np.arange(40) / 40
    assert tail(nearly).thresholds == ()
    assert tail(nearly).predicted == 1 / 400
    assert tail(nearly).at_most
    assert tail(0.5 + 1e-7 * np.arange(40) / 40).thresholds != ()


def test_a_limit_a_million_tails_away_is_bounded_by_the_seeds_alone() -> None:
    far = tail(0.5 + 1e-8 * quantiles(100))
    assert {fit.predicted for fit in far.thresholds} == {0.0}
    assert (far.predicted, far.upper, far.at_most) == (1 / 1000, 1 / 1000, True)


def test_the_prediction_is_the_median_of_the_thresholds() -> None:
    near = tail(quantiles(200) / 5.5)
    predictions = [fit.predicted for fit in near.thresholds]
    assert near.predicted == np.median(predictions)
    assert near.upper is not None
    assert max(predictions) < near.upper < 0.05
    true = math.exp(-5.5)
    for fit in near.thresholds:
        assert fit.predicted == pytest.approx(true, rel=0.2)
    halfway = tail(quantiles(200) / 5.5, level=0.5).upper
    assert halfway is not None
    assert halfway < near.upper


@pytest.mark.parametrize("infinite", [1, 2, 30])
def test_infinite_ratios_fail_beside_the_tail_of_the_others(infinite: int) -> None:
    share = infinite / (100 + infinite)
    lost = stats.beta.ppf(0.95, infinite + 0.5, 100.5)
    far = tail([*(0.5 + 1e-8 * quantiles(100)), *[math.inf] * infinite])
    assert far.predicted == pytest.approx(share)
    assert far.upper == pytest.approx(lost)
    assert not far.at_most
    finite = quantiles(100) / 4.0
    alone, both = tail(finite), tail([*finite, *[-math.inf] * infinite])
    assert alone.predicted is not None
    assert alone.upper is not None
    assert both.predicted == pytest.approx(share + (1 - share) * alone.predicted)
    assert both.upper == pytest.approx(lost + (1 - lost) * alone.upper)


def test_the_largest_ratio_is_named_if_it_is_finite() -> None:
    assert tail([0.1, None, -0.7, 0.3]).largest == 0.7
    assert tail([0.1, math.inf]).largest is None
    assert tail([]).largest is None
    few = tail([0.1, None, 1.0, 1.5])
    assert (few.seeds, few.left_out, few.observed.failures, few.at_most) == (3, 1, 1, False)


def test_as_many_seeds_as_are_needed_are_enough() -> None:
    ratios = quantiles(POLICY.least_seeds) / 9.0
    assert tail(ratios).predicted is not None
    assert tail(ratios[1:]).predicted is None


@pytest.mark.parametrize(
    ("predicted", "upper", "at_most", "words"),
    [
        (0.002, 0.002, True, "fewer than 2 failures per thousand seeds at 95% confidence"),
        (
            0.002,
            0.003,
            True,
            "at most 2 failures per thousand seeds predicted, 3 at 95% confidence",
        ),
        (0.002, 0.002, False, "2 failures per thousand seeds predicted, 2 at 95% confidence"),
    ],
)
def test_rates_are_told_with_their_bound(
    predicted: float, upper: float, at_most: bool, words: str
) -> None:
    assert rates_in_words(predicted, upper, at_most, 0.95, "seeds") == words


@pytest.mark.parametrize(("samples", "draws"), [(4, [4, 4, 2]), (10, [10]), (0, [1] * 10)])
def test_samples_are_drawn_in_blocks_that_fit_in_memory(
    samples: int, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count, drawn, fit = 25, [], pareto_fit

    def counted(excess: Floats, shrink: bool = False) -> tuple[Floats, Floats]:
        drawn.append(len(excess))
        return fit(excess, shrink)

    monkeypatch.setattr(tails, "pareto_fit", counted)
    # 20 + sqrt(25) places of 25 numbers each
    monkeypatch.setattr(tails, "_BLOCK", samples * count * 25)
    policy = replace(POLICY, tail_bootstraps=10, tail_shares=(0.25,))
    tail(quantiles(100) / 6.0, policy)
    assert drawn == [1, 1, *draws]
