"""Statistics of outputs, by hand and against plain definitions."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from gonogo.judgment.statistics import Statistics, statistics_of
from gonogo.judgment.tolerance import Tolerance


def of(
    values: object, right: object, form: str = "fp32", tolerance: Tolerance | None = None
) -> Statistics:
    """Return the statistics of values beside one reference; the first one is outside."""
    given, exact = (np.asarray(a, np.float64) for a in (values, right))
    outside = np.zeros(given.shape, bool)
    outside.flat[0] = True
    return statistics_of(given, exact, exact, form, outside, tolerance)


def test_the_numbers_of_a_small_output_by_hand() -> None:
    numbers = of([2.0, -1.0, 4.5, 0.0], [1.0, -1.0, 4.0, 0.0], tolerance=Tolerance(0.1, 0.1))
    assert asdict(numbers) == {
        "count": 4,
        "nonfinite": 0,
        "max_abs": 1.0,
        "mean_abs": 0.375,
        "rms": pytest.approx(np.sqrt(1.25 / 4)),
        "rel_frobenius": pytest.approx(np.sqrt(1.25 / 18)),
        "pcc_deficit": pytest.approx(1 - np.corrcoef([2, -1, 4.5, 0], [1, -1, 4, 0])[0, 1]),
        "ulp_max": 2.0**23,
        "ulp_p99": 2.0**23,
        "mismatch_fraction": 0.5,
        "tolerance_ratio": pytest.approx(5.0),
        "tolerance_ratio_quantized": pytest.approx(5.0),
        "outliers": 1,  # twice the reference, and outside
        "needed_atol": pytest.approx(
            {0.0: 1.0, 1e-5: 1 - 1e-5, 1e-3: 0.999, 1e-2: 0.99, 1.6e-2: 0.984, 1e-1: 0.9}
        ),
    }


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    numbers = of([np.nan, 1.0, np.inf, 3.0], [2.0, 1.0, np.inf, 2.0])
    assert (numbers.count, numbers.nonfinite, numbers.max_abs) == (4, 1, 1.0)
    nothing = of([np.nan, np.inf], [1.0, 2.0])
    assert (nothing.nonfinite, nothing.max_abs, nothing.needed_atol) == (2, None, {})


def test_what_is_undefined_says_so() -> None:
    constant = of([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert constant.pcc_deficit is None
    assert constant.tolerance_ratio is None
    assert of([1.0, 0.0], [0.0, 0.0]).rel_frobenius == np.inf
    assert of([0.0, 0.0], [0.0, 0.0]).rel_frobenius == 0.0


def test_a_correlation_keeps_its_digits() -> None:
    random = np.random.default_rng(0)
    right = 1000 + random.normal(size=4000)
    noise = 1e-7 * random.normal(size=4000)
    expected = np.square(noise).mean() / np.square(right - right.mean()).mean() / 2
    assert of(right + noise, right).pcc_deficit == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("form", "ulp"), [("fp32", 2.0**-23), ("bf16", 2.0**-7), ("fp16", 2**-10)])
def test_an_ulp_is_that_of_the_format(form: str, ulp: float) -> None:
    assert of([1 + 3 * ulp, 1.0], [1.0, 1.0], form).ulp_max == 3.0
