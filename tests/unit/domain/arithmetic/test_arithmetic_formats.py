"""Formats of the arithmetic: rounding against ml_dtypes and the definition, and cells."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.arithmetic.formats import (
    FORMATS,
    Mode,
    beyond_cell,
    binade,
    format_named,
    half_cell,
    round_to,
    smallest_step,
    step,
    unit_roundoff,
)

Doubles = NDArray[np.float64]
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
MODES: tuple[Mode, ...] = ("even", "away", "zero")
PLAIN = [name for name, form in FORMATS.items() if form.block == 1]
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


def every_number(form: str) -> Doubles:
    bits = 8 * np.dtype(TYPES[form]).itemsize
    patterns = np.arange(2**bits).astype(f"uint{bits}")
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return patterns.view(TYPES[form]).astype(np.float32).astype(np.float64)


def equal(one: Doubles, other: Doubles) -> bool:
    nan = np.isnan(one) & np.isnan(other)
    return bool((nan | (one == other) & (np.signbit(one) == np.signbit(other))).all())


@pytest.mark.parametrize("form", TYPES)
def test_rounds_to_nearest_as_ml_dtypes_does(form: str) -> None:
    finite = np.sort(every_number(form)[np.isfinite(every_number(form))])
    middles = (finite[1:] + finite[:-1]) / 2
    random = np.random.default_rng(1).integers(0, 2**32, 20_000).astype(np.uint32)
    with np.errstate(all="ignore"):
        values = np.concatenate(
            [
                every_number(form),
                middles,
                np.nextafter(middles.astype(np.float32), np.float32(0)),
                random.view(np.float32),
                [464, 465, 65519, 65520, 61439, 61440, 1e30],
            ]
        ).astype(np.float32)
        expected = values.astype(TYPES[form]).astype(np.float32)
    assert equal(round_to(values, form), expected.astype(np.float64))


def nearest_by_definition(value: float, form: str, mode: Mode) -> float:
    """Round a number in the range of a format with exact fractions."""
    entry = format_named(form)
    exponent = max(math.frexp(value)[1] - 1, entry.min_exponent) if value else entry.min_exponent
    quotient = Fraction(value) / Fraction(2) ** (exponent - entry.precision + 1)
    size = abs(quotient)
    whole = math.floor(size)
    rest = size - whole
    up = {"even": rest > 0.5 or (rest == 0.5 and whole % 2), "away": rest >= 0.5, "zero": False}
    rounded = (whole + bool(up[mode])) * Fraction(2) ** (exponent - entry.precision + 1)
    return math.copysign(float(rounded), value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", PLAIN)
@given(value=numbers, quarters=st.integers(-8, 8))
def test_rounding_is_its_definition(form: str, mode: Mode, value: float, quarters: int) -> None:
    largest = FORMATS[form].largest / 4
    value = math.fmod(value, largest) if abs(value) > largest else value
    # near ties: whole and quarter steps from a number of the format
    tied = float(round_to(value, form)) + quarters * float(step(value, form)) / 4
    for tried in (value, tied, np.nextafter(tied, 0)):
        assert round_to(tried, form, mode) == nearest_by_definition(float(tried), form, mode)


@pytest.mark.parametrize(
    ("form", "mode", "value", "expected"),
    [
        ("fp16", "even", 65520, np.inf),
        ("fp16", "zero", -1e9, -65504),
        ("fp16", "zero", np.inf, np.inf),
        ("fp8_e4m3", "even", 464, 448),
        ("fp8_e4m3", "even", 465, np.nan),
        ("int8", "even", -130.2, -128),
        ("int8", "even", 300, 127),
        ("int8", "even", 2.5, 2),
        ("int8:0.05", "even", 0.13, 0.15),
        ("int8:0.05", "even", 9, 6.35),
        ("bf16", "even", np.nan, np.nan),
    ],
)
def test_ends_of_a_format(form: str, mode: Mode, value: float, expected: float) -> None:
    np.testing.assert_allclose(round_to(value, form, mode), expected, rtol=1e-15)


def test_a_block_shares_the_exponent_of_its_largest_value() -> None:
    row = np.array([1.0, 1 / 64, 1 / 128, 3 / 128, 127.5 / 64, 0, -0.0, 2.0**-140] + [0.0] * 8)
    even = [1.0, 1 / 64, 0, 2 / 64, 127 / 64, 0, 0, 0]
    away = [1.0, 1 / 64, 1 / 64, 2 / 64, 127 / 64, 0, 0, 0]
    both = np.concatenate([row, [3 / 128]])  # the 17th has an exponent of its own
    for mode, expected in (("even", even), ("away", away)):
        rounded = round_to(both, "bfp8_b", "even" if mode == "even" else "away")
        assert rounded[:8].tolist() == expected
        assert rounded[16] == 3 / 128
    assert step(both, "bfp8_b")[3] == 1 / 64


@pytest.mark.parametrize("form", PLAIN)
@given(value=numbers, other=numbers)
def test_a_cell_holds_what_rounds_to_its_number(form: str, value: float, other: float) -> None:
    for scale in (1.0, 1e-3, 1e-38):
        for tried in (value * scale, other * scale):
            y = float(round_to(tried, form))
            assert beyond_cell(y, tried, form) == 0
        far = y + 0.51 * float(step(y, form)) * (1 if other > 0 else -1)
        if round_to(far, form) != y and np.isfinite(y):
            assert beyond_cell(y, far, form) > 0


@pytest.mark.parametrize(
    ("form", "output", "toward", "flush", "expected"),
    [
        ("bf16", 1.0, 1.1, False, 2.0**-8),
        ("bf16", 1.0, 0.9, False, 2.0**-9),
        ("bf16", -1.0, -0.9, False, 2.0**-9),
        ("bf16", -1.0, 0.5, False, 2.0**-9),
        ("fp32", 0.0, 1.0, False, 2.0**-150),
        ("fp32", 0.0, 1.0, True, 2.0**-126),
        ("fp16", 2.0**-14, 0.0, False, 2.0**-25),
        ("fp16", 65504.0, 1e9, False, 16.0),
        ("int8", 127.0, 500.0, False, np.inf),
        ("int8", 127.0, 5.0, False, 0.5),
    ],
)
def test_half_cells(form: str, output: float, toward: float, flush: bool, expected: float) -> None:
    assert half_cell(output, toward, form, flush=flush) == expected


@pytest.mark.parametrize(
    ("output", "value", "expected"),
    [
        (np.inf, 70000.0, 0),
        (np.inf, 65500.0, 20),
        (-np.inf, 70000.0, 135520),
        (np.inf, np.inf, 0),
        (np.inf, np.nan, np.inf),
        (np.nan, np.nan, 0),
        (np.nan, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (65504.0, 65519.0, 0),
    ],
)
def test_cells_of_inf_and_nan(output: float, value: float, expected: float) -> None:
    assert beyond_cell(output, value, "fp16") == expected


def test_units() -> None:
    assert [unit_roundoff(form) for form in ("fp32", "bf16")] == [2.0**-24, 2.0**-8]
    assert smallest_step("fp16") == 2.0**-24
    assert binade([3.9, -4, 0, 5e-324]).tolist() == [2, 4, 0, 0]
    with pytest.raises(ValueError, match="format 'bf8' is not one of fp32"):
        round_to(1.0, "bf8")
