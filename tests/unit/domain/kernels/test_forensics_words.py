"""The words of the forensics.

They name the places of tiles, call a coefficient simple only within its error, and state doubt.
"""

from __future__ import annotations

import numpy as np
import pytest

from gonogo.kernels.layernorm.forensics.fit import fit_tiles
from gonogo.kernels.layernorm.forensics.words import Noun, close, describe, odd_rows, ordinal, place

S1 = Noun("s1", twice="is subtracted twice")


@pytest.mark.parametrize(
    ("members", "count", "words"),
    [
        (range(265), 265, "all 265 tiles"),
        ([0], 1, "the only tile"),
        ([0, 1], 2, "both tiles"),
        ([264], 265, "the last tile (265th of 265)"),
        ([0], 265, "the first tile (1st of 265)"),
        ([6], 265, "the 7th tile of 265"),
        ([263, 264], 265, "the last 2 tiles (264th and 265th of 265)"),
        ([262, 263, 264], 265, "the last 3 tiles (263rd to 265th of 265)"),
        ([0, 1, 2], 265, "the first 3 tiles (1st to 3rd of 265)"),
        ([6, 7, 8], 265, "the tiles 7 to 9 of 265"),
        ([2, 8, 11], 265, "the tiles 3, 9 and 12 of 265"),
        ([2, 5, 8, 11], 12, "every 3rd tile (3, 6, 9, ... of 12)"),
        ([1, 2, 4, 7, 11, 16, 22], 30, "7 tiles (2, 3, 5, ... of 30)"),
    ],
)
def test_places_are_counted_from_one(members: list[int], count: int, words: str) -> None:
    assert place(list(members), count) == words


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "22nd",
        "101st",
        "111th",
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (range(7, 256, 8), "the rows 8, 16, 24, ... (every 8th of 256)"),
        (
            [row for row in range(7, 256, 8) if row != 39],
            "the rows 8, 16, 24, ... (every 8th of 256)",
        ),
        (range(32, 64), "the rows 33 to 64 of 256"),
        ([4], "the 5th row of 256"),
        ([4, 9, 90], "the rows 5, 10 and 91 of 256"),
        ([1, 5, 6, 50, 90, 120, 200], "7 of 256 rows (2, 6, 7, ...)"),
    ],
)
def test_rows_that_do_not_follow(rows: list[int], words: str) -> None:
    assert odd_rows(list(rows), 256) == words


def test_a_truncated_reciprocal_is_no_finding_but_more_is() -> None:
    for right in (0.9925, 0.996, 1.0, 1.0035):
        assert close(right, 0.0002, 1.0, S1)
    assert not close(0.98, 0.0002, 1.0, S1)
    assert close(1.992, 0.0002, 2.0, S1)
    assert close(0.9, 0.02, 1.0, S1), "within six standard errors"


def words_of(coefficients: list[float], rows: int, noise: float = 0.01, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    partial = rng.normal(size=(rows, len(coefficients)))
    used = partial @ np.array(coefficients) + noise * rng.normal(size=rows)
    return describe(fit_tiles(partial, used, np.full(rows, noise)), S1).words


@pytest.mark.parametrize("rows", [16, 60])
@pytest.mark.parametrize(
    ("coefficients", "words"),
    [
        ([1.0] * 20, ""),
        ([2.0] * 20, "s1 is subtracted twice in all 20 tiles"),
        ([0.0] * 20, "s1 is missing in all 20 tiles"),
        ([-1.0] * 20, "s1 has the wrong sign in all 20 tiles"),
        ([0.5] * 20, "s1 is halved in all 20 tiles"),
        ([0.9] * 20, "s1 is 0.9 times what it should be in all 20 tiles"),
        ([0.0] * 19 + [1.0], "s1 sums only the last tile (20th of 20)"),
        ([0.0] * 18 + [1.0] * 2, "s1 sums only the last 2 tiles (19th and 20th of 20)"),
        ([1.0] * 6 + [0.0] + [1.0] * 13, "s1 misses the 7th tile of 20"),
        ([1.0] * 19 + [-1.0], "s1 has the wrong sign in the last tile (20th of 20)"),
        ([1.0] * 19 + [2.0], "s1 counts the last tile (20th of 20) twice"),
        ([1.0, 0.0] * 10, "s1 misses every 2nd tile (2, 4, 6, ... of 20)"),
        ([1.0] * 8 + [0.0] * 4 + [1.0] * 8, "s1 misses the tiles 9 to 12 of 20"),
    ],
)
def test_tiles_are_named_with_one_row_per_tile_and_with_fewer(
    rows: int, coefficients: list[float], words: str
) -> None:
    description = words_of(coefficients, rows)
    if words == "s1 misses every 2nd tile (2, 4, 6, ... of 20)":
        # equal numbers of tiles are summed and missed, so either sentence is true
        assert description in (words, "s1 sums only every 2nd tile (1, 3, 5, ... of 20)")
    else:
        assert description == (
            words.replace("0.9 times", description.split()[2] + " times")
            if "0.9 times" in words
            else words
        )


def test_several_kinds_of_wrong_tiles_need_a_row_per_tile() -> None:
    coefficients = [1.0] * 3 + [0.0] + [1.0] * 5 + [2.0] + [1.0] * 9 + [-1.0]
    description = words_of(coefficients, 60)
    assert description == (
        "s1 misses the 4th tile of 20 and counts the 10th tile of 20 twice "
        "and has the wrong sign in the last tile (20th of 20)"
    )
    assert "s1 is wrong" in words_of(
        [float(v) for v in np.random.default_rng(1).integers(0, 3, size=20)], 12
    )


def test_a_pattern_that_fits_no_hypothesis_is_not_guessed() -> None:
    description = words_of(
        [float(v) for v in np.random.default_rng(5).normal(1.0, 0.5, size=40)], 30
    )
    assert (
        "cannot tell which tiles: 30 rows carry only groups of 2 tiles, which do not fit"
        in description
    )


def test_rows_alike_tell_the_total_only() -> None:
    partial = np.ones((50, 20))
    finding = describe(fit_tiles(partial, np.full(50, 40.0), np.full(50, 0.01)), S1)
    assert (
        finding.words
        == "s1 is subtracted twice in total; cannot tell which tiles: the rows are alike"
    )
    assert finding.wrong
    assert not finding.can_tell


def test_nothing_to_sum_is_said() -> None:
    finding = describe(
        fit_tiles(np.zeros((50, 3)), np.zeros(50), np.full(50, 0.01)), S1, why="x is constant"
    )
    assert finding.words == "cannot tell s1: x is constant"
    assert not finding.wrong


def test_coefficients_and_errors_agree_with_plain_least_squares() -> None:
    rng = np.random.default_rng(3)
    partial = rng.normal(size=(200, 30))
    truth = rng.normal(size=30)
    sigma = rng.uniform(0.5, 2.0, size=200)
    used = partial @ truth + sigma * rng.normal(size=200)
    fit = fit_tiles(partial, used, sigma)
    weighted = partial / sigma[:, None]
    plain, *_ = np.linalg.lstsq(weighted, used / sigma, rcond=None)
    left = used / sigma - weighted @ plain
    errors = np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted)) * (left @ left) / 170)
    np.testing.assert_allclose(fit.coefficients, plain, rtol=1e-9)
    np.testing.assert_allclose(fit.errors, errors, rtol=1e-6)
