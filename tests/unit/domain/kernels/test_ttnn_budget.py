"""The budget of moreh's backward kernel.

Its terms follow from the kernel's constants and Dst. A wrong kernel stays unexplained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm.arithmetic.terms import (
    BackwardTerms,
    backward_terms,
    forward_terms,
)
from gonogo.kernels.layernorm.arithmetic.ttnn import truncated
from gonogo.kernels.layernorm.reference import reference
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation


def spec(
    kernel: str = "layernorm_bw", shape: tuple[int, ...] = (1, 1, 64, 96), **numerics: Any
) -> TestSpec:
    return TestSpec.parse({"kernel": kernel, "shape": list(shape), "numerics": numerics})


def backward(n: int = 96, **numerics: Any) -> BackwardTerms:
    return backward_terms(spec(shape=(1, 1, 64, n), **numerics), "ttnn")


def test_constants_are_the_upper_half_of_their_fp32() -> None:
    assert truncated(8462.0) == 8448.0
    assert truncated(1.0 / 96) == pytest.approx(1.0 / 96 * (1 - 2.0**-8))
    assert truncated(0.25) == 0.25


@pytest.mark.parametrize(
    ("n", "whole", "sums"),
    [(1024, 0.0, 0.0), (96, 2.0**-8, 0.0), (50, 0.005127, 0.0), (8462, 0.00501, 0.00165)],
)
def test_both_constants_of_n_are_paid_for(n: int, whole: float, sums: float) -> None:
    terms = backward(n)
    assert terms.scale - 2.0**-8 == pytest.approx(whole, abs=2e-5)
    assert terms.reciprocal == pytest.approx(sums, abs=2e-5)


def test_a_narrow_dst_rounds_the_running_sums_to_bf16_and_pools_eight_rows_at_a_time() -> None:
    assert (backward(accumulate="bf16").accumulate, backward(accumulate="bf16").column) == (
        2.0**-8,
        2.0**-11,
    )
    assert (backward().accumulate, backward().column) == (2.0**-10 + 2.0**-11, 2.0**-15)
    assert backward(32).additions == 0.0
    assert backward(33).additions == 1.0


def test_three_more_products_at_low_fidelity() -> None:
    assert backward(fidelity="lofi").scale - backward().scale == pytest.approx(3 * 2.15e-2)


def test_a_narrow_dst_makes_fp32_outputs_of_the_forward_no_better_than_bf16() -> None:
    narrow = forward_terms(
        spec("layernorm_fw", input="fp32", output="fp32", accumulate="bf16"), "ttnn"
    )
    wide = forward_terms(spec("layernorm_fw", input="fp32", output="fp32"), "ttnn")
    assert (narrow.stored, narrow.align, narrow.read) == (2.0**-8, 2.0**-11 + 2.0**-7, 2.0**-7)
    assert (wide.stored, wide.align, wide.read) == (2.0**-10, 2.0**-11, 2.0**-10)


@pytest.mark.parametrize("accumulate", ["fp32", "bf16"])
@pytest.mark.parametrize("defect", ["double-subtract", "drop-s1"])
def test_a_wrong_kernel_stays_unexplained(accumulate: str, defect: str) -> None:
    test = spec(accumulate=accumulate)
    raw = generate(test, 0)
    given = quantise(test, raw)
    for build, explanation in (
        ("correct", Explanation.explained),
        (defect, Explanation.unexplained),
    ):
        judged = judge(test, raw, given, emulator.run(test, given, build), arithmetic="ttnn")
        assert judged.outputs["dx"].explanation is explanation, build


def test_a_column_that_lost_a_row_tile_is_unexplained() -> None:
    test = spec(shape=(1, 1, 128, 64))
    raw = generate(test, 0)
    given = quantise(test, raw)
    outputs = {
        name: np.asarray(array, np.float32) for name, array in reference(test, given).items()
    }
    outputs["dbeta"] = given["dy"][:-32].sum(0, dtype=np.float32)
    judged = judge(test, raw, given, outputs, arithmetic="ttnn")
    assert judged.outputs["dgamma"].explanation is Explanation.explained
    assert judged.outputs["dbeta"].explanation is Explanation.unexplained
