"""The terms of a budget, from a test's numerics and a build's arithmetic model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.kernels.layernorm.arithmetic.terms import (
    FIDELITY_LOSS,
    BackwardTerms,
    ForwardTerms,
    backward_terms,
    forward_terms,
    reciprocal_error,
    truncated_reciprocal,
)
from gonogo.numerics.formats import FORMATS, round_to
from gonogo.spec.arithmetic_names import BUDGETS, FP32_BUDGET
from numeric_cases import spec


def backward(arithmetic: str | None = "tt-train", n: int = 100, **numerics: Any) -> BackwardTerms:
    return backward_terms(spec(shape=(4, n), numerics=numerics), arithmetic)


def forward(
    arithmetic: str | None = "tt-train", n: int = 100, epsilon: float = 1e-6, **numerics: Any
) -> ForwardTerms:
    return forward_terms(
        spec("layernorm_fw", (4, n), numerics=numerics, epsilon=epsilon), arithmetic
    )


def differing(one: BackwardTerms | ForwardTerms, other: BackwardTerms | ForwardTerms) -> set[str]:
    a, b = asdict(one), asdict(other)
    return {name for name in a if a[name] != b[name]}


def test_the_reciprocal_is_truncated_to_bf16() -> None:
    assert reciprocal_error(8462) == pytest.approx(3.36e-3, rel=2e-3)  # the published figure
    for n in (1, 2, 64, 8192):
        assert truncated_reciprocal(n) == 1 / n
        assert reciprocal_error(n) == 0
    for n in range(1, 3000, 7):
        assert truncated_reciprocal(n) == float(round_to(1 / n, "bf16", "zero"))
        assert 0 <= reciprocal_error(n) < 2.0**-7


@pytest.mark.parametrize("fmt", ["fp32", "tf32", "fp16", "bf16"])
def test_an_output_is_rounded_once_to_its_format(fmt: str) -> None:
    for terms in (backward(output=fmt), forward(output=fmt)):
        assert terms.out == FORMATS[fmt].unit_roundoff
        assert not terms.out_block


def test_block_formats_count_from_the_largest_of_the_block() -> None:
    terms = backward(output="bfp8_b")
    assert terms.out_block
    assert terms.out == FORMATS["bfp8_b"].unit_roundoff == 2.0**-7


def test_tt_train_keeps_its_sums_in_fp32_and_reads_them_back_as_tf32() -> None:
    terms = backward(n=8462)
    assert (
        terms.stored_product,
        terms.stored_weighted,
        terms.stored_sum,
        terms.difference,
        terms.stored_partial,
    ) == (0, 0, 0, 0, 0)
    assert terms.read_sum == terms.read_lane == 2.0**-10
    assert terms.xhat == terms.stored_column == 2.0**-8
    assert terms.align == 2.0**-11
    assert terms.reciprocal == reciprocal_error(8462)
    assert (terms.accumulate, terms.additions) == (2.0**-24, 2 * 265)
    assert terms.scale == terms.product == terms.product_mean == terms.read == 0


def test_generic_stores_every_intermediate_and_allows_one_bf16_factor() -> None:
    terms = backward("generic", n=8462)
    assert {
        terms.stored_product,
        terms.stored_weighted,
        terms.stored_sum,
        terms.difference,
        terms.stored_partial,
    } == {2.0**-8}
    assert terms.scale == 2.0**-9
    assert terms.read_sum == terms.read_lane == 0


def test_no_arithmetic_is_generic() -> None:
    assert backward(None) == backward("generic")
    assert forward(None) == forward("generic")


@pytest.mark.parametrize("arithmetic", ["generic", "tt-train"])
@pytest.mark.parametrize("fidelity", ["lofi", "hifi2", "hifi3", "hifi4"])
def test_fidelity_costs_the_measured_loss_of_a_product(arithmetic: str, fidelity: str) -> None:
    for terms in (backward(arithmetic, fidelity=fidelity), forward(arithmetic, fidelity=fidelity)):
        assert (terms.product, terms.product_mean) == FIDELITY_LOSS[fidelity]


def test_a_16_bit_dst_costs_half_an_ulp_of_bf16_an_addition_and_a_truncation_a_product() -> None:
    wide, narrow = backward(), backward(accumulate="bf16")
    assert narrow.accumulate == 2.0**-8 > wide.accumulate
    assert narrow.product == wide.product + 2.0**-7
    assert differing(wide, narrow) == {
        "accumulate",
        "product",
        "product_mean",
        "difference",
        "scale",
    }
    assert forward(accumulate="bf16").accumulate == 2.0**-8


@pytest.mark.parametrize("arithmetic", ["generic", "tt-train"])
def test_wider_buffers_are_reread_as_tf32(arithmetic: str) -> None:
    assert backward(arithmetic, buffers="fp32").xhat == 2.0**-10
    assert backward(arithmetic).xhat == 2.0**-8
    assert forward(arithmetic, buffers="fp32").stored == 2.0**-10


def test_generic_with_everything_in_fp32_has_no_bf16_buffers_unless_they_are_asked_for() -> None:
    assert backward("generic", input="fp32", output="fp32").xhat == 2.0**-10
    assert (
        backward("tt-train", input="fp32", output="fp32").xhat == 2.0**-8
    )  # that kernel's buffers are bf16, whatever it is given


@pytest.mark.parametrize("tensor", ["x", "gamma"])
def test_an_fp32_input_is_truncated_as_it_is_read(tensor: str) -> None:
    for make in (backward, forward):
        assert make().read == 0
        assert make(input="fp32").read == make(input={tensor: "fp32"}).read == 2.0**-10


def test_only_a_kernel_that_makes_its_own_statistics_errs_in_them() -> None:
    assert backward().own_statistics is None
    own_terms = backward(statistics="own")
    assert own_terms.own_statistics == forward_terms(
        spec(numerics={"statistics": "own"}), "tt-train"
    )
    assert differing(own_terms, backward()) == {"own_statistics"}


def test_the_stored_epsilon_is_truncated_to_bf16() -> None:
    assert forward(epsilon=2.0**-20).epsilon_error == 0
    error = forward(epsilon=1e-6).epsilon_error
    assert error == abs(float(round_to(1e-6, "bf16", "zero")) - 1e-6)
    assert 0 < error < 1e-6 * 2.0**-7
    assert forward("fp32").epsilon_error == 0


def test_fp32_has_no_term_of_a_narrower_format() -> None:
    for terms in (backward("fp32", output="fp32"), forward("fp32", output="fp32")):
        assert (
            max(
                value
                for name, value in asdict(terms).items()
                if isinstance(value, float) and name != "additions"
            )
            <= 2.0**-22
        )


@pytest.mark.parametrize("arithmetic", ["tt_train", "FP32", "fpga"])
def test_an_unknown_arithmetic_is_a_field_error_that_names_the_known_ones(arithmetic: str) -> None:
    for make in (backward, forward):
        with pytest.raises(FieldError) as caught:
            make(arithmetic)
        assert caught.value.field == "build.arithmetic"
        assert caught.value.value == arithmetic
        assert all(known in str(caught.value) for known in (*BUDGETS, FP32_BUDGET))


def test_every_arithmetic_that_a_build_may_name_has_a_budget() -> None:
    for arithmetic in (*BUDGETS, FP32_BUDGET):
        assert backward(arithmetic)
        assert forward(arithmetic)
