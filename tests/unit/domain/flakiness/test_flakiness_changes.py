"""Change points of numbers and rates over builds: shifts are found at their place, and neither
builds that differ, nor outliers, nor few values are a change."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from gonogo.flakiness.changes import Builds, build_splits, number_changes, rate_changes
from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.policy import POLICY

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]


def shifted(points: int, sigma: float) -> Array:
    """Return one number per build, larger by `sigma` deviations from the middle on."""
    levels = np.where(np.arange(points) < points // 2, 0, sigma)
    return np.exp(levels + np.random.default_rng(7).normal(size=points))


def series(rng: np.random.Generator, levels: Array, seeds: int = 8, spread: float = 0.3) -> Array:
    """Return the numbers of each build's seeds about its level."""
    return np.exp(levels[:, None] + spread * rng.normal(size=(len(levels), seeds)))


def lowered(*lengths: int, factor: float) -> Array:
    """Return the levels of runs of builds, of which every second is lower."""
    return -math.log(factor) * np.repeat(np.arange(len(lengths)) % 2.0, lengths)


def places(points: Any) -> list[int]:
    return [change.place for change in number_changes(list(points)).changes]


# numbers


def test_a_shift_is_found_at_its_place_with_an_interval() -> None:
    (change,) = number_changes(shifted(60, 3)).changes
    assert change.low <= 30 <= change.high <= change.low + 4
    assert change.after - change.before == pytest.approx(3, abs=0.7)
    assert "larger from point" in change.words
    (change,) = number_changes(shifted(10_000, 1)).changes
    assert change.place == pytest.approx(5_000, abs=100)


def test_points_left_out_do_not_move_the_place() -> None:
    values: list[float | None] = [float(value) for value in shifted(60, 4)]
    values[3] = values[10] = None
    detection = number_changes(values)
    assert detection.left_out == 2
    assert detection.changes[0].place == 30


def test_few_builds_of_many_seeds_are_judged_by_welch() -> None:
    values = np.random.default_rng(7).normal(size=(4, 20))
    assert places(np.exp(values)) == []
    values[2:] += 2
    (change,) = number_changes(np.exp(values)).changes
    expected = 3 * welch(values[:2].ravel(), values[2:].ravel()).p  # three places
    assert change.place == 2
    assert change.p == pytest.approx(expected, rel=1e-6, abs=0)
    assert change.p <= 1e-4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5] * 10 + [0.75] * 10, [10]),
        ([0.0] * 10 + [1e-3] * 10, [10]),
        ([0.5] * 40, []),
        ([0.0] * 40, []),
        ([0.0] * 10 + [1e-3] + [0.0] * 10, []),
    ],
)
def test_deterministic_numbers_change_for_good_or_not_at_all(
    values: list[float], expected: list[int]
) -> None:
    assert places(values) == expected


@pytest.mark.parametrize(
    ("seeds", "spread", "build_spread"), [(1, 0.1, 0), (8, 0.3, 0), (8, 0.3, 0.1), (20, 1.0, 0)]
)
def test_four_builds_after_fourteen_show_a_five_fold_drop(
    seeds: int, spread: float, build_spread: float
) -> None:
    rng = np.random.default_rng(18)
    for _ in range(20):
        levels = lowered(14, 4, factor=5.0) + build_spread * rng.normal(size=18)
        (change,) = number_changes(list(series(rng, levels, seeds, spread))).changes
        assert change.low <= 14 <= change.high
        assert change.after < change.before
        assert (change.p or 0) <= POLICY.change_student


@pytest.mark.parametrize(
    "lengths", [(13, 3), (3, 3), (4, 2), (10, 2), (3, 3, 3), (7, 4, 7), (5, 3, 2)]
)
def test_a_large_drop_shows_after_a_few_builds_also_if_it_is_undone(
    lengths: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(18)
    expected = list(itertools.accumulate(lengths))[:-1]
    for _ in range(10):
        assert places(series(rng, lowered(*lengths, factor=10.0))) == expected


def test_more_seeds_show_smaller_changes() -> None:
    def share(seeds: int) -> float:
        rng = np.random.default_rng(4)
        levels = lowered(14, 4, factor=1.3)
        return sum(bool(places(series(rng, levels, seeds))) for _ in range(40)) / 40

    assert share(1) <= 0.1
    assert share(64) >= 0.95


def test_p_is_the_tail_of_student_over_the_places_and_their_share() -> None:
    rng = np.random.default_rng(5)
    samples = [np.array([value]) for value in rng.normal(size=18) + 8 * (np.arange(18) >= 14)]
    ((place, p),) = build_splits(Builds.from_samples(samples), 0, 3)
    sides = np.concatenate(samples[:14]), np.concatenate(samples[14:])
    t = min(abs(stats.ttest_ind(*sides, equal_var=equal).statistic) for equal in (True, False))
    assert place == 14
    assert p == pytest.approx(2 * stats.t.sf(t, 16) * 13 / POLICY.change_single, rel=1e-9)


def test_the_seeds_limit_how_steady_the_builds_may_seem() -> None:
    """Equal means of seeds that vary are chance: their error is that of 3 x 2 seeds a side."""
    samples = [np.array([level - 1.0, level + 1.0]) for level in (0, 0, 0, 30, 30, 30)]
    ((place, p),) = build_splits(Builds.from_samples(samples), 0, 3)
    t = 30 / math.sqrt(2.0 * (1 / 6 + 1 / 6))
    assert place == 3
    assert p == pytest.approx(2 * stats.t.sf(t, 4) / POLICY.change_single, rel=1e-9)


@pytest.mark.parametrize(("before", "after"), [(14, 4), (6, 6), (3, 3), (5, 5)])
def test_steps_without_any_spread_are_judged_by_their_arrangements(before: int, after: int) -> None:
    """One in 10 arrangements of 3 + 3 numbers looks like a step."""
    changes = number_changes(list(np.exp(lowered(before, after, factor=5.0)))).changes
    p = 2 / math.comb(before + after, after) / POLICY.change_single
    assert [change.p for change in changes] == ([pytest.approx(p)] if before > 5 else [])


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((5, 1), [5]), ((1, 6), [1]), ((3, 2, 1), [3, 5]), ((12, 1, 2), [12, 13])],
)
def test_builds_that_repeat_their_numbers_need_one_build_behind_a_change(
    lengths: tuple[int, ...], expected: list[int]
) -> None:
    seeds = 0.3 * np.random.default_rng(9).normal(size=8)
    assert places(np.exp(lowered(*lengths, factor=5.0)[:, None] + seeds)) == expected
    assert places(np.exp(lowered(*lengths, factor=1.3)[:, None] + seeds)) == []
    assert places(np.full((6, 4), np.exp(lowered(5, 1, factor=5.0))[:, None])) == []


@pytest.mark.parametrize("scale", [1.0, 1e100, 1e-6])
def test_units_of_numbers_do_not_matter(scale: float) -> None:
    rng = np.random.default_rng(7)
    levels = rng.normal(size=(12, 4)) + 9.0 * (np.arange(12) >= 6)[:, None]
    assert places(scale * np.exp(levels)) == [6]


# what is no change


def test_two_values_in_any_order_are_no_change_of_short_series() -> None:
    """Every series of two values up to 8 points, and all but 1 in 200 of those of 12."""
    for length in (6, 7, 8):
        for values in itertools.product((1.0, 2.0), repeat=length):
            assert places(values) == []
    rng = np.random.default_rng(12)
    assert sum(bool(places(rng.choice([1.0, 2.0], size=12))) for _ in range(1000)) <= 5


@pytest.mark.parametrize("length", [6, 10, 15])
def test_one_outlying_build_is_no_change(length: int) -> None:
    rng = np.random.default_rng(6)
    for levels in math.log(50) * np.eye(length):
        assert places(series(rng, levels)) == []


def test_three_outliers_side_by_side_inside_a_long_series_are_no_change() -> None:
    rng = np.random.default_rng(8)
    assert places(series(rng, -lowered(20, 3, 20, factor=50.0))) == []
    assert len(places(series(rng, -lowered(20, 4, 20, factor=50.0)))) == 2


def normal(rng: np.random.Generator, count: int) -> Array:
    return rng.normal(size=count)


def heavy(rng: np.random.Generator, count: int) -> Array:
    return rng.standard_t(3, size=count)


def outliers(rng: np.random.Generator, count: int) -> Array:
    return np.where(rng.random(count) < 0.05, math.log(50), 0.02 * rng.normal(size=count))


@pytest.mark.parametrize("draw", [normal, heavy, outliers])
@pytest.mark.parametrize("length", [8, 18])
def test_a_thousand_stable_series_whose_builds_differ_give_at_most_ten_alarms(
    length: int, draw: Draw
) -> None:
    rng = np.random.default_rng(length)
    alarms = sum(
        bool(places(series(rng, draw(rng, length)))) + bool(places(np.exp(draw(rng, length))))
        for _ in range(500)
    )
    assert alarms <= 10


@pytest.mark.parametrize("length", [12, 30])
def test_builds_with_few_seeds_at_the_end_are_no_change(length: int) -> None:
    """Means of 2 seeds spread more than those of 64: permuted, they'd look like a change."""
    rng = np.random.default_rng(length)
    counts = np.where(np.arange(length) < length - 4, 64, 2)
    alarms = (places(np.exp(rng.normal(size=count)) for count in counts) for _ in range(200))
    assert sum(map(bool, alarms)) <= 2


# rates


def test_a_rate_that_changes_has_a_99_percent_interval_and_both_rates() -> None:
    (change,) = rate_changes([(0, 10)] * 8 + [(6, 10)] * 8).changes
    assert (change.place, change.level) == (8, 0.99)
    assert [rate.runs for rate in change.rates or ()] == [80, 80]
    assert (change.odds or 0) > 200
    (change,) = rate_changes([(0, 1)] * 5_000 + [(1, 1)] * 5_000).changes
    assert change.place == 5_000


def test_the_bayes_factor_is_that_of_the_closed_form() -> None:
    """With one possible place it is B(f1+a, s1+a) B(f2+a, s2+a) / (B(a, a) B(f+a, s+a))."""

    def log_b(bad: int, good: int) -> float:
        return math.lgamma(bad + 0.5) + math.lgamma(good + 0.5) - math.lgamma(bad + good + 1)

    (change,) = rate_changes([(0, 20), (20, 20)]).changes
    expected = log_b(0, 20) + log_b(20, 0) - log_b(20, 20) - log_b(0, 0)
    assert math.log(change.odds or 1) == pytest.approx(expected)


@pytest.mark.parametrize("points", [20, 60])
def test_a_thousand_stable_rates_give_at_most_ten_alarms(points: int) -> None:
    drawn = np.random.default_rng(points).binomial(10, 0.1, size=(1000, points))
    alarms = (rate_changes([(int(bad), 10) for bad in counts]).changes for counts in drawn)
    assert sum(map(bool, alarms)) <= 10


# any series


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0], "not enough points: 1 of 6"),
        ([], "not enough points: 0 of 6"),
        ([math.nan] * 50, "not enough points: 0 of 6"),
    ],
)
def test_too_few_points_are_said_to_be_so(values: list[float], words: str) -> None:
    detection = number_changes(values)
    assert (detection.words, detection.left_out) == (words, len(values) if len(values) > 1 else 0)
    assert rate_changes([(0, 0)] * 9).words == "not enough points: 0 of 2"


ANY = st.one_of(st.none(), st.floats(), st.lists(st.none() | st.floats(), max_size=4))


@given(st.lists(ANY, max_size=30))
def test_any_series_has_an_answer(points: list[float | list[float | None] | None]) -> None:
    detection = number_changes(points)
    json.dumps(asdict(detection), allow_nan=False)
    for change in detection.changes:
        assert 0 <= change.low <= change.high < len(points)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_any_rates_have_an_answer(counts: list[tuple[int, int]]) -> None:
    detection = rate_changes([(bad, bad + good) for bad, good in counts])
    json.dumps(asdict(detection), allow_nan=False)
    assert detection.points + detection.left_out == len(counts)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        rate_changes([(2, 1), (0, 1)])
