"""Exact rows of forward kernels: right ones agree, and every edit is found and named."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from exact_kernels import (
    FORWARD_EDITS,
    edit_cases,
    edited_layernorm,
    exact_test,
    inputs_of,
    layernorm,
    middle_tile,
)
from gonogo.exact.judge import judge_exact
from gonogo.numerics.formats import round_to
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.verdicts import Explanation

SIZES = (64, 1024, 8462)


@pytest.mark.parametrize("features", [1, 3, 33, *SIZES])
@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("form", ["centered", "moments", "affine", "welford"])
def test_right_kernels_have_no_mismatch(features: int, fmt: str, form: str) -> None:
    test = exact_test("layernorm_fw", 16, features, fmt=fmt)
    given = inputs_of(test, 1)
    for lanes, reciprocal in ((1, False), (8, True), (32, False)):
        if lanes == 1 and features > 1024:
            continue
        outputs = layernorm(test, given, lanes=lanes, form=form, reciprocal=reciprocal)
        judgement = judge_exact(test, given, outputs)["y"]
        assert judgement.mismatches == 0, judgement.words
        assert judgement.explanation is Explanation.explained


@pytest.mark.parametrize("features", [64, 1024])
def test_fp32_bits_are_equal_for_a_power_of_two(features: int) -> None:
    test = exact_test("layernorm_fw", 16, features, fmt="fp32")
    given = inputs_of(test)
    judgement = judge_exact(test, given, layernorm(test, given, reciprocal=True))["y"]
    assert (judgement.unequal, judgement.words) == (
        0,
        f"all {14 * features} equal the exact result",
    )


@pytest.mark.parametrize("features", SIZES)
@pytest.mark.parametrize("kernel", ["layernorm_fw", "rmsnorm_fw"])
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_kernels_that_store_xhat_in_16_bits_have_no_mismatch(
    kernel: str, features: int, fmt: str
) -> None:
    test = exact_test(kernel, 16, features, fmt=fmt)
    given = inputs_of(test)
    judgement = judge_exact(test, given, layernorm(test, given, stored=fmt))["y"]
    assert judgement.mismatches == 0, judgement.words


@pytest.mark.parametrize(("features", "fmt", "edit"), edit_cases(FORWARD_EDITS))
def test_every_edit_is_found_and_its_term_is_named(features: int, fmt: str, edit: str) -> None:
    test = exact_test("layernorm_fw", 24, features, fmt=fmt)
    given = inputs_of(test)
    judgement = judge_exact(test, given, edited_layernorm(test, given, edit))["y"]
    term, words = FORWARD_EDITS[edit]
    assert judgement.explanation is Explanation.unexplained
    assert judgement.reading is not None
    assert judgement.reading.term == term, judgement.words
    assert words in judgement.words
    if edit.endswith(("without a tile", "tile of zeros")):
        assert judgement.reading.tiles == (middle_tile(features).start // 32,)
    if term == "factor":
        expected = float(edit.split()[1]) - 1
        assert judgement.reading.factor is not None
        assert judgement.reading.factor - 1 == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize(
    "edit", ["mean without a tile", "variance without a tile", "factor 1.00001", "unbiased"]
)
def test_the_tile_is_named_among_265(edit: str) -> None:
    test = exact_test("layernorm_fw", 24, 8462)
    given = inputs_of(test)
    judgement = judge_exact(test, given, edited_layernorm(test, given, edit))["y"]
    assert judgement.reading is not None
    assert judgement.reading.term == FORWARD_EDITS[edit][0], judgement.words
    if "tile" in edit:
        assert "tile 133 of 265" in judgement.words


@pytest.mark.parametrize("kernel", ["layernorm_fw", "rmsnorm_fw"])
def test_the_emulated_wormhole_is_right_at_a_power_of_two(kernel: str) -> None:
    numerics = importlib.import_module(KERNELS[kernel].numerics).NUMERICS[kernel]
    for features in (64, 1024):
        test = exact_test(kernel, 32, features)
        given = inputs_of(test)
        for name, judgement in judge_exact(
            test, given, numerics.run(test, given, "correct")
        ).items():
            assert judgement.mismatches == 0, (name, judgement.words)


def test_an_aligned_addition_does_not_hide_a_wrong_epsilon() -> None:
    numerics = importlib.import_module(KERNELS["layernorm_fw"].numerics).NUMERICS["layernorm_fw"]
    test = exact_test("layernorm_fw", 32, 64)
    given = inputs_of(test)
    judgement = judge_exact(test, given, numerics.run(test, given, "wrong-epsilon"))["y"]
    assert judgement.reading is not None
    assert judgement.reading.term == "epsilon"
    assert judgement.reading.factor == pytest.approx(1000, rel=0.02)


def test_a_factor_is_not_taken_for_an_aligned_addition() -> None:
    test = exact_test("layernorm_fw", 16, 64)
    given = inputs_of(test)
    judgement = judge_exact(test, given, edited_layernorm(test, given, "factor 1.00001"))["y"]
    assert judgement.explanation is Explanation.unexplained


def test_group_norm_has_a_gamma_for_each_channel() -> None:
    test = exact_test("groupnorm_fw", 4, 32, 8, 9, parameters={"num_groups": 8})
    given = inputs_of(test)
    x = given["x"].astype(np.float32)
    centered = x - x.mean(axis=1, keepdims=True)
    variance = (centered**2).mean(axis=1, keepdims=True)
    xhat = (centered / np.sqrt(variance + np.float32(1e-6))).reshape(4, 32, 72)
    gamma, beta = given["gamma"][:, None], given["beta"][:, None]
    right = round_to((xhat * gamma + beta).reshape(32, -1), "bf16")
    assert judge_exact(test, given, {"y": right})["y"].mismatches == 0
    early = round_to((xhat * np.roll(gamma, 1, axis=0) + beta).reshape(32, -1), "bf16")
    judgement = judge_exact(test, given, {"y": early})["y"]
    assert "gamma is read one column too early" in judgement.words


def test_rms_norm_names_a_mean_that_is_subtracted_and_a_missing_tile() -> None:
    test = exact_test("rmsnorm_fw", 24, 1000)
    given = inputs_of(test)
    x, gamma = given["x"].astype(np.float64), given["gamma"].astype(np.float64)
    centered = x - x.mean(axis=1, keepdims=True)
    y = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-6) * gamma
    judgement = judge_exact(test, given, {"y": round_to(y, "bf16")})["y"]
    assert "the mean is subtracted" in judgement.words
    kept_columns = np.ones(1000, dtype=bool)
    kept_columns[middle_tile(1000)] = False
    mean_square = (x[:, kept_columns] ** 2).sum(axis=1, keepdims=True) / 1000
    y = x / np.sqrt(mean_square + 1e-6) * gamma
    judgement = judge_exact(test, given, {"y": round_to(y, "bf16")})["y"]
    assert "the mean square leaves out tile 17 of 32" in judgement.words


def test_a_wrong_mean_output_is_read_directly() -> None:
    test = exact_test("layernorm_fw", 16, 64, fmt="fp32")
    given = inputs_of(test)
    x = given["x"].astype(np.float64)
    mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-6)
    outputs = {"mean": mean.astype(np.float32), "rstd": rstd.astype(np.float32)}
    assert {item.mismatches for item in judge_exact(test, given, outputs).values()} == {0}
    wrong = {"mean": outputs["mean"] * np.float32(1.001)}
    judgement = judge_exact(test, given, wrong)["mean"]
    assert judgement.words.endswith("by a factor of 1.001")
    assert judgement.comparison.term == "mean"


def test_a_nan_is_a_mismatch_and_names_its_tile() -> None:
    test = exact_test("layernorm_fw", 16, 1024)
    given = inputs_of(test)
    y = layernorm(test, given)["y"]
    y[:, 64:96] = np.nan
    judgement = judge_exact(test, given, {"y": y})["y"]
    assert judgement.reading is not None
    assert (judgement.reading.term, judgement.reading.tiles) == ("not finite", (2,))


def test_an_output_off_its_formats_grid_is_a_mismatch() -> None:
    test = exact_test("layernorm_fw", 8, 64)
    given = inputs_of(test)
    y = layernorm(test, given)["y"]
    y[0, 0] *= np.float32(1 + 2**-12)
    assert judge_exact(test, given, {"y": y})["y"].mismatches == 1
