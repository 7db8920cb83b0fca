"""Cells, distances from them, and the errors that a row's elements share."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to, ulp
from gonogo.numerics.replay.cells import Measurement, cells, half_cell, on_grid, shared_errors
from gonogo.numerics.replay.quantity import NOTHING, Quantity

Array = NDArray[np.float64]
FORMATS = ("fp32", "bf16", "fp16")


def outputs(form: str) -> Array:
    """Return values of a format: ordinary ones, powers of two, subnormals and zero."""
    drawn = np.random.default_rng(0).standard_normal(200) * 2.0 ** np.arange(-10, 10).repeat(10)
    powers = np.array([1.0, -1.0, 2.0, 0.5, 2.0**-14, -(2.0**-13), 4096.0])
    tiny = ulp(0.0, form) * np.array([0.0, 1.0, -3.0, 100.0])
    return round_to(np.concatenate([drawn, powers, tiny]), form).astype(np.float64)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_cell_holds_the_values_that_round_to_the_output(form: str, side: float) -> None:
    y = outputs(form)
    half = half_cell(y, y + side * ulp(y, form) / 8, form)
    inside = round_to(y + side * half * (1 - 2.0**-20), form)
    outside = round_to(y + side * half * (1 + 2.0**-20), form)
    assert np.array_equal(inside, y.astype(np.float32))
    assert (outside != y).all()


def test_a_value_inside_its_cell_has_no_distance() -> None:
    y = round_to(np.linspace(1, 3, 50)[None], "bf16").astype(np.float64)
    for shift in (-0.49, 0.49):
        toward = half_cell(y, y + shift * 2.0**-8, "bf16")
        replay = Quantity(y + 2 * shift * toward, np.full((1, 1), 1e-20))
        assert cells(y, replay, "bf16").largest == 0.0


def test_a_distance_counts_standard_deviations_from_the_cell() -> None:
    y = np.array([[1.5]])
    half, noise, shared, slack = 2.0**-8, 3e-6, 4e-6, 1e-5
    value = 1.5 + half + slack + 7.0 * 5e-6
    replay = Quantity(
        np.array([[value]]), np.full((1, 1), noise**2), {"mean": np.full((1, 1), shared)},
        np.full((1, 1), slack),
    )  # fmt: skip
    assert cells(y, replay, "bf16").largest == pytest.approx(7.0, rel=1e-9)


def shared_error(size: float, form: str) -> Array:
    """Return the row errors of 3 rows of which the middle one is off by `size` deviations."""
    generator = np.random.default_rng(1)
    pattern = generator.standard_normal((3, 4000)) + 2.0
    value = generator.uniform(1, 2, (3, 4000))
    noise, deviation = 2.0**-24, 2.0**-23
    error = noise * generator.standard_normal((3, 4000))
    error[1] += size * deviation * pattern[1]
    replay = Quantity(value, np.full((1, 1), noise**2), {"rstd": deviation * pattern})
    return cells(round_to(value + error, form), replay, form).shared.largest


def test_an_error_shared_by_a_row_is_measured_in_its_deviations() -> None:
    rows = shared_error(12.0, "fp32")
    assert rows[1] == pytest.approx(12.0, rel=0.02)
    assert rows[[0, 2]].max() < 0.5


def test_rows_of_a_narrow_format_share_no_measurable_error() -> None:
    assert shared_error(12.0, "bf16").max() == 0.0


@pytest.mark.parametrize("weight", [1.0, 1e4, 1e9, 1e16])
def test_weak_sources_add_nothing_to_a_strong_one_of_the_same_pattern(weight: float) -> None:
    pattern = np.random.default_rng(2).standard_normal((3, 500)) + 1.0
    error = 5.0 * pattern + np.random.default_rng(3).standard_normal((3, 500)) / np.sqrt(weight)
    factors = np.array([1.0, 0.1, 1e-5, 3e-6, 1e-8])
    patterns = factors[None, :, None] * pattern[:, None, :]
    matrix = weight * patterns @ patterns.transpose(0, 2, 1)
    projections = weight * (patterns @ error[:, :, None])[:, :, 0]
    several = shared_errors("abcde", matrix, projections).largest
    assert several == pytest.approx([5.0] * 3, rel=0.15)
    alone = weight * patterns[:, :1]
    strongest = shared_errors(
        "a", alone @ patterns[:, :1].transpose(0, 2, 1), (alone @ error[:, :, None])[:, :, 0]
    ).largest
    assert several == pytest.approx(strongest, rel=0.01)


def test_a_source_that_shows_nowhere_has_no_error() -> None:
    nowhere = shared_errors(["rstd", "a", "b"], np.zeros((2, 3, 3)), np.zeros((2, 3)))
    assert nowhere.largest.tolist() == nowhere.spreads.tolist() == [0.0, 0.0]
    undefined = np.full((1, 1, 1), np.inf)
    assert np.isnan(shared_errors(["rstd"], undefined, np.zeros((1, 1))).largest).all()


def test_a_measurement_has_the_largest_numbers_of_each_row() -> None:
    generator = np.random.default_rng(3)
    y = round_to(generator.standard_normal((5, 30)), "fp32").astype(np.float64)
    noise = np.full((1, 1), 2.0**-50)
    replay = Quantity(y + 2.0**-22 * generator.standard_normal((5, 30)), noise)
    measured = cells(y, replay, "fp32")
    whole = measured.measurement(4.0)
    place = int(np.argmax(measured.distance))
    assert whole.largest == measured.largest > 4.0
    assert whole.worst == divmod(place, 30)
    assert whole.mismatch == (measured.distance > 4.0).mean()
    assert np.array_equal(whole.per_row, measured.distance.max(axis=1))
    parts = [
        cells(y[a:b], Quantity(replay.values[a:b], noise), "fp32").measurement(4.0)
        for a, b in ((0, 2), (2, 5))
    ]
    joined = Measurement.joined(parts)
    assert (joined.worst, joined.mismatch) == (whole.worst, whole.mismatch)
    assert np.array_equal(joined.per_row, whole.per_row)


def test_without_shared_errors_no_row_is_off() -> None:
    replay = Quantity(np.ones((2, 3)), NOTHING)
    assert cells(np.full((2, 3), 2.0), replay, "fp32").shared.largest.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("form", "is_held"), [("fp32", True), ("bf16", True), ("fp16", False)])
def test_an_output_may_not_lie_on_its_format_s_grid(form: str, is_held: bool) -> None:
    output = np.ones((100, 3), np.float32)
    output[70, 2] = 2.0**-30
    assert on_grid(output, form) is is_held


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_a_truncated_output_stands_for_a_step_away_from_zero(form: str) -> None:
    values = outputs("fp32")[None] * 1.001
    noise = np.full(values.shape, 1e-30)
    y = round_to(values, form, "zero")
    assert cells(y, Quantity(values, noise), form, "zero").largest == 0.0
    assert cells(y, Quantity(values, noise), form).largest > 0.0
    step = ulp(y, form)
    for sign in (-1.0, 1.0):  # beyond the cell's ends
        moved = y + np.where(y < 0, -1.0, 1.0) * (0.5 + sign * 0.6) * step
        assert (cells(y, Quantity(moved, noise), form, "zero").distance > 0.0)[y != 0.0].all()
