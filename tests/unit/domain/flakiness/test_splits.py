"""Splits of series against plain sums, and the edges of places, windows, intervals and orders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gonogo.flakiness import changes
from gonogo.flakiness.changes import in_order, number_changes, rate_changes
from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.splits import (
    Builds,
    _Spread,
    _windows,
    interval,
    mean_split,
    place_likelihood,
    rate_splits,
    residuals,
    segments,
    standardized,
    welch_split,
)

Floats = NDArray[np.float64]
VALUES = np.random.default_rng(3).normal(size=9)


def squares(values: Floats) -> float:
    return float(((values - values.mean()) ** 2).sum())


@pytest.mark.parametrize("least", [1, 3])
def test_residuals_are_the_squares_about_both_means(least: int) -> None:
    rows = np.stack([VALUES, VALUES[::-1] * 3.0])
    expected = [
        [squares(row[:place]) + squares(row[place:]) for place in range(least, 10 - least)]
        for row in rows
    ]
    assert residuals(rows, least) == pytest.approx(np.array(expected))


def test_values_are_standardized_unless_they_are_equal_up_to_their_last_bits() -> None:
    ready = standardized(VALUES)
    assert ready is not None
    assert (ready.mean(), ready.std()) == pytest.approx((0.0, 1.0))
    assert ready == pytest.approx((VALUES - VALUES.mean()) / VALUES.std())
    assert standardized(np.full(5, 0.1)) is None
    assert standardized(1e6 + 1e-8 * VALUES) is None
    assert standardized(1e6 + 1e-3 * VALUES) is not None
    assert standardized(1e-14 * VALUES) is None


def test_the_likelihood_of_a_place_is_that_of_equal_normal_errors() -> None:
    values = VALUES + 2.0 * (np.arange(9) >= 4)
    count = len(values)
    plain = np.array(
        [
            (squares(values[:place]) + squares(values[place:])) ** ((2 - count) / 2)
            for place in range(1, count)
        ]
    )
    assert place_likelihood(values) == pytest.approx(plain / plain.sum())
    assert place_likelihood(np.array([1.0, 2.0, 2.0])) == pytest.approx([1.0, 0.0], abs=1e-3)
    assert place_likelihood(np.ones(5)).tolist() == [0.25] * 4
    assert place_likelihood(np.array([1.0, 2.0])).tolist() == [1.0]
    assert place_likelihood(np.array([1.0])).tolist() == [1.0]


@pytest.mark.parametrize(
    ("level", "expected"), [(0.7, (2, 9)), (0.3, (4, 7)), (0.99, (1, 10)), (1.0, (1, 10))]
)
def test_an_interval_leaves_as_much_on_either_side(level: float, expected: tuple[int, int]) -> None:
    assert interval(np.full(10, 0.1), level) == expected


def test_an_interval_of_a_sure_place_is_that_place() -> None:
    assert interval(np.array([0.0, 1.0, 0.0]), 0.95) == (2, 2)
    assert interval(np.array([0.01, 0.98, 0.01]), 0.95) == (2, 2)
    assert interval(np.array([0.03, 0.94, 0.03]), 0.95) == (1, 3)
    assert interval(np.array([1.0]), 0.95) == (1, 1)


@pytest.mark.parametrize(("count", "shortest"), [(12, 3), (15, 3), (16, 4), (128, 4)])
def test_windows_are_inside_of_their_segment_and_long_enough(count: int, shortest: int) -> None:
    first, last = _windows(count, 2, POLICY)
    lengths = last - first
    assert (first.min(), last.max()) == (2, count - 2)
    assert (lengths.min(), lengths.max()) == (shortest, count - 4)
    expected = [
        (start, end) for start in range(2, count - 1) for end in range(start + shortest, count - 1)
    ]
    assert sorted(zip(first.tolist(), last.tolist(), strict=True)) == expected


def test_a_long_segment_has_no_windows() -> None:
    assert [len(part) for part in _windows(129, 2, POLICY)] == [0, 0]


def test_builds_are_means_and_squares_of_their_seeds() -> None:
    samples = [np.array([1.0, 3.0]), np.array([4.0]), np.array([-8.0, 0.0, 2.0])]
    builds = Builds.from_samples(samples)
    assert builds.means * 8 == pytest.approx([2.0, 4.0, -2.0])
    assert builds.squares * 64 == pytest.approx([2.0, 0.0, 56.0])
    assert builds.counts.tolist() == [2.0, 1.0, 3.0]
    small = Builds.from_samples([sample / 100 for sample in samples])
    assert small.means * 100 == pytest.approx([2.0, 4.0, -2.0])
    part = builds.part(1, 3)
    assert (len(part.means), part.counts.tolist()) == (2, [1.0, 3.0])


def test_errors_of_two_groups_are_student_s_welch_s_and_those_of_the_seeds() -> None:
    rng = np.random.default_rng(4)
    samples = [rng.normal(size=size) for size in (3, 5, 2, 4, 6, 3, 2)]
    builds = Builds.from_samples(samples)
    scaled = standardized(builds.means)
    assert scaled is not None
    first, last = np.array([2]), np.array([5])
    pooled_error, by_group, by_seed = _Spread.of_builds(builds, scaled).errors(first, last)
    inside, outside = scaled[2:5], np.delete(scaled, [2, 3, 4])
    both = squares(inside) + squares(outside)
    assert pooled_error[0] == pytest.approx(both / 5 * (1 / 3 + 1 / 4))
    assert by_group[0] == pytest.approx(squares(inside) / 2 / 3 + squares(outside) / 3 / 4)
    within = sum(builds.squares) / sum(builds.counts - 1) / builds.means.var()
    shares = 1 / builds.counts
    expected = within * (shares[2:5].sum() / 9 + np.delete(shares, [2, 3, 4]).sum() / 16)
    assert by_seed[0] == pytest.approx(expected)
    t = _Spread.of_builds(builds, scaled).student(first, last)
    difference = abs(inside.mean() - outside.mean())
    assert t[0] == pytest.approx(difference / max(pooled_error[0], by_group[0], by_seed[0]) ** 0.5)


def test_segments_are_split_until_nothing_changes_in_them() -> None:
    requested = []

    def test(start: int, end: int) -> list[tuple[int, float]]:
        requested.append((start, end))
        return {(0, 9): [(2, 0.1), (6, 0.2)], (2, 6): [(3, 0.3)]}.get((start, end), [])

    assert segments(0, 9, test) == [(2, 0.1), (3, 0.3), (6, 0.2)]
    assert sorted(requested) == [(0, 2), (0, 9), (2, 3), (2, 6), (3, 6), (6, 9)]


def test_the_first_of_equal_splits_is_the_place() -> None:
    """Constants that differ: p is 0 and t infinite at each place of two steps."""
    steps = [np.full(3, value) for value in (1.0, 1.0, 2.0, 2.0)]
    assert welch_split(steps, 0, 4, POLICY) == (2, 0.0)
    twice = [np.full(3, value) for value in (2.0, 1.0)]
    assert welch_split([*twice, *twice][:2], 0, 2, POLICY) == (1, 0.0)
    assert welch_split([np.ones(3)], 0, 1, POLICY) is None


def test_welch_s_p_counts_each_place_that_was_tried() -> None:
    rng = np.random.default_rng(5)
    samples = [rng.normal(size=8) + 3.0 * (place >= 2) for place in range(4)]
    p = welch(np.concatenate(samples[:2]), np.concatenate(samples[2:])).p
    split = welch_split(samples, 0, 4, POLICY)
    assert split is not None
    assert split == pytest.approx((2, 3 * p))
    assert welch_split(samples, 0, 4, replace(POLICY, change_welch=2.99 * p)) is None
    # with fewer seeds a point, three points must lie on either side
    assert welch_split([sample[:2] for sample in samples], 0, 4, POLICY) is None


def test_keys_that_are_missing_take_their_predecessor_s_place() -> None:
    order, moved = in_order([3.0, math.nan, 1.0, 2.0], 4)
    assert (order.tolist(), moved) == ([2, 3, 0, 1], 1)
    order, moved = in_order([math.nan, 5.0, 5.0, 4.0], 4)
    assert (order.tolist(), moved) == ([0, 3, 1, 2], 1)
    assert in_order(None, 3)[0].tolist() == [0, 1, 2]
    assert in_order([], 0)[1] == in_order([7.0], 1)[1] == 0
    with pytest.raises(ValueError, match="2 places for 3 points"):
        in_order([1.0, 2.0], 3)


def test_zeros_are_half_the_smallest_positive_number() -> None:
    joined = np.concatenate(changes._logarithms([np.array([0.0, -4.0]), np.array([1.0])]))
    assert joined == pytest.approx([math.log(0.5), math.log(4.0), 0.0])
    zeros = changes._logarithms([np.zeros(2), np.zeros(1)])
    assert [part.tolist() for part in zeros] == [[0.0, 0.0], [0.0]]


def test_each_change_is_between_its_neighbors() -> None:
    noise = 0.01 * np.random.default_rng(6).normal(size=30)
    level = np.repeat([0.0, 1.0, -0.5], 10)
    result = number_changes(np.exp(noise + level))
    assert [(change.place, change.low, change.high) for change in result.changes] == [
        (10, 10, 10),
        (20, 20, 20),
    ]
    first, second = result.changes
    assert (first.before, first.after) == pytest.approx((0.0, 1.0), abs=0.02)
    assert (second.before, second.after) == pytest.approx((1.0, -0.5), abs=0.02)
    assert "2.7" in first.words
    assert "larger from point 10 on" in first.words
    assert "4.5" in second.words
    assert "smaller from point 20 on" in second.words
    assert result.words == f"{first.words}; {second.words}"


def test_long_histories_are_reduced_to_means_of_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_MAX_POINTS", 20)
    noise = 0.01 * np.random.default_rng(7).normal(size=59)
    result = number_changes(np.exp(noise + (np.arange(59) >= 30)))
    assert result.points == 20
    (change,) = result.changes
    assert change.place == 30
    means = [noise[start : start + 3].mean() for start in range(0, 30, 3)]
    assert change.before == pytest.approx(np.mean(means), rel=1e-9)
    monkeypatch.setattr(changes, "_MAX_POINTS", 59)
    assert number_changes(np.exp(noise)).points == 59


def test_rates_change_between_their_neighbors_with_counts_of_each_side() -> None:
    points = [(0, 40)] * 5 + [(0, 0)] + [(30, 40)] * 5 + [(2, 40)] * 5
    result = rate_changes(points)
    assert [change.place for change in result.changes] == [6, 11]
    assert (result.points, result.left_out) == (15, 1)
    for change, counts in zip(
        result.changes, ((0, 200, 150, 200), (150, 200, 10, 200)), strict=True
    ):
        assert change.rates is not None
        before, after = change.rates
        assert (before.failures, before.runs, after.failures, after.runs) == counts
        assert (before.level, change.level) == (POLICY.rate_level, POLICY.rate_level)
        assert change.low <= change.place <= change.high
        assert (change.before, change.after) == (counts[0] / counts[1], counts[2] / counts[3])
    assert rate_changes([(1, 2), (0, 0)]).words == "not enough points: 1 of 2"
    with pytest.raises(ValueError, match="impossible counts"):
        rate_changes([(3, 2), (0, 1)])


def test_a_change_of_rates_lies_where_its_likelihood_is() -> None:
    points = [(1, 10)] * 10 + [(4, 10)] * 10
    (change,) = rate_changes(points).changes
    likelihood = np.exp(rate_splits(np.array(points, np.float64), POLICY.prior))
    low, high = interval(likelihood / likelihood.sum(), POLICY.rate_level)
    assert (change.place, change.low, change.high) == (10, low, high) == (10, 7, 12)


def test_of_splits_beyond_the_smallest_p_the_largest_t_is_the_place() -> None:
    seeds = np.random.default_rng(5).normal(size=(5, 1000))
    samples = list(seeds + 1000.0 * (np.arange(5) >= 3)[:, None])
    assert welch_split(samples, 0, 5, POLICY) == (3, 0.0)


def test_welch_is_the_same_in_any_unit() -> None:
    one, two = VALUES[:4], VALUES[4:]
    plain = welch(one, two)
    for unit in (1e-200, 1e-3, 1e200):
        scaled = welch(unit * one, unit * two)
        assert (scaled.t, scaled.p) == pytest.approx((plain.t, plain.p))
        assert scaled.difference == pytest.approx(unit * (two.mean() - one.mean()))
    expected = stats.ttest_ind(two, one, equal_var=False)
    assert (plain.t, plain.p) == pytest.approx((expected.statistic, expected.pvalue))
    down = welch([2.0, 2.0], [1.0, 1.0])
    assert (down.t, down.p, down.difference) == (-math.inf, 0.0, -1.0)
    assert welch([1.0], [1.0, 2.0]).counts == (1, 2)
    assert welch([1.0, 2.0], [1.0, 3.0]).t is not None


def test_a_split_of_means_needs_enough_points_and_tells_its_chance() -> None:
    jump = np.repeat([0.0, 1.0], 12) + np.linspace(0, 0.1, 24)
    assert mean_split(jump, 5, POLICY) == (17, 1 / (POLICY.change_permutations + 1))
    assert mean_split(jump, 5, replace(POLICY, change_least=13)) is None
    assert mean_split(jump[9:15], 5, replace(POLICY, change_least=2)) is None
