"""Changes over builds of several seeds: few builds behind a change are enough, and neither builds
that differ, nor outliers, nor few values are a change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gonogo.flakiness.changes import Builds, build_splits, number_changes
from gonogo.flakiness.policy import POLICY

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]


def series(
    rng: np.random.Generator, levels: Array, seeds: int = 8, spread: float = 0.3
) -> list[Array]:
    return list(np.exp(levels[:, None] + spread * rng.normal(size=(len(levels), seeds))))


def lowered(*lengths: int, factor: float) -> Array:
    return -math.log(factor) * np.repeat(np.arange(len(lengths)) % 2.0, lengths)


@pytest.mark.parametrize(
    ("seeds", "spread", "build_spread"), [(1, 0.1, 0), (8, 0.3, 0), (8, 0.3, 0.1), (20, 1.0, 0)]
)
def test_four_builds_after_fourteen_show_a_five_fold_drop(
    seeds: int, spread: float, build_spread: float
) -> None:
    rng = np.random.default_rng(18)
    levels = lowered(14, 4, factor=5.0)
    for _ in range(50):
        noise = build_spread * rng.normal(size=18)
        (change,) = number_changes(series(rng, levels + noise, seeds, spread)).changes
        assert change.low <= 14 <= change.high
        assert change.p is not None
        assert change.p <= POLICY.change_student
        assert change.after < change.before


@pytest.mark.parametrize(("before", "after"), [(13, 3), (12, 4), (3, 3), (4, 2), (10, 2)])
def test_a_large_drop_shows_after_a_few_builds_of_any_series(before: int, after: int) -> None:
    rng = np.random.default_rng(18)
    for _ in range(20):
        values = series(rng, lowered(before, after, factor=10.0))
        assert [change.place for change in number_changes(values).changes] == [before]


@pytest.mark.parametrize("lengths", [(3, 3, 3), (7, 4, 7), (5, 3, 2)])
def test_a_change_that_is_undone_is_two_changes(lengths: tuple[int, int, int]) -> None:
    values = series(np.random.default_rng(3), lowered(*lengths, factor=10.0))
    places = [change.place for change in number_changes(values).changes]
    assert places == [lengths[0], lengths[0] + lengths[1]]


def test_more_seeds_show_smaller_changes() -> None:
    def share(seeds: int) -> float:
        rng = np.random.default_rng(4)
        levels = lowered(14, 4, factor=1.3)
        detected = [number_changes(series(rng, levels, seeds)).changes for _ in range(50)]
        return sum(map(bool, detected)) / len(detected)

    assert share(1) <= 0.1
    assert share(64) >= 0.95


def test_p_is_the_tail_of_student_over_the_places_and_their_share() -> None:
    rng = np.random.default_rng(5)
    samples = [np.array([value]) for value in rng.normal(size=18) + 8 * (np.arange(18) >= 14)]
    ((place, p),) = build_splits(Builds.from_samples(samples), 0, 3)
    first, second = np.concatenate(samples[:14]), np.concatenate(samples[14:])
    pooled, by_group = (
        abs(stats.ttest_ind(first, second, equal_var=equal).statistic) for equal in (True, False)
    )
    assert place == 14
    t = min(pooled, by_group)
    assert p == pytest.approx(2 * stats.t.sf(t, 16) * 13 / POLICY.change_single, rel=1e-9)


def test_the_seeds_limit_how_steady_the_builds_may_seem() -> None:
    """Equal means of seeds that vary are chance: their error is that of 3 x 2 seeds a side."""
    samples = [np.array([level - 1.0, level + 1.0]) for level in (0, 0, 0, 30, 30, 30)]
    ((place, p),) = build_splits(Builds.from_samples(samples), 0, 3)
    t = 30 / math.sqrt(2.0 * (1 / 6 + 1 / 6))
    assert place == 3
    assert p == pytest.approx(2 * stats.t.sf(t, 4) / POLICY.change_single, rel=1e-9)


def test_steps_without_any_spread_are_judged_by_their_arrangements() -> None:
    def p(*lengths: int) -> float | None:
        changes = number_changes(list(np.exp(lowered(*lengths, factor=5.0)))).changes
        return changes[0].p if changes else None

    assert p(14, 4) == pytest.approx(2 / math.comb(18, 4) / POLICY.change_single)
    assert p(6, 6) == pytest.approx(2 / math.comb(12, 6) / POLICY.change_single)
    assert p(3, 3) is None  # 1 in 10 arrangements of 3 + 3 numbers looks like it
    assert p(5, 5) is None
    equal_seeds = [np.full(4, level) for level in np.exp(lowered(5, 1, factor=5.0))]
    assert number_changes(equal_seeds).changes == ()


@pytest.mark.parametrize(
    ("lengths", "places"),
    [((5, 1), [5]), ((1, 6), [1]), ((3, 2, 1), [3, 5]), ((12, 1, 2), [12, 13])],
)
def test_builds_that_repeat_their_numbers_need_one_build_behind_a_change(
    lengths: tuple[int, ...], places: list[int]
) -> None:
    seeds = 0.3 * np.random.default_rng(9).normal(size=8)
    values = [np.exp(level + seeds) for level in lowered(*lengths, factor=5.0)]
    changes = number_changes(values).changes
    assert [change.place for change in changes] == places
    near = [np.exp(level + seeds) for level in lowered(*lengths, factor=1.3)]
    assert number_changes(near).changes == ()


def test_two_values_in_any_order_are_no_change_of_short_series() -> None:
    """Every series of two values up to 9 points, and all but 1 in 200 of those of 12."""
    for length in (6, 7, 8, 9):
        for values in itertools.product((1.0, 2.0), repeat=length):
            assert number_changes(list(values)).changes == ()
    rng = np.random.default_rng(12)
    alarms = [
        bool(number_changes(list(rng.choice([1.0, 2.0], size=12))).changes) for _ in range(1000)
    ]
    assert sum(alarms) <= 5


@pytest.mark.parametrize("length", [6, 10, 15])
def test_one_outlying_build_is_no_change(length: int) -> None:
    rng = np.random.default_rng(6)
    for place in range(length):
        levels = np.zeros(length)
        levels[place] = math.log(50)
        assert number_changes(series(rng, levels)).changes == ()


def test_three_outliers_side_by_side_inside_a_long_series_are_no_change() -> None:
    rng = np.random.default_rng(8)
    assert number_changes(series(rng, -lowered(20, 3, 20, factor=50.0))).changes == ()
    assert len(number_changes(series(rng, -lowered(20, 4, 20, factor=50.0))).changes) == 2


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
    alarms = 0
    for _ in range(500):
        alarms += bool(number_changes(series(rng, draw(rng, length))).changes)
        alarms += bool(number_changes(np.exp(draw(rng, length))).changes)
    assert alarms <= 10


@pytest.mark.parametrize("length", [12, 30])
def test_builds_with_few_seeds_at_the_end_are_no_change(length: int) -> None:
    """Means of 2 seeds spread more than those of 64: permuted, they'd look like a change."""
    rng = np.random.default_rng(length)
    counts = np.where(np.arange(length) < length - 4, 64, 2)
    alarms = sum(
        bool(number_changes([np.exp(rng.normal(size=count)) for count in counts]).changes)
        for _ in range(200)
    )
    assert alarms <= 2


def test_units_of_numbers_do_not_matter() -> None:
    rng = np.random.default_rng(7)
    values = np.exp(rng.normal(size=(12, 4)) + 9.0 * (np.arange(12) >= 6)[:, None])
    places = [
        [change.place for change in number_changes(list(scale * values)).changes]
        for scale in (1.0, 1e100, 1e-6)
    ]
    assert places == [[6]] * 3
