"""Exact rows of LayerNorm's backward kernel: right ones agree, edits are found and named."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from exact_kernels import (
    BACKWARD_EDITS,
    edit_cases,
    exact_test,
    inputs_of,
    layernorm_gradients,
    middle_tile,
)
from gonogo.exact import scales
from gonogo.exact.judge import judge_exact
from gonogo.numerics.formats import round_to
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.verdicts import Explanation


@pytest.mark.parametrize("features", [1, 3, 33, 64, 1024, 8462])
@pytest.mark.parametrize(
    ("fmt", "stored"), [("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32")]
)
@pytest.mark.parametrize("statistics", ["given", "own"])
def test_right_kernels_have_no_mismatch(
    features: int, fmt: str, stored: str, statistics: str
) -> None:
    test = exact_test("layernorm_bw", 16, features, fmt=fmt, numerics={"statistics": statistics})
    given = inputs_of(test, 1)
    outputs = layernorm_gradients(test, given, stored=stored)
    for name, judgement in judge_exact(test, given, outputs).items():
        assert judgement.mismatches == 0, (name, judgement.words)
        assert judgement.explanation is Explanation.explained


def test_products_stored_in_16_bits_leave_a_small_s2_in_vernier_rows() -> None:
    test = exact_test("layernorm_bw", 64, 64)
    given = inputs_of(test)
    judgement = judge_exact(test, given, layernorm_gradients(test, given, stored="bf16"))["dx"]
    assert judgement.mismatches == 0
    assert judgement.words.endswith("differ in the last bits, as right kernels may")


def test_dgamma_without_the_mean_is_named() -> None:
    numerics = importlib.import_module(KERNELS["layernorm_bw"].numerics).NUMERICS["layernorm_bw"]
    test = exact_test("layernorm_bw", 40, 64)
    given = inputs_of(test)
    outputs = numerics.run(test, given, "mean-not-subtracted")
    judgement = judge_exact(test, given, outputs)["dgamma"]
    assert judgement.words.endswith("the mean is not subtracted")


@pytest.mark.parametrize(("features", "fmt", "edit"), edit_cases(BACKWARD_EDITS))
def test_every_edit_is_found_and_its_term_is_named(features: int, fmt: str, edit: str) -> None:
    test = exact_test("layernorm_bw", 40, features, fmt=fmt)
    given = inputs_of(test)
    name, term, words = BACKWARD_EDITS[edit]
    judgement = judge_exact(test, given, layernorm_gradients(test, given, edit))[name]
    assert judgement.explanation is Explanation.unexplained
    assert judgement.reading is not None
    assert judgement.reading.term == term, judgement.words
    assert words in judgement.words
    if edit.endswith("without a tile"):
        assert judgement.reading.tiles == (middle_tile(features).start // 32,)


def test_s1_and_s2_of_exact_rows_are_what_the_layout_says() -> None:
    test = exact_test("layernorm_bw", 16, 64)
    given = inputs_of(test)
    kind = scales.layout(test).kind
    product = given["dy"].astype(np.float64) * given["gamma"]
    xhat = (given["x"].astype(np.float64) - given["mean"][:, None]) * given["rstd"][:, None]
    s1, s2 = product.mean(axis=1), (product * xhat).mean(axis=1)
    exact = kind == scales.EXACT
    assert set(np.abs(s1[exact])) <= {1, 2, 3}
    assert set(np.abs(s2[exact])) == {2, 4}
    assert (s2[kind == scales.WIDE] == 0).all()
    dx = given["rstd"][:, None] * (product - s1[:, None] - xhat * s2[:, None])
    assert (dx[exact] == 0).mean() > 0.5


def test_the_emulated_wormhole_is_right_at_a_power_of_two() -> None:
    numerics = importlib.import_module(KERNELS["layernorm_bw"].numerics).NUMERICS["layernorm_bw"]
    for features in (64, 1024):
        test = exact_test("layernorm_bw", 40, features)
        given = inputs_of(test)
        for name, judgement in judge_exact(
            test, given, numerics.run(test, given, "correct")
        ).items():
            assert judgement.mismatches == 0, (name, judgement.words)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("double-subtract", "s1 is subtracted twice"),
        ("drop-s1", "s1 is not subtracted"),
        ("last-two-tiles", "s1 sums only the last 2 of 32 tiles"),
        ("last-block-only", "s2 sums only the last 2 of 32 tiles"),
        ("tile-missing", "s1 leaves out tile 17 of 32"),
        ("gamma-shifted-tile", "gamma is read one tile (32 columns) too early"),
    ],
)
def test_the_emulators_mutants_are_named(build: str, words: str) -> None:
    numerics = importlib.import_module(KERNELS["layernorm_bw"].numerics).NUMERICS["layernorm_bw"]
    test = exact_test("layernorm_bw", 40, 1024)
    given = inputs_of(test)
    assert words in judge_exact(test, given, numerics.run(test, given, build))["dx"].words


def test_a_16_bit_accumulator_that_adds_rows_in_order_is_right() -> None:
    test = exact_test("layernorm_bw", 96, 256)
    given = inputs_of(test)
    total = np.zeros(256, dtype=np.float32)
    for row in given["dy"]:
        total = round_to(total + row, "bf16")
    judgement = judge_exact(test, given, {"dbeta": total})["dbeta"]
    assert judgement.explanation is Explanation.explained
    assert judgement.words == "right, with a 16-bit accumulator, rows in order"
