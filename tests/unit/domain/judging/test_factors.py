"""Flips pooled over seeds: what is reported, with which interval, and what would have been seen."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest

from gonogo.judging.factors import Flips, pooled, pooled_rows, sign_probability

FLOOR = 2.6e-7
"""The common factor of two right kernels."""


def counts(
    away: int = 0,
    toward: int = 0,
    *,
    rows: tuple[int, int] | None = None,
    factor: float = 0.0,
    error: float | None = 1e-7,
    sensitivity: float = 6e6,
    slope: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the counts of one output of one seed, as gonogo.judging.flips.count does."""
    rows_away, rows_toward = rows or (min(away, 30), min(toward, 30))
    pivot = {
        "away": away,
        "toward": toward,
        "rows_away": rows_away,
        "rows_toward": rows_toward,
        "elements": 32768,
        "sensitivity": sensitivity,
        "factor": factor,
        "factor_error": error,
        "slope": factor if slope is None else slope,
        "slope_error": 1e-5,
    }
    return {
        "shared_factor": FLOOR,
        "elements": 32768,
        "differing": away + toward,
        "rows": 32,
        "stepped_up": 0,
        "stepped_down": 0,
        "pivots": {"zero": pivot},
    } | more


def one(*seeds: dict[str, Any]) -> Flips:
    (result,) = pooled({"y": seeds})
    return result


def test_seeds_weigh_as_much_as_the_moves_they_could_show() -> None:
    result = one(
        counts(20, factor=4e-6, error=1e-6, sensitivity=1e6),
        counts(20, factor=2e-6, error=1e-6, sensitivity=3e6),
    )
    best = result.best
    assert (result.seeds, result.elements, result.differing, best.away) == (2, 65536, 40, 40)
    assert best.factor == pytest.approx(2.5e-6)
    error = math.hypot(0.25e-6, 0.75e-6)
    assert best.low == pytest.approx(2.5e-6 - 2 * error)
    assert best.high == pytest.approx(2.5e-6 + 2 * error)


@pytest.mark.parametrize(
    ("seed", "seen"),
    [
        (counts(22, rows=(16, 0), factor=3e-6, error=6e-7), True),
        (counts(0, 22, rows=(0, 16), factor=-3e-6, error=6e-7), True),
        (counts(8, rows=(8, 0), factor=3e-6, error=6e-7), True),
        # too few rows for the sign test, although all are one way
        (counts(22, rows=(7, 0), factor=3e-6, error=6e-7), False),
        # flips both ways
        (counts(16, 10, rows=(16, 10), factor=3e-6, error=6e-7), False),
        # an interval that reaches zero
        (counts(22, rows=(16, 0), factor=3e-6, error=1.5e-6), False),
        # a factor that two right fp32 kernels may have
        (counts(900, rows=(600, 10), factor=FLOOR * 0.99, error=1e-9), False),
        (counts(900, rows=(600, 10), factor=FLOOR * 1.02, error=1e-9), True),
        # rows that move as a whole have errors of their own: the sign test is stricter there
        (counts(900, rows=(12, 0), factor=3e-3, error=3e-4), False),
        (counts(900, rows=(15, 0), factor=3e-3, error=3e-4), True),
        (counts(18, rows=(9, 0), factor=3e-3, error=3e-4), True),
        (counts(19, rows=(9, 0), factor=3e-3, error=3e-4), False),
        (counts(23, 1, rows=(11, 1), factor=3e-3, error=3e-4), True),
        # rounding is monotone: a factor moves next to nothing the other way
        (counts(95, 15, rows=(30, 2), factor=1e-4, error=1e-6), False),
        (counts(95, 5, rows=(30, 2), factor=1e-4, error=1e-6), True),
        (counts(90, 10, rows=(30, 2), factor=1e-4, error=1e-6), True),
        (counts(89, 11, rows=(30, 2), factor=1e-4, error=1e-6), False),
        # moves of half a step, whatever the mantissa: truncation
        (counts(9000, rows=(32, 0), factor=2.7e-3, error=1e-6, slope=2e-5), False),
        (counts(9000, rows=(32, 0), factor=2.7e-3, error=1e-6, slope=-2.7e-3), False),
        (counts(0, 9000, rows=(0, 32), factor=-2.7e-3, error=1e-6), True),
        (counts(9000, rows=(32, 0), factor=4.2e-3, error=1e-6, slope=2e-5), True),
        # a row that moved by a step of rstd: others may have moved by less of it
        (counts(900, rows=(32, 0), factor=1e-4, error=1e-6, stepped_up=1), False),
        (counts(9000, rows=(32, 0), factor=9e-3, error=1e-6, stepped_up=1), True),
        # if most rows moved like that, and all by as much, the factor is theirs
        (counts(9000, rows=(32, 0), factor=2e-3, error=8e-5, stepped_up=30), True),
        (counts(9000, rows=(32, 0), factor=2e-3, error=1e-4, stepped_up=30), False),
        (counts(9000, rows=(28, 4), factor=2e-3, error=1e-4, stepped_up=30), False),
        # the rows' majority and the factor disagree: a few rows moved far
        (counts(22, rows=(16, 0), factor=-3e-6, error=6e-7), False),
        # one row has no scatter to measure the factor by
        (counts(22, rows=(1, 0), factor=3e-6, error=None), False),
    ],
)
def test_a_factor_needs_rows_an_interval_and_a_size(seed: dict[str, Any], seen: bool) -> None:
    result = one(seed)
    assert result.best.seen is seen
    assert ("a common factor of" in result.words) is seen


def test_words_say_the_factor_with_its_interval_and_its_flips() -> None:
    assert one(counts(0, 22, rows=(0, 16), factor=-3e-6, error=6e-7)).words == (
        "a common factor of -3e-6 between these builds, in y (-4.2e-6 to -1.8e-6): 22 of 22 flips "
        "point one way"
    )
    stepped = counts(stepped_up=2, stepped_down=1)
    assert one(stepped).words == "3 rows' rstd moved by a step (2 up, 1 down)"
    assert one(counts(stepped_up=1)).words == "1 row's rstd moved by a step (1 up, 0 down)"


def test_steps_are_said_beside_a_factor_unless_they_are_its_own() -> None:
    for stepped, is_said in ((16, True), (17, False)):
        result = one(counts(9000, rows=(32, 0), factor=9e-3, error=1e-6, stepped_up=stepped))
        assert result.best.seen
        assert ("rstd moved by a step" in result.words) is is_said
        assert "a common factor of 0.009 between these builds" in result.words


def test_without_a_finding_the_words_say_what_would_have_shown() -> None:
    small = one(counts(sensitivity=4e6, error=0.0))
    # eight rows with one flip each: 8 / 4e6
    assert small.best.limit == pytest.approx(2e-6)
    assert small.words == "no element differs; a common factor beyond 2e-6 would show"
    large = one(counts(300, 290, sensitivity=1e9, factor=1e-8, error=5e-8))
    assert large.best.limit == pytest.approx(FLOOR + 1e-7)
    assert large.words == "no common factor; a common factor beyond 3.6e-7 would show"
    assert one(counts(sensitivity=0.0, factor=0.0)).best.limit is None
    # where a row moved by a step of rstd, a factor must move all elements further than that
    stepped = one(counts(stepped_up=1, error=0.0))
    assert stepped.best.by_steps
    assert not one(counts(error=None)).best.by_steps
    assert stepped.best.limit == pytest.approx(1.5 * 32768 / 6e6)


def test_the_pivot_that_the_rows_agree_about_is_reported() -> None:
    mixed, clear = (
        counts(30, 12, rows=(20, 9), factor=1e-6, error=4e-7)["pivots"]["zero"],
        counts(42, rows=(26, 0), factor=3e-6, error=4e-7)["pivots"]["zero"],
    )
    result = one(counts() | {"pivots": {"zero": mixed, "beta": clear}})
    assert result.best.pivot == result.summary.pivot == "beta"
    assert "in gamma x^ of y" in result.words
    json.dumps(asdict(result.summary), allow_nan=False)


def test_seeds_share_the_largest_floor_and_the_mean_slope() -> None:
    result = one(
        counts(20, factor=4e-6, slope=1e-6, shared_factor=1e-7),
        counts(20, factor=4e-6, slope=3e-6, shared_factor=3e-7),
        counts(20, factor=4e-6, slope=2e-6, shared_factor=2e-7),
    )
    assert result.best.shared == 3e-7
    assert result.best.slope == pytest.approx(2e-6)
    assert result.best.slope_error == pytest.approx(1e-5 / math.sqrt(3))
    missing = counts(20, factor=4e-6)
    missing["pivots"]["zero"] |= {"slope": None, "slope_error": None}
    assert (one(missing).best.slope, one(missing).best.slope_error) == (0, 0)


def test_half_steps_in_all_elements_are_another_rounding() -> None:
    for away, direction in ((True, "away from"), (False, "toward")):
        size = 2.7e-3 if away else -2.7e-3
        moved = (9000, 0) if away else (0, 9000)
        rows = (32, 0) if away else (0, 32)
        result = one(counts(*moved, rows=rows, factor=size, error=1e-6, slope=-size / 100))
        assert result.is_rounded_otherwise
        assert result.summary.rounded_otherwise
        assert result.words == (
            f"y moved {direction} zero by 0.49 steps on average, large mantissas no further than "
            "small ones: one build truncates"
        )
        # rows that moved as a whole are steps of rstd
        stepped = counts(*moved, rows=rows, factor=size, error=1e-6, slope=0.0, stepped_up=3)
        assert not one(stepped).is_rounded_otherwise
        assert one(stepped).words == "3 rows' rstd moved by a step (3 up, 0 down)"


def test_the_summary_has_the_numbers_of_the_best_pivot() -> None:
    result = one(counts(42, 1, rows=(26, 1), factor=3e-6, error=4e-7, stepped_up=1, stepped_down=2))
    summary, best = asdict(result.summary), result.best
    assert summary == {
        "output": "y",
        "seeds": 1,
        "elements": 32768,
        "differing": 43,
        "rows": 32,
        "stepped_up": 1,
        "stepped_down": 2,
        "pivot": "zero",
        "away": 42,
        "toward": 1,
        "rows_away": 26,
        "rows_toward": 1,
        "probability": sign_probability(26, 1),
        "factor": 3e-6,
        "factor_low": pytest.approx(2.2e-6),
        "factor_high": pytest.approx(3.8e-6),
        "factor_limit": best.limit,
        "common_factor": False,
        "rounded_otherwise": False,
        "words": "3 rows' rstd moved by a step (1 up, 2 down)",
    }
    assert result.stepped == 3
    assert result.seen
    assert not one(counts(3, 4, rows=(3, 4))).seen


def test_repeats_of_a_seed_count_once_and_rows_without_a_comparison_not_at_all() -> None:
    def row(seed: int, repeat: int, **outputs: Any) -> dict[str, Any]:
        return {"seed": seed, "repeat": repeat, "outputs": outputs}

    compared = {"reference": {"build": "other", "flips": counts(20)}}
    results = pooled_rows(
        [
            row(0, 0, y=compared, dx={"max_abs": 1.0}),
            row(0, 1, y=compared),
            row(1, 0, y={"reference": {"build": "other"}}),
            row(2, 0, y=compared),
            row(3, 0),
        ]
    )
    assert [(result.output, result.seeds) for result in results] == [("y", 2)]


@pytest.mark.parametrize(
    ("one_way", "other", "probability"),
    [(0, 0, 1.0), (8, 0, 2 / 2**8), (6, 0, 2 / 2**6), (5, 1, 2 * 7 / 2**6), (3, 3, 1.0)],
)
def test_the_sign_test_is_that_of_a_fair_coin(one_way: int, other: int, probability: float) -> None:
    assert sign_probability(one_way, other) == pytest.approx(probability)
    assert sign_probability(other, one_way) == pytest.approx(probability)


def test_many_rows_have_the_normal_law() -> None:
    exact, normal = sign_probability(545, 455), sign_probability(546, 456)
    assert normal == pytest.approx(exact, rel=0.03)
    assert sign_probability(10**6, 0) == 0.0
