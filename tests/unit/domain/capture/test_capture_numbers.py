"""The statistics of captured comparisons: those of gonogo.closeness, in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from gonogo import closeness
from gonogo.arithmetic.formats import round_to
from gonogo.capture.numbers import BLOCK, numbers
from gonogo.closeness import Gate
from gonogo.public.tensors import read

random = np.random.default_rng(0)
NORMAL = random.normal(size=(3, BLOCK - 5))
NOISE = 1 + 1e-3 * random.normal(size=NORMAL.shape)
HOLES = np.where(random.uniform(size=NORMAL.shape) < 0.01, np.nan, NORMAL)
BF16 = round_to(NORMAL * NOISE, "bf16").astype("f4")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ((NORMAL * NOISE).astype("f4"), NORMAL.astype("f4")),
        (BF16, NORMAL),
        (NORMAL * NOISE + 1e6, NORMAL + 1e6),
        (NORMAL * 2 + 3, NORMAL),
        (HOLES * NOISE, HOLES),
        (NORMAL, HOLES),
        (NORMAL, NORMAL),
        (NORMAL, np.float64(0.5)),
        (np.float32(2), np.float32(2)),
    ],
)
def test_they_are_the_numbers_of_closeness(actual: np.ndarray, expected: np.ndarray) -> None:
    gate = Gate(rtol=1e-3, atol=1e-4, equal_nan=True)
    a, r = read(actual, "actual"), read(expected, "expected")
    values, golden = np.broadcast_arrays(a.values, r.values)
    right = closeness.numbers(values, golden, gate, a.format)
    captured = numbers(a, r, gate)
    for name in set(right) & set(captured) - {"pcc_deficit"}:
        assert captured[name] == pytest.approx(right[name], rel=1e-9), name
    # rounding of the sums alone: of an offset of 1e6 deviations, less
    deficits = captured["pcc_deficit"], right["pcc_deficit"]
    assert None in deficits or deficits[0] == pytest.approx(deficits[1], rel=1e-3, abs=1e-15)
    assert (deficits[0] is None) == (deficits[1] is None)


@pytest.mark.parametrize(
    ("wrong", "outliers"), [({7: 2.0}, 1), ({7: 0.5, BLOCK + 9: 4.0}, 2), ({7: 1.7}, 0), ({}, 0)]
)
def test_isolated_errors_near_a_power_of_two_are_counted(
    wrong: dict[int, float], outliers: int
) -> None:
    expected = np.where(np.abs(NORMAL) < 0.5, 1.0, NORMAL)
    actual = expected * NOISE
    for place, multiple in wrong.items():
        actual.flat[place] = expected.flat[place] * multiple
    captured = numbers(read(actual, "actual"), read(expected, "expected"), Gate(pcc=0.99))
    assert captured["outliers"] == outliers
