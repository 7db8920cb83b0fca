"""Formats: every bit pattern against ml_dtypes and against plain arithmetic; compiled scalars
against the definition."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.numerics.formats import FORMATS, Mode, half_ulp, round_to, ulp

Floats = NDArray[np.float32]
MODES: tuple[Mode, ...] = ("even", "away", "zero")
BF16 = (np.arange(2**16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
"""Every bf16 pattern."""
HALFWAY = (BF16.view(np.uint32) | np.uint32(0x8000)).view(np.float32)
"""Every float32 half way between two neighbors of bf16."""
RANDOM = np.random.default_rng(7).integers(0, 2**32, 1_000_000, dtype=np.uint32).view(np.float32)


def same_bits(one: Floats, other: Floats) -> bool:
    """Return whether both are equal to the last bit, -0 included; NaNs of one sign are equal."""
    nan = np.isnan(one) & np.isnan(other) & (np.signbit(one) == np.signbit(other))
    return bool(((one.view(np.uint32) == other.view(np.uint32)) | nan).all())


def around(values: Floats) -> Floats:
    bits = values.view(np.uint32)
    return np.concatenate([bits, bits + np.uint32(1), bits - np.uint32(1)]).view(np.float32)


@pytest.mark.parametrize("mode", MODES)
def test_every_bf16_pattern_is_kept(mode: Mode) -> None:
    assert same_bits(round_to(BF16, "bf16", mode), BF16)


@pytest.mark.parametrize(
    "values", [around(HALFWAY), around(BF16), RANDOM], ids=["halfway", "bf16", "random"]
)
def test_bf16_even_is_that_of_ml_dtypes(values: Floats) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert same_bits(round_to(values, "bf16"), expected)


def test_bf16_halfway_goes_away_from_zero_or_toward_it() -> None:
    finite = HALFWAY[np.isfinite(HALFWAY)]
    assert (np.abs(round_to(finite, "bf16", "away")) > np.abs(finite)).all()
    below = np.nextafter(finite, np.float32(0))
    assert (np.abs(round_to(below, "bf16", "away")) <= np.abs(below)).all()
    for values in (finite, below, np.nextafter(finite, np.copysign(np.float32(np.inf), finite))):
        assert same_bits(
            round_to(values, "bf16", "zero"),
            (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
        )


def test_fp16_even_is_that_of_numpy() -> None:
    patterns = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.concatenate(
            [around(patterns), around((patterns[:-1] + patterns[1:]) / 2), RANDOM]
        )
        expected = values.astype(np.float16).astype(np.float32)
    assert same_bits(round_to(values, "fp16"), expected)


def exactly(value: float, name: str, mode: Mode) -> float:
    """Round by the definition, exactly: to the multiple of the ulp that the mode asks for."""
    form = FORMATS[name]
    size = Fraction(abs(value))
    exponent = max(math.frexp(value)[1] - 1, form.min_exponent)
    step = Fraction(2) ** (exponent - form.fraction_bits)
    whole, rest = divmod(size, step)
    up = {
        "zero": False,
        "away": rest * 2 >= step,
        "even": rest * 2 > step or (rest * 2 == step and whole % 2 == 1),
    }[mode]
    rounded = (whole + up) * step
    return math.copysign(float(rounded) if rounded < 2**200 else math.inf, value)


doubles = (
    st.floats(allow_nan=False, allow_infinity=False) | st.floats(-8, 8) | st.floats(-1e-37, 1e-37)
)
singles = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-8, 8, width=32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
@given(value=doubles | singles)
def test_rounding_is_the_exact_one_from_float64_too(name: str, mode: Mode, value: float) -> None:
    largest = {
        "fp16": 65504.0,
        "bf16": 3.3895313892515355e38,
        "tf32": 3.4011621342146535e38,
        "fp32": 3.4028234663852886e38,
    }[name]
    expected = exactly(value, name, mode)
    if abs(expected) > largest:
        expected = math.copysign(largest if mode == "zero" else math.inf, value)
    got = round_to(np.array([value]), name, mode)
    assert same_bits(got, np.array([expected], np.float32))


def test_float64_is_rounded_once() -> None:
    """The value lies just above half way between two bf16. Rounding to float32 first would land on
    the tie, and go down to even."""
    value = 1 + 2.0**-8 + 2.0**-40
    assert round_to(np.array(value), "bf16") == 1 + 2.0**-7
    assert round_to(np.float32(value), "bf16") == 1.0


@pytest.mark.parametrize("name", FORMATS)
def test_special_values(name: str) -> None:
    for mode in MODES:
        got = round_to(np.array([np.inf, -np.inf, np.nan, 0.0]), name, mode)
        assert same_bits(got, np.array([np.inf, -np.inf, np.nan, 0.0], np.float32))
        assert same_bits(round_to(np.float32([-np.nan]), name, mode), np.float32([-np.nan]))
        zero = round_to(np.float32([-0.0]), name, mode)
        assert np.signbit(zero[0]) == (not FORMATS[name].block)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (2, 3, 40)])
def test_shapes_are_kept_and_results_are_new_c_contiguous_float32(
    name: str, shape: tuple[int, ...]
) -> None:
    values = np.ones(shape, np.float32, order="F")
    got = round_to(values, name)
    assert (got.shape, got.dtype, got.flags.c_contiguous) == (shape, np.float32, True)
    assert not np.shares_memory(got, values)
    assert half_ulp(values, name).shape == shape


# --- block formats
# -------------------------------------------------------------------------------------------------


def block_exactly(block: list[float], bits: int, mode: Mode) -> list[float]:
    """Return signs and magnitudes of `bits` bits on the grid of the largest exponent, clamped."""
    block = [0.0 if abs(v) < 2.0**-126 else v for v in block]
    largest = max(map(abs, block))
    if largest == 0:
        return [0.0] * len(block)
    step = Fraction(2) ** (math.frexp(largest)[1] - bits)
    result = []
    for value in block:
        whole, rest = divmod(Fraction(abs(value)), step)
        up = {
            "zero": False,
            "away": rest * 2 >= step,
            "even": rest * 2 > step or (rest * 2 == step and whole % 2 == 1),
        }[mode]
        size = float(min(whole + up, 2**bits - 1) * step)
        result.append(math.copysign(size, value) if size else 0.0)
    return result


blocks = st.lists(singles, min_size=1, max_size=16)


@given(blocks, st.sampled_from(MODES))
def test_bfp8_is_sign_and_seven_bits_under_the_largest_exponent(
    block: list[float], mode: Mode
) -> None:
    assert same_bits(
        round_to(np.float32(block), "bfp8_b", mode), np.float32(block_exactly(block, 7, mode))
    )


def test_bfp8_examples_by_hand() -> None:
    # Shared exponent 0: steps of 1/64, at most 127/64.
    block = np.float32([1.0, 1.999, 1 / 128, 3 / 128, -1 / 128, 1 / 256, 0.5])
    assert list(round_to(block, "bfp8_b", "even") * 64) == [64, 127, 0, 2, 0, 0, 32]
    assert list(round_to(block, "bfp8_b", "away") * 64) == [64, 127, 1, 2, -1, 0, 32]
    assert list(round_to(block, "bfp8_b", "zero") * 64) == [64, 127, 0, 1, 0, 0, 32]


def test_blocks_are_16_consecutive_values_of_a_row_padded_with_zeros() -> None:
    row = np.float32([1 / 128] * 40)
    row[0] = row[39] = 1.0
    got = round_to(np.stack([row, row]), "bfp8_b")
    assert (got[:, 1:16] == 0).all()  # under the 1.0 of their block
    assert (got[:, 16:32] == 1 / 128).all()  # a block of their own
    assert (got[:, 32:39] == 0).all()  # the last one, of 8
    assert same_bits(got[0], got[1])


def test_an_infinity_takes_the_largest_exponent_of_its_block_only() -> None:
    values = np.full(32, 2.0, np.float32)
    values[3] = np.inf
    got = round_to(values, "bfp8_b")
    assert got[3] == np.inf
    assert (got[[0, 15]] == 0).all()
    assert (got[16:] == 2).all()


@pytest.mark.parametrize("mode", MODES)
def test_every_magnitude_of_a_block_format_is_kept(mode: Mode) -> None:
    magnitudes = np.arange(2**7)
    for exponent in (-126, -1, 0, 5, 120):
        column = magnitudes[:, None] * 2.0**exponent
        block = np.concatenate(
            [np.full_like(column, (2**7 - 1) * 2.0**exponent), column, -column], axis=1
        ).astype(np.float32)
        expected = np.where(np.abs(block) < 2.0**-126, np.float32(0), block) + np.float32(0)
        assert same_bits(round_to(block, "bfp8_b", mode), expected)


# --- units in the last place
# -----------------------------------------------------------------------------------------


def test_half_ulp_of_every_bf16_is_half_the_way_to_the_next() -> None:
    positive = BF16[:0x7F80].astype(
        np.float64
    )  # 0, the subnormals and all finite numbers, in order
    following = np.append(positive[1:], 2.0**128)
    assert (half_ulp(positive, "bf16") == (following - positive) / 2).all()
    assert (half_ulp(-positive, "bf16") == half_ulp(positive, "bf16")).all()
    between = np.nextafter(following, 0)
    assert (half_ulp(between, "bf16") == half_ulp(positive, "bf16")).all()


@pytest.mark.parametrize(("name", "dtype"), [("fp32", np.float32), ("fp16", np.float16)])
def test_ulp_is_numpys_spacing(name: str, dtype: type) -> None:
    values = np.abs(
        np.concatenate(
            [
                RANDOM[:20_000],
                np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32),
                np.float32([0]),
            ]
        )
    )
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    values = values[np.isfinite(values) & (values < np.finfo(dtype).max)]
    assert (ulp(values, name) == np.spacing(values).astype(np.float64)).all()


def test_half_ulp_outside_the_numbers() -> None:
    got = half_ulp([np.inf, -np.inf, np.nan, 0.0, 5e-324], "bf16")
    assert list(got[:2]) == [np.inf, np.inf]
    assert np.isnan(got[2])
    assert list(got[3:]) == [2.0**-134, 2.0**-134]


def test_half_ulp_of_a_block_format_is_that_of_its_largest() -> None:
    got = half_ulp([3.0] + [0.1] * 15 + [0.1], "bfp8_b")
    assert (got[:16] == 2.0 ** (1 - 7)).all()
    assert got[16] == 2.0 ** (-4 - 7)


def test_unit_roundoffs() -> None:
    roundoffs = {name: form.unit_roundoff for name, form in FORMATS.items()}
    assert roundoffs == {
        "fp32": 2.0**-24,
        "tf32": 2.0**-11,
        "bf16": 2.0**-8,
        "fp16": 2.0**-11,
        "bfp8_b": 2.0**-7,
    }
