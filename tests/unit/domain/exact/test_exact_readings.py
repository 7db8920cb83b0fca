"""The parts of the readings: cells, sensors, tiles, and their words."""

from __future__ import annotations

import numpy as np
import pytest

from gonogo.exact import cells, sensors
from gonogo.exact.readings import reading, tiles
from gonogo.exact.readings.reading import Reading
from gonogo.numerics.formats import round_to


@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])
def test_a_cell_holds_what_rounds_to_its_value(fmt: str) -> None:
    words = np.random.default_rng(4)
    exact = words.uniform(-8, 8, 20_000)
    exact[:3] = 1 - 1e-9, 1 + 1e-9, 0.0  # a power of two has a narrower side
    value = round_to(exact, fmt)
    assert (cells.distance(value, exact, fmt) == 0).all()
    low, high = cells.bounds(value, fmt)
    outside = np.stack([low - 1e-6 * np.abs(low) - 1e-12, high + 1e-6 * np.abs(high) + 1e-12])
    if fmt != "fp32":
        assert (round_to(outside, fmt) != value).all()
    assert (cells.distance(np.stack([value, value]), outside, fmt) > 0).all()


def test_a_value_that_is_not_finite_is_infinitely_far() -> None:
    output = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
    assert np.isinf(cells.distance(output, np.ones(3), "bf16")).all()


def test_the_most_covered_stretch_ignores_wild_intervals() -> None:
    low = np.array([0.9, 0.95, 0.99, 5.0, -3.0])
    high = np.array([1.1, 1.02, 1.05, 6.0, -2.0])
    assert sensors.most_covered(low, high) == (0.99, 1.02)


def test_sensors_read_a_factor_and_an_offset() -> None:
    words = np.random.default_rng(2)
    xhat = words.choice([-2.0, -1.0, 0.0, 1.0, 2.0], (3, 400))
    gamma = words.uniform(1, 2, (3, 400))
    beta = words.uniform(-1, 1, (3, 400))
    factor, offset = np.array([1.0, 1.01, 0.98]), np.array([0.0, 0.02, -0.3])
    y = round_to(gamma * (factor[:, None] * xhat + offset[:, None]) + beta, "bf16")
    seen = sensors.read(*cells.bounds(y, "bf16"), gamma, xhat, beta)
    assert seen.factor.middle == pytest.approx(factor, abs=1e-3)
    assert seen.offset.middle == pytest.approx(offset, abs=1e-3)
    assert (seen.share > 0.95).all()


def test_intervals_that_touch_overlap() -> None:
    low, high = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    assert sensors.most_covered(low, high) == (1.0, 1.0)


def test_below_a_power_of_two_a_cell_is_narrower() -> None:
    low, high = cells.bounds(np.array([1.0, -1.0], dtype=np.float32), "bf16")
    assert low == pytest.approx([1 - 2.0**-9, -1 - 2.0**-8], abs=0)
    assert high == pytest.approx([1 + 2.0**-8, -1 + 2.0**-9], abs=0)


def test_sets_of_missing_tiles_say_what_is_lost() -> None:
    partial = 2.0 ** np.arange(9)[None]
    lost = {line.words: (line.tiles, line.lost[0]) for line in tiles.missing(partial)}
    assert lost["leaves out tile 3 of 9"] == ((2,), 4.0)
    assert lost["leaves out the last 2 of 9 tiles"] == ((7, 8), 384.0)
    assert lost["leaves out the first 3 of 9 tiles"] == ((0, 1, 2), 7.0)
    assert lost["sums only tile 1 of 9"][1] == 510.0
    assert lost["sums only the last 2 of 9 tiles"][1] == 127.0


def test_a_vague_reading_wins_only_where_nothing_else_fits() -> None:
    vague = Reading("rstd", "another factor in each row", 1.0, vague=True)
    good, poor = Reading("mean", "m", 0.95), Reading("gamma", "g", 0.4)
    assert reading.best([vague, good, poor]) is good
    assert reading.best([vague, poor]) is vague
    first, second = Reading("a", "a", 0.999), Reading("b", "b", 1.0)
    assert reading.best([first, second]) is first


def test_factors_and_places_in_words() -> None:
    assert reading.factor_in_words(1.001) == "1 + 0.001"
    assert reading.factor_in_words(1 - 1e-5) == "1 - 1e-05"
    assert reading.factor_in_words(2.0) == "2"
    words, factor = reading.span_in_words(1.0009, 1.0011)
    assert words == "1 + 0.001"
    assert factor == pytest.approx(1.001)
    words, factor = reading.span_in_words(1 + 1e-5, 1 + 1e-3)
    assert words == "between 1 + 1e-05 and 1 + 0.001"
    assert factor == pytest.approx(1 + 1e-4)
    assert reading.named((3, 4), 5) == "the last 2 of 5 tiles"
    assert reading.named((1,), 5) == "tile 2 of 5"
    assert reading.rows_in_words([0, 8], 24) == "in rows 1, 9 (2 of 24 exact rows)"
    assert reading.rows_in_words([0, 1], 2) == ""
