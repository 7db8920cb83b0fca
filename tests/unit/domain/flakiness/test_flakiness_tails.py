"""Latent flakes and grades: fits against known tails, bounds that hold, and both axes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gonogo.flakiness.grades import Sharpness, Stability, grade, hollow, sharpness, stability
from gonogo.flakiness.rates import rate
from gonogo.flakiness.tails import tail
from patience import scaled


def exponential(
    seeds: int, true: float, stream: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return tolerance ratios: the share `true` of the distribution is above 1."""
    return np.random.default_rng(stream).exponential(size=seeds) / -np.log(true)


def test_the_predicted_rate_is_near_the_true_one_and_the_bound_above() -> None:
    predictions = [tail(exponential(200, 0.004, stream)) for stream in range(60)]
    assert float(
        np.median(
            [prediction.predicted for prediction in predictions if prediction.predicted is not None]
        )
    ) == pytest.approx(0.004, rel=0.35)
    assert sum((prediction.upper or 0) >= 0.004 for prediction in predictions) >= 55


def test_nothing_is_predicted_beyond_ten_times_the_seeds() -> None:
    prediction = tail(np.random.default_rng(2).random(50) * 0.1)
    assert prediction.predicted == pytest.approx(1 / 500)
    assert prediction.at_most
    assert prediction.words.startswith("fewer than 2 failures per thousand seeds")


def test_too_few_seeds_are_said_to_be_so() -> None:
    prediction = tail([0.1, 0.2, 0.3])
    assert prediction.words == "not enough seeds: 3 of 20"
    assert prediction.predicted is None
    assert tail([]).words == "not enough seeds: 0 of 20"
    assert tail([float("nan")] * 100).words == "not enough seeds: 0 of 20"
    assert tail([float("nan")] * 100).left_out == 100


@pytest.mark.parametrize("value", [0.0, 0.5, 1e-300, 1.0])
def test_equal_ratios_have_no_tail_but_a_bound_by_their_count(value: float) -> None:
    prediction = tail([value] * 40)
    assert prediction.thresholds == ()
    assert prediction.upper == pytest.approx(0.0466, abs=1e-3)  # Jeffreys, one-sided: 0 of 40
    assert "no tail to fit" in prediction.words


def test_infinite_ratios_and_failures_count() -> None:
    prediction = tail([*exponential(100, 0.01), np.inf, np.inf])
    assert prediction.observed.failures >= 2
    assert prediction.predicted is not None
    assert prediction.predicted > 2 / 102
    most = tail([5.0 + k for k in range(40)])
    assert most.predicted == 1
    assert "too many above the limit" in most.words


def test_a_million_seeds_take_no_longer_than_a_moment() -> None:
    began = time.perf_counter()
    prediction = tail(exponential(1_000_000, 1e-5))
    assert time.perf_counter() - began < scaled(10)
    assert prediction.predicted == pytest.approx(1e-5, rel=0.7)


@given(arrays.arrays(np.float64, st.integers(0, 200), elements=st.floats(width=64)))
def test_any_numbers_have_an_answer(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    prediction = tail(values)
    json.dumps(asdict(prediction), allow_nan=False)
    if prediction.predicted is not None:
        assert prediction.upper is not None
        assert 0 <= prediction.predicted <= prediction.upper <= 1


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.999, 1.0, 1.5]), min_size=20, max_size=120))
def test_ties_have_an_answer(values: list[float]) -> None:
    prediction = tail(values)
    assert prediction.upper is not None
    assert prediction.predicted is not None
    assert 0 < prediction.predicted <= prediction.upper <= 1


def test_a_tail_does_not_depend_on_the_order_and_repeats() -> None:
    values = exponential(64, 0.01)
    assert tail(values) == tail(values[::-1].copy())


def test_stability_of_each_kind() -> None:
    near, far = tail(exponential(200, 0.004)), tail(exponential(200, 1e-9))
    assert stability(rate(0, 200), near)[0] is Stability.marginal
    assert stability(rate(0, 200), far)[0] is Stability.robust
    assert stability(rate(3, 5), None)[0] is Stability.flaky
    assert stability(rate(8, 8), None)[0] is Stability.broken
    assert stability(rate(0, 3), None) == (Stability.unknown, "not enough seeds: 3 of 20")
    assert stability(rate(2, 2), None)[0] is Stability.unknown
    assert stability(rate(0, 0), None) == (Stability.unknown, "no run was judged")


def test_sharpness_and_hollow() -> None:
    assert sharpness({})[0] is Sharpness.unmeasured
    assert sharpness({"cannot-show": rate(0, 0)})[0] is Sharpness.unmeasured
    assert sharpness({"drop-s1": rate(0, 8), "cannot-show": rate(0, 0)})[0] is Sharpness.sharp
    kind, words = sharpness({"drop-s1": rate(0, 8), "last-block-only": rate(8, 8)})
    assert kind is Sharpness.blunt
    assert words.startswith("1 of 2 mutants pass: last-block-only 8 of 8")
    _, words = sharpness({f"wrong-{number}": rate(8, 8) for number in range(7)})
    assert words.startswith("7 of 7 mutants pass: wrong-0 8 of 8")
    assert words.endswith(" and 2 more")
    assert "wrong-4" in words
    assert "wrong-5" not in words
    green = hollow([{"pass": 1, "fail": 1}, {"pass_by_tolerance": 1, "hang": 1}])
    assert (green.failures, green.runs) == (1, 2)
    graded = grade(rate(0, 200), tail(exponential(200, 0.004)), {"drop-s1": rate(1, 8)}, green)
    assert graded.latent
    assert graded.hollow
    json.dumps(asdict(graded), allow_nan=False)
    assert all(member.sentence for member in (*Stability, *Sharpness))
