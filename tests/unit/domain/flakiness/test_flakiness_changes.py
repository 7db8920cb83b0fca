"""Change points: known shifts are found at their place, stable series give no alarm, and any
history has an answer."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.flakiness.changes import number_changes, rate_changes
from gonogo.flakiness.contrasts import welch

RNG = 7


def shifted(
    points: int, sigma: float, stream: int = RNG
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.random.default_rng(stream).normal(size=points)
    values[points // 2 :] += sigma
    return np.exp(values)


def test_a_shift_is_found_at_its_place_with_an_interval() -> None:
    (change,) = number_changes(shifted(60, 3)).changes
    assert change.low <= 30 <= change.high
    assert change.high - change.low <= 4
    assert change.after - change.before == pytest.approx(3, abs=0.7)
    assert "larger from point" in change.words


def test_two_changes_up_and_down_again() -> None:
    values = np.random.default_rng(RNG).normal(size=90) + 4 * (
        (np.arange(90) >= 30) & (np.arange(90) < 60)
    )
    assert [change.place for change in number_changes(np.exp(values)).changes] == pytest.approx(
        [30, 60], abs=1
    )


def test_few_builds_of_many_seeds_are_judged_by_welch() -> None:
    values = np.random.default_rng(RNG).normal(size=(4, 20))
    values[2:] += 2
    (change,) = number_changes(np.exp(values)).changes
    assert change.place == 2
    assert change.p == pytest.approx(
        3 * welch(values[:2].ravel(), values[2:].ravel()).p, rel=1e-6, abs=0
    )  # three places
    assert change.p <= 1e-4
    assert number_changes(np.exp(np.random.default_rng(RNG).normal(size=(4, 20)))).changes == ()


@pytest.mark.parametrize("points", [20, 60])
def test_a_thousand_stable_series_give_at_most_ten_alarms(points: int) -> None:
    rng = np.random.default_rng(points)
    numbers = sum(
        bool(number_changes(np.exp(rng.normal(size=points))).changes) for _ in range(1000)
    )
    rates = sum(
        bool(rate_changes([(int(bad), 10) for bad in rng.binomial(10, 0.1, size=points)]).changes)
        for _ in range(1000)
    )
    assert numbers <= 10
    assert rates <= 10


def test_a_rate_that_changes_has_a_99_percent_interval_and_both_rates() -> None:
    (change,) = rate_changes([(0, 10)] * 8 + [(6, 10)] * 8).changes
    assert (change.place, change.level) == (8, 0.99)
    assert change.rates is not None
    assert [rate.runs for rate in change.rates] == [80, 80]
    assert change.odds is not None
    assert change.odds > 200


def test_the_bayes_factor_is_that_of_the_closed_form() -> None:
    """With one possible place it is B(f1+a, s1+a) B(f2+a, s2+a) / (B(a, a) B(f+a, s+a))."""

    def log_b(bad: int, good: int) -> float:
        return math.lgamma(bad + 0.5) + math.lgamma(good + 0.5) - math.lgamma(bad + good + 1)

    (change,) = rate_changes([(0, 20), (20, 20)]).changes
    assert math.log(change.odds or 1) == pytest.approx(
        log_b(0, 20) + log_b(20, 0) - log_b(20, 20) - log_b(0, 0)
    )


def test_deterministic_numbers_change_for_good_or_not_at_all() -> None:
    assert [c.place for c in number_changes([0.5] * 10 + [0.75] * 10).changes] == [10]
    assert number_changes([0.5] * 40).changes == ()
    assert number_changes([0.0] * 40).changes == ()
    assert [c.place for c in number_changes([0.0] * 10 + [1e-3] * 10).changes] == [10]
    assert number_changes([0.0] * 10 + [1e-3] + [0.0] * 10).changes == ()


def test_too_few_points_are_said_to_be_so() -> None:
    assert number_changes([1.0]).words == "not enough points: 1 of 6"
    assert number_changes([]).words == "not enough points: 0 of 6"
    assert number_changes([math.nan] * 50).words == "not enough points: 0 of 6"
    assert number_changes([math.nan] * 50).left_out == 50
    assert rate_changes([(0, 0)] * 9).words == "not enough points: 0 of 2"
    with pytest.raises(ValueError, match="impossible counts"):
        rate_changes([(2, 1), (0, 1)])


def test_points_left_out_do_not_move_the_place() -> None:
    values: list[float | None] = [float(value) for value in shifted(60, 4)]
    values[3] = values[10] = None
    detection = number_changes(values)
    assert detection.left_out == 2
    assert detection.changes[0].place == 30


def test_ten_thousand_points_have_their_change() -> None:
    (change,) = number_changes(shifted(10_000, 1)).changes
    assert abs(change.place - 5_000) <= 100
    (rate_change,) = rate_changes([(0, 1)] * 5_000 + [(1, 1)] * 5_000).changes
    assert rate_change.place == 5_000


ANY = st.one_of(st.none(), st.floats(), st.lists(st.none() | st.floats(), max_size=4))


@given(st.lists(ANY, max_size=30))
def test_any_series_has_an_answer(points: list[float | list[float | None] | None]) -> None:
    detection = number_changes(points)
    json.dumps(asdict(detection), allow_nan=False)
    for change in detection.changes:
        assert 0 <= change.low <= change.high < len(points)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_any_rates_have_an_answer(counts: list[tuple[int, int]]) -> None:
    points = [(bad, bad + good) for bad, good in counts]
    detection = rate_changes(points)
    json.dumps(asdict(detection), allow_nan=False)
    assert detection.points + detection.left_out == len(points)
