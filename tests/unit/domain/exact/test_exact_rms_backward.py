"""Exact rows of RMSNorm's backward kernel: right ones agree, edits are found and named."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from exact_kernels import (
    RMS_BACKWARD_EDITS,
    edit_cases,
    exact_test,
    inputs_of,
    middle_tile,
    rms_norm_gradients,
)
from gonogo.exact import scales, vernier
from gonogo.exact.expected_backward import IN_HALVES, PARTIAL_SUMS
from gonogo.exact.judge import judge_exact
from gonogo.numerics.formats import round_to
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation

NUMERICS = importlib.import_module(KERNELS["rmsnorm_bw"].numerics).NUMERICS["rmsnorm_bw"]
FORMATS = [("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp16", "fp16")]


def rms_test(rows: int, features: int, fmt: str = "bf16", statistics: str = "own") -> TestSpec:
    return exact_test("rmsnorm_bw", rows, features, fmt=fmt, numerics={"statistics": statistics})


@pytest.mark.parametrize("features", [1, 3, 33, 64, 1024, 8462])
@pytest.mark.parametrize(("fmt", "stored"), FORMATS)
@pytest.mark.parametrize("statistics", ["given", "own"])
def test_right_kernels_have_no_mismatch(
    features: int, fmt: str, stored: str, statistics: str
) -> None:
    test = rms_test(16, features, fmt, statistics)
    given = inputs_of(test, 1)
    for form in ("sums", "cubed"):
        outputs = rms_norm_gradients(test, given, stored=stored, form=form)
        for name, judgement in judge_exact(test, given, outputs).items():
            assert judgement.mismatches == 0, (name, judgement.words)
            assert judgement.explanation is Explanation.explained


def test_fp32_bits_are_equal_for_a_power_of_two() -> None:
    test = rms_test(16, 1024, "fp32", "given")
    given = inputs_of(test)
    for name, judgement in judge_exact(test, given, rms_norm_gradients(test, given)).items():
        assert (judgement.unequal, judgement.mismatches) == (0, 0), name


@pytest.mark.parametrize(("features", "fmt", "edit"), edit_cases(RMS_BACKWARD_EDITS))
def test_every_edit_is_found_and_its_term_is_named(features: int, fmt: str, edit: str) -> None:
    test = rms_test(40, features, fmt)
    given = inputs_of(test)
    name, term, words = RMS_BACKWARD_EDITS[edit]
    judgement = judge_exact(test, given, rms_norm_gradients(test, given, edit))[name]
    assert judgement.explanation is Explanation.unexplained
    reading = judgement.reading
    assert reading is not None
    assert reading.term == term, judgement.words
    assert words in judgement.words
    if edit.endswith("a tile"):
        assert reading.tiles == (middle_tile(features).start // 32,)
    if "times 1." in edit:
        assert reading.factor is not None
        factor_off = float(edit.split()[-1]) - 1
        # in 16 bits a factor on dx is known to lie between two distances of the vernier
        near = {"fp32": 0.02, "bf16": 0.6, "fp16": 0.6}[fmt]
        if factor_off > 1e-4 or fmt == "fp32":
            assert reading.factor - 1 == pytest.approx(factor_off, rel=near)
    if edit == "epsilon times 20":
        assert reading.factor == pytest.approx(20, rel=0.03)


def test_a_vernier_row_has_one_rounding_at_a_chosen_distance_from_a_tie() -> None:
    test = rms_test(32, 64, "bf16", "given")
    given = inputs_of(test)
    wide = scales.layout(test).kind == scales.WIDE
    rstd = given["rstd"].astype(np.float64)[:, None]
    xhat = given["x"].astype(np.float64) * rstd
    product = given["dy"].astype(np.float64) * given["gamma"]
    assert wide.sum() == 8
    assert set(np.abs(xhat[wide]).ravel()) == {1.0}
    s2 = (product * xhat).mean(axis=1, keepdims=True)
    rest = (product - xhat * s2)[wide]
    distances = vernier.tie_distance(rest, 8)[np.abs(rest) > 1]
    assert distances.size > 8 * 20
    least = {float(np.min(vernier.tie_distance(row[np.abs(row) > 1], 8))) for row in rest}
    assert min(least) == vernier.DISTANCE
    assert len(least) == 8, "each vernier row has another distance"


def test_s2_of_exact_rows_is_a_power_of_two_and_most_outputs_are_0() -> None:
    test = rms_test(15, 64, "bf16", "given")
    given = inputs_of(test)
    exact = scales.layout(test).kind == scales.EXACT
    xhat = given["x"].astype(np.float64) * given["rstd"].astype(np.float64)[:, None]
    product = given["dy"].astype(np.float64) * given["gamma"]
    s2 = (product * xhat).mean(axis=1)
    assert set(s2[exact]) == {2, 4, -4}
    rest = product - xhat * s2[:, None]
    assert (rest[exact] == 0).mean() > 0.5
    assert (np.abs(product[exact].mean(axis=1)) > 0.1).mean() > 0.5, "a wrong s1 would show"


def test_half_of_the_columns_of_dgamma_are_free_of_epsilon() -> None:
    test = rms_test(16, 64)
    given = inputs_of(test)
    rows = scales.layout(test).kind == scales.EPSILON
    silent = (given["dy"][rows] == 0).all(axis=0)
    assert 16 < silent.sum() < 48
    assert (given["dy"][rows][:, ~silent] != 0).any(axis=0).mean() > 0.8


@pytest.mark.parametrize("statistics", ["given", "own"])
def test_the_emulated_wormhole_is_right_at_a_power_of_two(statistics: str) -> None:
    for features in (64, 1024):
        test = rms_test(40, features, "bf16", statistics)
        given = inputs_of(test)
        judgements = judge_exact(test, given, NUMERICS.run(test, given, "correct"))
        assert judgements["dx"].words == f"right, with {PARTIAL_SUMS}"
        assert {item.mismatches for item in judgements.values()} == {0}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("drop-s2", "s2 is not subtracted"),
        ("s2-sign", "s2 is added"),
        ("last-block-only", "s2 sums only the last 2 of 32 tiles"),
        ("tile-missing", "s2 leaves out tile 17 of 32"),
        ("last-tile-only", "s2 sums only tile 32 of 32"),
        ("stale-partial", "s2 is that of the previous row, in rows 8, 16, 24, 32"),
        ("mean-subtracted", "the mean is subtracted"),
        ("wrong-epsilon", "epsilon has a factor of 9"),
        ("rstd-off-1e-3", "dx has a factor of between 1 + 0.00094 and 1 + 0.0016"),
        ("gamma-shifted-tile", "gamma is read one tile (32 columns) too early"),
        ("gamma-missing", "gamma is missing"),
        ("nan-tile", "1024 outputs are NaN or infinite, in tile 16 of 32"),
    ],
)
def test_the_emulators_mutants_are_named(build: str, words: str) -> None:
    test = rms_test(40, 1024)
    given = inputs_of(test)
    assert words in judge_exact(test, given, NUMERICS.run(test, given, build))["dx"].words


def test_a_kernel_that_is_given_its_rstd_is_not_accused_of_a_wrong_variance() -> None:
    test = rms_test(40, 64, "bf16", "given")
    given = inputs_of(test)
    wrong = dict(given)
    wrong["rstd"] = (given["rstd"] * np.sqrt(63 / 64)).astype(np.float32)
    judgement = judge_exact(test, given, rms_norm_gradients(test, wrong))["dx"]
    assert judgement.reading is not None
    assert judgement.reading.term == "rstd", judgement.words
    assert judgement.reading.factor == pytest.approx(np.sqrt(63 / 64), abs=1e-3)


@pytest.mark.parametrize("features", [64, 1024])
def test_a_gradient_of_x_squared_that_is_added_in_two_halves_is_right(features: int) -> None:
    test = rms_test(40, features, "bf16", "given")
    given = inputs_of(test)
    rstd = given["rstd"][:, None]
    product = given["dy"] * given["gamma"]
    s2 = (product * given["x"] * rstd).mean(axis=1, keepdims=True)
    half = round_to(given["x"] * rstd * rstd * s2 / 2, "bf16")
    dx = round_to(round_to(round_to(product * rstd, "bf16") - half, "bf16") - half, "bf16")
    judgement = judge_exact(test, given, {"dx": dx})["dx"]
    assert judgement.words == f"right, with {IN_HALVES}"
    dx[2] = np.nextafter(dx[2], np.inf, dtype=np.float32)
    assert judge_exact(test, given, {"dx": dx})["dx"].mismatches > 0


@pytest.mark.parametrize(("window", "order"), [(96, "rows in order"), (32, "windows of 32 rows")])
@pytest.mark.parametrize("summed_rows", [96, 95])
def test_a_16_bit_accumulator_in_a_known_order_is_right(
    window: int, order: str, summed_rows: int
) -> None:
    test = rms_test(96, 256)
    given = inputs_of(test)
    x, dy = given["x"], given["dy"]
    rstd = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float32(test.epsilon))
    terms = round_to(dy * round_to(x * rstd, "bf16"), "bf16")
    total = np.zeros(256, dtype=np.float32)
    for start in range(0, 96, window):
        part = np.zeros(256, dtype=np.float32)
        for row in terms[start : min(start + window, summed_rows)]:
            part = round_to(part + row, "bf16")
        total = round_to(total + part, "bf16")
    judgement = judge_exact(test, given, {"dgamma": total})["dgamma"]
    if summed_rows == 96:
        assert judgement.words == f"right, with a 16-bit accumulator, {order}"
    else:
        assert judgement.explanation is Explanation.unexplained
