"""Tensix arithmetic: each primitive against the published facts and against exact fractions;
compiled scalars against NumPy."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.numerics.tensix import arithmetic as wh
from gonogo.numerics.tensix import arithmetic_jit as scalar

Array = NDArray[np.float32]

MANTISSAS = (1 + np.arange(128) / 128).astype(np.float32)
"""Every bf16 in [1, 2)."""

FLOATS = (
    st.integers(0, 2**32 - 1)
    .map(lambda bits: np.uint32(bits).view(np.float32))
    .filter(lambda v: not np.isnan(v))
)
REGISTERS = FLOATS.map(lambda v: np.float32(wh.flush(np.array([v]))[0]))
SOURCES = FLOATS.map(lambda v: np.float32(wh.read_source(np.array([v]))[0]))
NEAR = st.builds(
    lambda mantissa, exponent, sign: np.float32(sign * mantissa * 2.0**exponent),
    st.integers(1024, 2047),
    st.integers(-14, 4),
    st.sampled_from((-1, 1)),
)
"""TF32 numbers whose exponents are close enough to meet in an addition."""


def one(v: np.float32) -> Array:
    return np.array([v], dtype=np.float32)


def same(compiled: np.float32, defined: Array) -> bool:
    return (
        bool(np.isnan(compiled) and np.isnan(defined[0]))
        or np.float32(compiled).view(np.uint32) == defined.view(np.uint32)[0]
    )


@pytest.mark.parametrize(
    ("fidelity", "largest", "mean"),
    [
        ("lofi", 5.9e-2, 2.15e-2),
        ("hifi2", 7.8e-3, 2.7e-3),
        ("hifi3", 4.0e-4, 5.1e-5),
        ("hifi4", 0.0, 0.0),
    ],
)
def test_a_product_loses_what_its_fidelity_phases_leave_out(
    fidelity: str, largest: float, mean: float
) -> None:
    a, b = np.meshgrid(MANTISSAS, MANTISSAS, indexing="ij")
    loss = 1 - wh.product(a, b, fidelity).astype(np.float64) / (a.astype(np.float64) * b)
    assert loss.min() >= 0, "always toward zero"
    assert loss.max() == pytest.approx(largest, rel=0.013)
    assert loss.mean() == pytest.approx(mean, rel=0.013)


def test_source_a_never_uses_the_last_bit_of_tf32() -> None:
    odd = one(np.float32(1 + 2**-10))
    assert wh.product(odd, one(np.float32(1.0)))[0] == 1.0
    assert wh.product(one(np.float32(1.0)), odd)[0] == odd[0]


def test_unpacking_truncates_and_a_packed_scalar_is_truncated_too() -> None:
    a = np.array([1 + 2**-10 + 2**-11, -(1 + 2**-7 + 2**-8), 1e-39], dtype=np.float32)
    assert wh.read_source(a).tolist() == [1 + 2**-10, -(1 + 2**-7 + 2**-8), 0.0]
    assert wh.read_source(a, as_bf16=True).tolist() == [1.0, -(1 + 2**-7), 0.0]
    assert 8462 * float(wh.scaler(1 / 8462)) - 1 == pytest.approx(-3.36e-3, abs=5e-6)
    assert float(wh.scaler(1 / 8192)) == 1 / 8192


def test_the_packer_rounds_ties_away_and_drops_the_sign_of_zero() -> None:
    half = 1 + 2**-8
    a = np.array([half, -half, half - 2**-23, -0.0, 1e-39], dtype=np.float32)
    packed = wh.pack(a, "bf16")
    assert packed.tolist() == [1 + 2**-7, -(1 + 2**-7), 1.0, 0.0, 0.0]
    assert not np.signbit(packed[3])


def test_block_formats_go_through_bf16_with_ties_away() -> None:
    a = np.array([[1.0, *([2**-7] * 2), 3 * 2**-7, *([0.0] * 12), 2**-7]], dtype=np.float32)
    assert wh.pack(a, "bfp8_b")[0, [0, 1, 3, 16]].tolist() == [
        1.0,
        2**-6,
        2**-5,
        2**-7,
    ]  # half a step of 2^-6 goes up


def exact_align_add(a: float, b: float) -> Fraction:
    """Add exactly by rule 6: the smaller magnitude, half up, on the larger one's 2^-10 grid."""
    large, small = (Fraction(v) for v in ((a, b) if abs(a) >= abs(b) else (b, a)))
    if large == 0:
        return Fraction(0)
    grid = Fraction(1)
    while grid * 2 <= abs(large):
        grid *= 2
    while grid > abs(large):
        grid /= 2
    grid /= 1024
    steps = floor(abs(small) / grid + Fraction(1, 2))
    return large + (steps * grid if small >= 0 else -steps * grid)


@given(NEAR, NEAR)
def test_addition_aligns_the_smaller_operand_half_up_on_the_larger_ones_grid(
    a: np.float32, b: np.float32
) -> None:
    assert Fraction(float(wh.align_add(one(a), one(b))[0])) == exact_align_add(float(a), float(b))
    assert Fraction(float(wh.align_subtract(one(a), one(b))[0])) == exact_align_add(
        float(a), -float(b)
    )


def test_a_tie_of_the_alignment_is_a_bias_away_from_zero() -> None:
    x, tie = one(np.float32(1.0)), one(np.float32(2**-11))
    assert wh.align_add(x, tie)[0] == 1 + 2**-10
    assert wh.align_subtract(x, tie)[0] == 1 - 2**-10
    assert wh.align_add(x, one(np.float32(2**-12)))[0] == 1.0


def test_a_16_bit_dst_rounds_the_term_and_the_result() -> None:
    total = one(np.float32(1.0))
    assert wh.accumulate(total, one(np.float32(2**-8)), as_bf16=True)[0] == 1 + 2**-7, (
        "a tie goes away from zero"
    )
    assert wh.accumulate(total, one(np.float32(0.99 * 2**-8)), as_bf16=True)[0] == 1.0
    assert wh.accumulate(total, one(np.float32(2**-8)))[0] == 1 + 2**-8
    assert (
        wh.store_vector_bf16(one(np.float32(1.99)))[0] < wh.round_dst_bf16(one(np.float32(1.99)))[0]
    ), "the SFPU truncates"


def test_vector_operations_round_once_and_flush_denormals() -> None:
    a, b = one(np.float32(1.0)), one(np.float32(2**-24))
    assert wh.vector_add(a, b)[0] == 1.0
    assert wh.vector_subtract(a, b)[0] == 1 - 2**-24
    assert wh.vector_multiply(one(np.float32(2**-100)), one(np.float32(2**-30)))[0] == 0.0


def test_rsqrt_to_bf16_is_correctly_rounded_for_every_bf16() -> None:
    bits = np.arange(0x0080, 0x7F80, dtype=np.uint32) << np.uint32(16)
    values = bits.view(np.float32)
    got = wh.reciprocal_root(values, as_bf16=True).astype(np.float64)
    step = 2.0 ** (np.floor(np.log2(got)) - 7)
    exact = 1 / np.sqrt(values.astype(np.longdouble))
    assert np.all(np.abs(got - exact) <= step / 2)


@given(SOURCES, SOURCES, st.sampled_from([*scalar.FIDELITY_MASKS]))
def test_compiled_products_are_those_of_numpy(a: np.float32, b: np.float32, fidelity: str) -> None:
    assert same(
        scalar.product(a, b, *scalar.FIDELITY_MASKS[fidelity]), wh.product(one(a), one(b), fidelity)
    )


@given(st.one_of(SOURCES, NEAR), st.one_of(SOURCES, NEAR))
def test_compiled_aligned_sums_are_those_of_numpy(a: np.float32, b: np.float32) -> None:
    assert same(scalar.align_add(a, b), wh.align_add(one(a), one(b)))


@given(REGISTERS, REGISTERS, st.booleans())
def test_compiled_vector_operations_and_dst_are_those_of_numpy(
    a: np.float32, b: np.float32, narrow: bool
) -> None:
    assert same(scalar.vector_add(a, b), wh.vector_add(one(a), one(b)))
    assert same(scalar.vector_subtract(a, b), wh.vector_subtract(one(a), one(b)))
    assert same(scalar.vector_multiply(a, b), wh.vector_multiply(one(a), one(b)))
    assert same(scalar.accumulate(a, b, narrow), wh.accumulate(one(a), one(b), narrow))


@given(FLOATS, st.booleans())
def test_compiled_conversions_are_those_of_numpy(value: np.float32, as_bf16: bool) -> None:
    assert same(scalar.read_source(value, as_bf16), wh.read_source(one(value), as_bf16))
    register = np.float32(wh.flush(one(value))[0])
    assert same(scalar.pack_bf16(register), wh.pack(one(value), "bf16"))
    if register > 0:
        assert same(
            scalar.reciprocal_root(register, as_bf16), wh.reciprocal_root(one(register), as_bf16)
        )
