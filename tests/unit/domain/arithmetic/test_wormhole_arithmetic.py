"""A Tensix core's arithmetic against the published facts, and against exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.arithmetic import wormhole as wh
from gonogo.arithmetic.wormhole import Rule, stored
from gonogo.graph import trace

Array = NDArray[np.float32]

MANTISSAS = (1 + np.arange(128) / 128).astype(np.float32)
"""Every bf16 in [1, 2)."""

NEAR = st.builds(
    lambda mantissa, exponent, sign: np.float32(sign * mantissa * 2.0**exponent),
    st.integers(1024, 2047),
    st.integers(-14, 4),
    st.sampled_from((-1, 1)),
)
"""TF32 numbers whose exponents are close enough to meet in an addition."""


def one(v: np.float32) -> Array:
    return np.array([v], dtype=np.float32)


def computed(rule: Rule, function: Callable[..., Any], *args: Array) -> Array:
    """Return what a rule gives for the last operation of a function of x and y."""
    inputs = dict(zip("xy", args, strict=False))
    graph = trace(lambda **given: {"z": function(**given)}, inputs)
    args = [inputs.get(arg.key, np.float64(1.0)) for arg in graph.outputs["z"].args]
    return np.asarray(rule.computed(graph.outputs["z"], args))


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
    assert wh.product(odd, one(np.float32(1.0)), "hifi4")[0] == 1.0
    assert wh.product(one(np.float32(1.0)), odd, "hifi4")[0] == odd[0]


def test_unpacking_truncates_and_a_packed_scalar_is_truncated_too() -> None:
    a = np.array([1 + 2**-10 + 2**-11, -(1 + 2**-7 + 2**-8), 1e-39], dtype=np.float32)
    assert stored(a, "tf32/zero").tolist() == [1 + 2**-10, -(1 + 2**-7 + 2**-8), 0.0]
    assert stored(a, "bf16/zero").tolist() == [1.0, -(1 + 2**-7), 0.0]
    assert 8462 * float(stored(one(np.float32(1 / 8462)), wh.SCALER)[0]) - 1 == pytest.approx(
        -3.36e-3, abs=5e-6
    )
    assert float(stored(one(np.float32(1 / 8192)), wh.SCALER)[0]) == 1 / 8192


def test_the_packer_rounds_ties_away_and_drops_the_sign_of_zero() -> None:
    half = 1 + 2**-8
    a = np.array([half, -half, half - 2**-23, -0.0, 1e-39], dtype=np.float32)
    packed = stored(a, "bf16/away")
    assert packed.tolist() == [1 + 2**-7, -(1 + 2**-7), 1.0, 0.0, 0.0]
    assert not np.signbit(packed[3])


def test_block_formats_go_through_bf16_with_ties_away() -> None:
    a = np.array([[1.0, *([2**-7] * 2), 3 * 2**-7, *([0.0] * 12), 2**-7]], dtype=np.float32)
    assert stored(a, "bf16/away+bfp8_b/away")[0, [0, 1, 3, 16]].tolist() == [
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
    assert Fraction(float(wh.aligned_sum(one(a), one(b))[0])) == exact_align_add(float(a), float(b))
    rule = Rule("fpu")
    difference = computed(rule, lambda x, y: x - y, one(a), one(b))
    assert Fraction(float(difference[0])) == exact_align_add(float(a), -float(b))


def test_a_tie_of_the_alignment_is_a_bias_away_from_zero() -> None:
    x, tie = one(np.float32(1.0)), one(np.float32(2**-11))
    assert wh.aligned_sum(x, tie)[0] == 1 + 2**-10
    assert computed(Rule("fpu"), lambda x, y: x - y, x, tie)[0] == 1 - 2**-10
    assert wh.aligned_sum(x, one(np.float32(2**-12)))[0] == 1.0


def test_a_16_bit_dst_rounds_the_term_and_the_result() -> None:
    total = one(np.float32(1.0))
    assert wh.accumulated(total, one(np.float32(2**-8)), "bf16")[0] == 1 + 2**-7, (
        "a tie goes away from zero"
    )
    assert wh.accumulated(total, one(np.float32(0.99 * 2**-8)), "bf16")[0] == 1.0
    assert wh.accumulated(total, one(np.float32(2**-8)), "fp32")[0] == 1 + 2**-8
    x, y = one(np.float32(1.99)), one(np.float32(1.0))
    by_sfpu = computed(Rule("sfpu", "bf16"), lambda x, y: x * y, x, y)
    by_fpu = computed(Rule("fpu", "bf16"), lambda x, y: x * y, stored(x, "tf32/zero"), y)
    assert by_sfpu[0] < by_fpu[0], "the SFPU truncates"


def test_vector_operations_round_once_and_flush_denormals() -> None:
    rule, a, b = Rule("sfpu"), one(np.float32(1.0)), one(np.float32(2**-24))
    assert computed(rule, lambda x, y: x + y, a, b)[0] == 1.0
    assert computed(rule, lambda x, y: x - y, a, b)[0] == 1 - 2**-24
    tiny = one(np.float32(2**-100)), one(np.float32(2**-30))
    assert computed(rule, lambda x, y: x * y, *tiny)[0] == 0.0


def test_rsqrt_to_bf16_is_correctly_rounded_for_every_bf16() -> None:
    bits = np.arange(0x0080, 0x7F80, dtype=np.uint32) << np.uint32(16)
    values = bits.view(np.float32)
    roots = np.sqrt(values.astype(np.float64))
    got = computed(Rule("rsqrt", "bf16"), lambda x: 1.0 / x, roots).astype(np.float64)
    step = 2.0 ** (np.floor(np.log2(got)) - 7)
    exact = 1 / np.sqrt(values.astype(np.longdouble))
    assert np.all(np.abs(got - exact) <= step / 2)
