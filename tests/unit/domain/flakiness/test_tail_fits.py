"""Tails against plain code: fits by Zhang and Stephens, survival, and the words of rates."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

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


@pytest.mark.parametrize("shape", [-0.5, -1e-7, 0.0, 1e-12, 1e-7, 0.3, 2.0])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_survival_is_scipy_s(shape: float, scale: float) -> None:
    for z in (0.0, 0.3, 0.99, 1.0, 2.5):
        probability = survival(z, np.array([shape]), np.array([scale]))
        assert probability == pytest.approx(
            [stats.genpareto.sf(z, shape, scale=scale)], rel=1e-6, abs=1e-12
        )


def test_the_prediction_is_the_median_of_the_thresholds() -> None:
    near = tail(quantiles(200) / 5.5)
    predictions = [fit.predicted for fit in near.thresholds]
    assert near.predicted == np.median(predictions)
    assert near.upper is not None
    assert max(predictions) < near.upper < 0.05
    true = math.exp(-5.5)
    for fit in near.thresholds:
        assert fit.predicted == pytest.approx(true, rel=0.2)


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
    assert rates_in_words(predicted, upper, at_most, "seeds") == words
