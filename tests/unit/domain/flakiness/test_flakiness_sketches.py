"""Sketches: quantiles within the stated error of the exact ones, sums that don't depend on order,
an answer for every kind of value."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gonogo.flakiness.sketches import MAX_BUCKETS, Sketch, total

ANY = st.lists(
    st.one_of(
        st.none(), st.floats(allow_subnormal=True), st.just(0.0), st.integers(-5, 5).map(float)
    ),
    max_size=60,
)
LARGE = st.lists(st.floats(min_value=1e-300, max_value=1e300), min_size=0, max_size=60)


def exact(values: list[float | None], thousandths: int) -> float | None:
    """Return the smallest known value that at least so many thousandths don't exceed."""
    known = sorted(abs(value) for value in values if value is not None and not math.isnan(value))
    least_rank = Fraction(thousandths, 1000) * len(known)
    return next((value for rank, value in enumerate(known, 1) if rank >= least_rank), None)


@given(ANY, st.integers(0, 1000))
@example([5e-324, 1e-323, 1.5e-323], 500)
@example([1.7976931348623157e308, 1.7976931348623155e308, 1.797693134862315e308], 600)
@example([2.0**0.5, math.nextafter(2.0**0.5, 0), 1.0, math.nextafter(1.0, 0)], 250)
def test_a_quantile_is_within_the_stated_error_of_the_exact_one(
    values: list[float | None], thousandths: int
) -> None:
    sketch = Sketch.of(values)
    estimate, expected = sketch.quantile(thousandths / 1000), exact(values, thousandths)
    assert sketch.count == sum(value is not None and not math.isnan(value) for value in values)
    assert sketch.missing == values.count(None)
    if expected is None or expected in (0, math.inf):
        assert estimate == expected
    else:
        assert estimate is not None
        assert abs(estimate - expected) <= expected * sketch.error * (1 + 1e-12) + 5e-324
    assert sketch.error <= 0.01084 or len(values) > MAX_BUCKETS


@given(ANY, ANY, LARGE)
def test_a_sum_is_the_sketch_of_all_values_in_whatever_order(
    first: list[float | None], second: list[float | None], third: list[float]
) -> None:
    a, b, c = Sketch.of(first), Sketch.of(second), Sketch.of(third)
    assert (
        (a + b) + c
        == a + (b + c)
        == c + b + a
        == total([b, c, a])
        == Sketch.of([*third, *second, *first])
    )
    assert Sketch.parse(json.loads(json.dumps((a + b + c).to_json()))) == a + b + c


def test_more_buckets_than_fit_are_joined_and_say_their_error_whatever_the_grouping() -> None:
    noise = random.Random(1)
    values: list[float | None] = [10.0 ** noise.uniform(-40, 40) for _ in range(20_000)]
    whole = Sketch.of(values)
    assert len(whole.buckets) <= MAX_BUCKETS
    assert whole.level == 5  # 80 decades are 266 octaves of 32 buckets: 512 hold them joined in 32s
    parts = [Sketch.of(values[start : start + 37]) for start in range(0, len(values), 37)]
    noise.shuffle(parts)
    assert total(parts) == whole
    for thousandths in (1, 10, 500, 990, 999):
        estimate, expected = whole.quantile(thousandths / 1000), exact(values, thousandths)
        assert estimate is not None
        assert expected is not None
        assert abs(estimate / expected - 1) <= whole.error
    assert (whole.quantile(0), whole.quantile(1)) == (exact(values, 0), exact(values, 1000))


def test_nothing_one_value_and_values_without_numbers_have_an_answer() -> None:
    empty = Sketch.of([])
    assert (empty.count, empty.quantile(0.5), empty.bins(), empty.to_json()) == (0, None, [], {})
    silent = Sketch.of([None, math.nan, None])
    assert (silent.count, silent.quantile(0.5), silent.nan, silent.missing) == (0, None, 1, 2)
    one = Sketch.of([-0.0265])
    assert [one.quantile(share) for share in (0, 0.5, 1)] == [
        0.0265
    ] * 3  # the magnitude, exact for equal values
    mixed = Sketch.of([0.0, 0.0, 1.0, math.inf])
    assert [mixed.quantile(share) for share in (0, 0.5, 0.75, 1)] == [0.0, 0.0, 1.0, math.inf]
    with pytest.raises(ValueError, match="between 0 and 1"):
        one.quantile(1.5)
