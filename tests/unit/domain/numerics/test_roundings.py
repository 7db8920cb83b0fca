"""The roundings of the NumPy definition: those of the bits are those of the plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.numerics.expectation import (
    Array,
    binade,
    repeats,
    round_away,
    round_even,
    truncate,
)

NUMBERS = st.floats(-1e30, 1e30, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-30)
UNITS = [2.0**-2, 2.0**-7, 2.0**-8, 2.0**-11, 2.0**-24, 2.0**-8 + 2.0**-10, 0.0]
"""Units of formats; one that is no power of two; and that of a buffer that rounds nothing."""


def near_ties(values: list[float], unit: float) -> Array:
    """Return the values, their roundings, the ties between these, and what lies beside each tie."""
    array = np.array(values)
    step = binade(array) * (2 * unit or 0.5)
    low = np.trunc(array / np.where(step > 0, step, 1.0)) * step
    ties = low + np.copysign(step / 2, array)
    return np.concatenate([array, low, ties, np.nextafter(ties, 0.0), np.nextafter(ties, 2 * ties)])


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.sampled_from(UNITS))
def test_a_rounding_is_a_whole_number_of_steps_of_the_values_binade(
    values: list[float], unit: float
) -> None:
    array = near_ties(values, unit)
    step = binade(array) * (2 * unit)
    steps = array / np.where(step > 0, step, 1.0)
    half_up = np.copysign(np.floor(np.abs(steps) + 0.5), array)
    for rounding, whole in (
        (round_even(array, unit), np.rint(steps)),
        (round_away(array, unit), half_up),
        (truncate(array, 2 * unit), np.trunc(steps)),
    ):
        right = np.where(step > 0, whole * step, array)
        assert rounding.tobytes() == np.copysign(right, array).tobytes()


@pytest.mark.parametrize("rounding", [round_even, round_away, truncate])
def test_a_rounding_leaves_its_argument_and_takes_a_view(rounding: object) -> None:
    assert callable(rounding)
    values = np.linspace(-3.0, 3.0, 24).reshape(4, 6)
    before = values.copy()
    column = rounding(values[:, 1:2], 2.0**-4)
    assert column.shape == (4, 1)
    assert np.array_equal(column, rounding(before, 2.0**-4)[:, 1:2])
    assert np.array_equal(values, before)


def test_equal_keys_share_a_number_and_a_nan_is_no_key() -> None:
    numbers = repeats(np.array([3.0, np.nan, 1.0, 3.0, np.nan, -1.0, 0.0, -0.0]))
    assert numbers is not None
    assert numbers[0] == numbers[3]
    assert numbers[6] == numbers[7]
    assert len(set(numbers.tolist())) == 6
    assert repeats(np.array([2.0, np.nan, 1.0, np.nan])) is None
