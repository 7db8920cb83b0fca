"""The forensics of layernorm_bw.

They describe named defects and unknown wrong kernels in words, and they call right kernels right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.layernorm import emulation
from gonogo.kernels.layernorm.forensics import RIGHT, Diagnosis, Term, diagnose
from gonogo.spec.diagnoses import PARTLY
from gonogo.spec.test_spec import TestSpec

Arrays = dict[str, NDArray[np.float32]]


def case_of(rows: int, features: int, seed: int = 0, **fields: Any) -> tuple[TestSpec, Arrays]:
    """Return a test of that shape, and the device's inputs for it."""
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [rows, features], **fields})
    return test, quantise(test, generate(test, seed))


def emulated(build: str, rows: int, features: int, seed: int = 0, **fields: Any) -> Diagnosis:
    """Return the diagnosis of an emulated build."""
    test, given = case_of(rows, features, seed, **fields)
    return diagnose(test, given, emulation.run(test, given, build))


def term_named(diagnosis: Diagnosis, name: str) -> Term:
    return next(term for term in diagnosis.terms if term.name == name)


def known(values: tuple[float | None, ...]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values])


LAST_TWO = "the last 2 tiles (31st and 32nd of 32)"
WORDS = {
    "correct": RIGHT,
    "last-two-tiles": f"s1 sums only {LAST_TWO}",
    "double-subtract": "s1 is subtracted twice in all 32 tiles",
    "last-block-only": f"s2 sums only {LAST_TWO}",
    "tt-train-2025": f"s1 is subtracted twice in all 32 tiles; s2 sums only {LAST_TWO}",
    "drop-s1": "s1 is missing in all 32 tiles",
    "tile-missing": "s1 misses the 17th tile of 32",
    "gamma-shifted-tile": "gamma is that of the tile before in all 32 tiles",
    "mean-not-subtracted": "the mean is not subtracted from x",
    "dgamma-last-row-tile-missing": "dgamma misses the last row tile (5th of 5)",
    "rstd-off-1e-3": "dx is 1.001 times what it should be (rstd or gamma)",
    "power-of-two-outliers": "4 isolated values of dx are off by a power of two",
    "nan-tile": (
        "1024 of 163840 values of dx are not finite, "
        "in the 3rd row tile of 5, the 16th column tile of 32"
    ),
}


@pytest.mark.parametrize("build", WORDS)
def test_every_named_defect_is_told_in_words(build: str) -> None:
    assert emulated(build, 160, 1024).words == WORDS[build]


@pytest.mark.parametrize("rows", [24, 64])
@pytest.mark.parametrize(
    "build", ["correct", "tt-train-2025", "tile-missing", "drop-s1", "gamma-shifted-tile"]
)
def test_fewer_rows_than_tiles_tell_simple_patterns_all_the_same(build: str, rows: int) -> None:
    words = emulated(build, rows, 2048 + 40).words
    assert (
        words
        == {
            "correct": RIGHT,
            "tt-train-2025": (
                "s1 is subtracted twice in all 66 tiles; "
                "s2 sums only the last 3 tiles (64th to 66th of 66)"
            ),
            "tile-missing": "s1 misses the 34th tile of 66",
            "drop-s1": "s1 is missing in all 66 tiles",
            "gamma-shifted-tile": "gamma is that of the tile before in all 66 tiles",
        }[build]
    )


def test_a_masked_last_tile_that_is_not_masked_is_named() -> None:
    where = "(24 columns of the 32nd tile)"
    assert emulated("mask-missing", 160, 1000).words == (
        f"s1 counts the padding of the last tile {where}; "
        f"s2 counts the padding of the last tile {where}"
    )


def test_lost_precision_is_told_from_a_missing_term() -> None:
    diagnosis = emulated("bf16-accumulate", 160, 2048)
    assert "s1 scatters" in diagnosis.words
    assert "precision, not a term" in diagnosis.words
    assert "misses" not in diagnosis.words


def test_coefficients_measure_even_the_truncated_reciprocal() -> None:
    rows, features = 160, 1058
    reciprocal = np.float32(1 / features)
    truncated = (reciprocal.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    expected = float(truncated) * features
    assert expected < 0.9975
    for build, times in (("correct", 1), ("double-subtract", 2)):
        s1 = term_named(emulated(build, rows, features), "s1")
        values, errors = known(s1.coefficients), known(s1.errors)
        assert s1.group == 1
        assert len(values) == 34
        assert 1e-4 < np.median(errors) < 2e-3
        # the lanes and the sum are read back as TF32; each of them loses up to 2^-10
        assert -times * 2.0**-9 < np.mean(values) - times * expected < times * 2.0**-11
        assert np.max(np.abs(values - np.mean(values)) / errors) < 5.5


def test_one_tile_has_the_one_coefficient() -> None:
    for features in (1, 2, 20, 32):
        assert (
            emulated("double-subtract", 64, features).words
            == "s1 is subtracted twice in the only tile"
        )
    for build in ("correct", "last-two-tiles", "last-block-only"):
        for features in (1, 20, 33):
            assert emulated(build, 64, features).words == RIGHT, (
                "the defect can't show at these widths"
            )


def test_constant_inputs_tell_the_total_and_say_why_no_more() -> None:
    inputs = {"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1}
    diagnosis = emulated("double-subtract", 64, 2048, inputs=inputs)
    assert (
        diagnosis.words
        == "s1 is subtracted twice in total; cannot tell which tiles: x and dy are constant"
    )
    assert not diagnosis.can_tell
    diagnosis = emulated("correct", 64, 2048, inputs=inputs)
    assert diagnosis.words.startswith(f"{PARTLY}; cannot tell which tiles: x and dy are constant")
    diagnosis = emulated(
        "tt-train-2025", 160, 1024, inputs={"x": {"regime": "constant", "value": 0.5}}
    )
    assert diagnosis.words == "s1 is subtracted twice in all 32 tiles"
    assert term_named(diagnosis, "s2").words == "cannot tell s2: x is constant"


def test_one_row_tells_the_total_only() -> None:
    diagnosis = emulated("double-subtract", 1, 8462)
    assert (
        diagnosis.words
        == "s1 is subtracted twice in total; cannot tell which tiles: there is only one row"
    )
    assert emulated("correct", 1, 8462).words == RIGHT


def test_few_rows_do_not_guess() -> None:
    diagnosis = emulated("last-block-only", 4, 8462)
    assert diagnosis.words == "s2 is wrong, by no one factor; cannot tell which tiles: too few rows"
    assert not diagnosis.can_tell


@pytest.mark.parametrize(
    ("numerics", "inputs"),
    [
        ({}, {"regime": "normal", "mean": 5, "std": 1}),
        ({}, {"dy": {"regime": "offset", "offset": 10, "std": 1}}),
        ({}, {"x": {"regime": "ramp", "low": -1, "high": 1}}),
        ({}, {"x": {"regime": "hot_tile", "tile": 1, "value": 100}}),
        ({"fidelity": "lofi"}, {}),
        ({"fidelity": "hifi2"}, {"dy": {"regime": "offset", "offset": 10, "std": 1}}),
        ({"accumulate": "bf16"}, {}),
        ({"input": "fp32", "output": "fp32"}, {}),
        ({"input": "bfp8_b", "output": "bfp8_b"}, {}),
        ({"srcb": "bf16"}, {}),
        ({"statistics": "own"}, {}),
    ],
)
def test_right_kernels_of_other_numerics_and_regimes_have_no_wrong_term(
    numerics: dict[str, Any], inputs: dict[str, Any]
) -> None:
    for rows, features in ((160, 1024), (33, 100)):
        assert emulated("correct", rows, features, numerics=numerics, inputs=inputs).words == RIGHT


# Unknown wrong kernels: any logic in float64, with one rounding to bf16 at the end.

Change = Callable[
    [NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]
]


def built(change: Change, rows: int = 256, features: int = 2080, scale: float = 1.0) -> Diagnosis:
    """Return the diagnosis of a dx whose s1 and s2 come from `change(P, P x^)`.

    `change` returns the means over the last axis as the wrong kernel makes them.
    """
    test, given = case_of(rows, features)
    x, dy, gamma = (given[name].astype(np.float64) for name in ("x", "dy", "gamma"))
    mean, rstd = (given[name].astype(np.float64)[:, None] for name in ("mean", "rstd"))
    z, p = (x - mean) * rstd, dy * gamma
    s1, s2 = change(p, p * z)
    dx = scale * rstd * (p - s1[:, None] - z * s2[:, None])
    return diagnose(test, given, {"dx": dx.astype(ml_dtypes.bfloat16).astype(np.float32)})


def means(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return p.mean(axis=1), pz.mean(axis=1)


def flipped(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pz = pz.copy()
    pz[:, 2048:] *= -1
    return means(p, pz)


def stale(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    s1, s2 = means(p, pz)
    s2[7::8] = s2[6::8]
    return s1, s2


def zeroed(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    s1, s2 = means(p, pz)
    s1[32:64] = 0
    return s1, s2


def odd_tiles(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p = p.copy()
    p[:, 224:256] *= 2
    p[:, 96:128] = 0
    return means(p, pz)


def offset(
    p: NDArray[np.float64], pz: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    s1, s2 = means(p, pz)
    return s1 + 0.25, s2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (means, RIGHT),
        (flipped, "s2 has the wrong sign in the last tile (65th of 65)"),
        (stale, "s2 of the rows 8, 16, 24, ... (every 8th of 256) is that of the row before"),
        (zeroed, "s1 is missing in the rows 33 to 64 of 256"),
        (odd_tiles, "s1 misses the 4th tile of 65 and counts the 8th tile of 65 twice"),
        (offset, "s1 starts from 0.25 in every row"),
    ],
)
@pytest.mark.parametrize("features", [2080, 2070])
def test_unknown_wrong_kernels_are_described(change: Change, words: str, features: int) -> None:
    assert built(change, features=features).words == words


def test_stale_rows_are_listed_and_left_out_of_the_coefficients() -> None:
    s2 = term_named(built(stale), "s2")
    assert set(range(8, 257, 8)) >= set(s2.rows)
    assert len(s2.rows) >= 28
    np.testing.assert_allclose(known(s2.coefficients), 1.0, atol=0.02)


def test_a_factor_of_the_whole_output_is_told_apart_from_its_sums() -> None:
    assert built(means, scale=1.5).words == "dx is 1.5 times what it should be (rstd or gamma)"
    assert built(flipped, scale=0.5).words == (
        "dx is 0.5 times what it should be (rstd or gamma); "
        "s2 has the wrong sign in the last tile (65th of 65)"
    )


def test_gamma_wrong_in_one_tile_is_found() -> None:
    test, given = case_of(160, 1024)
    wrong = dict(given, gamma=given["gamma"].copy())
    wrong["gamma"][224:256] *= 2
    diagnosis = diagnose(test, given, emulation.run(test, wrong, "correct"))
    assert diagnosis.words == "gamma is 2 times what it should be in the 8th tile of 32"
    wrong["gamma"][224:256] = 1
    assert (
        diagnose(test, given, emulation.run(test, wrong, "correct")).words
        == "gamma is missing (1 in its place) in the 8th tile of 32"
    )


def test_dbeta_wrong_in_one_column_tile_is_found() -> None:
    test, given = case_of(160, 1024)
    outputs = emulation.run(test, given, "correct")
    outputs["dbeta"][64:96] *= 2
    assert diagnose(test, given, outputs).words == "dbeta differs in the 3rd column tile of 32"


def test_any_subset_of_outputs_will_do_and_the_json_is_plain() -> None:
    test, given = case_of(64, 256)
    outputs = emulation.run(test, given, "tt-train-2025")
    assert {term.output for term in diagnose(test, given, {"dbeta": outputs["dbeta"]}).terms} == {
        "dbeta"
    }
    diagnosis = diagnose(test, given, outputs)
    written = diagnosis.to_json()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written["words"] == diagnosis.words
    assert written["can_tell"] is True
    s1 = next(term for term in written["terms"] if term["name"] == "s1")
    assert s1["tiles"] == 8
    assert s1["group"] == 1
    assert len(s1["coefficients"]) == len(s1["errors"]) == 8
    assert written["residuals"]["dx"]["before"] > 5 * written["residuals"]["dx"]["after"]


def test_a_wrong_shape_and_no_outputs_are_answered() -> None:
    test, given = case_of(8, 64)
    diagnosis = diagnose(test, given, {"dx": np.zeros((64, 8), np.float32)})
    assert diagnosis.words == "cannot tell dx: its shape is [64, 8]"
    assert not diagnosis.can_tell
    assert diagnose(test, given, {}).words == "cannot tell: there are no outputs"
