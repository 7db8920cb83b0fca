"""Guards and floors of the forensics: from which row, tile, value or size on it says something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import fit, outliers, patterns
from gonogo.kernels.layernorm.forensics.fit import TileFit, fit_tiles, solve
from gonogo.kernels.layernorm.forensics.precision import (
    BLOCK,
    COARSE_BUFFERS,
    HALF_ULP,
    NARROW_SCALE,
    NARROW_SUM,
    OWN_MEAN,
    OWN_SCALE,
    PRODUCT_LOSS,
    RMS,
    SCALE,
    STORED,
    SUM_LOSSES,
    TF32_SCALE,
    Precision,
    bf16_grid,
)
from gonogo.kernels.layernorm.forensics.words import Noun
from numeric_cases import spec

NOISE = 0.01
ANY = [float(value) for value in np.random.default_rng(5).normal(1.0, 0.5, size=40)]


def fitted(coefficients: list[float], rows: int, wrong_rows: int = 0, size: float = 1.0) -> TileFit:
    """Fit random partial sums; the first rows used none of them."""
    rng = np.random.default_rng(0)
    tiles = len(coefficients)
    partial = size * (
        rng.uniform(1, 2, (rows, 1)) if tiles == 1 else rng.normal(size=(rows, tiles))
    )
    used = partial @ np.array(coefficients)
    used[:wrong_rows] = 0.0
    used += NOISE * rng.normal(size=rows)
    return fit_tiles(partial, used, np.full(rows, NOISE))


@pytest.mark.parametrize(
    ("rows", "coefficients", "method", "group", "reason"),
    [
        (28, [1.0] * 20, "tiles", 1, ""),
        (27, [1.0] * 20, "pattern", 1, ""),
        (5, [1.0] * 20, "pattern", 1, ""),
        (4, [1.0] * 20, "total", 20, "too few rows"),
        (1, [1.0] * 20, "total", 20, "there is only one row"),
        (28, ANY, "groups", 2, "fewer rows than tiles"),
        (27, ANY, "groups", 4, "fewer rows than tiles"),
        (17, ANY, "groups", 8, "fewer rows than tiles"),
        (10, ANY, "groups", 32, "fewer rows than tiles"),
        (9, ANY, "total", 40, "too few rows"),
        (12, [1.0] * fit.MAX_GROUPS, "pattern", 1, ""),
        (12, [1.0] * (fit.MAX_GROUPS + 1), "pattern", 2, ""),
    ],
)
def test_as_many_coefficients_as_the_rows_allow(
    rows: int, coefficients: list[float], method: str, group: int, reason: str
) -> None:
    result = fitted(coefficients, rows)
    assert (result.method, result.group, result.reason) == (method, group, reason)
    assert result.rows == rows
    assert result.tiles == len(coefficients)
    assert result.uniform is (method in {"total", "pattern"} or coefficients[0] == 1.0)


def test_groups_of_neighbors_cover_all_tiles_in_order() -> None:
    pairs = [float(value) for value in np.random.default_rng(6).normal(1.0, 0.5, size=10)]
    result = fitted([value for value in pairs for _ in range(2)][:19], 20)
    assert result.method == "groups"
    assert result.starts.tolist() == list(range(0, 19, 2))
    np.testing.assert_allclose(result.coefficients, pairs, atol=0.05)
    assert (result.uniform, result.reason) == (False, "")
    assert result.scatter < fit.GOOD_SCATTER


@pytest.mark.parametrize(
    ("scatter", "off", "odd"),
    [
        (1.4, 1e4, 5),
        (1.85, 1e4, 0),  # the others don't agree
        (1.4, 17.0, 5),
        (1.4, 13.0, 0),  # so near they don't stand apart
    ],
)
def test_a_majority_agrees_within_its_rounding(scatter: float, off: float, odd: int) -> None:
    whole, noise = np.full(40, 1e4), scatter * np.resize([1.0, -1.0], 40)
    used = whole + noise
    used[:5] = 1e4 - off
    assert len(fit_tiles(whole[:, None], used, np.ones(40)).odd) == odd


def test_rows_a_little_off_are_of_the_majority() -> None:
    whole, noise = np.full(40, 1e4), 0.5 * np.resize([1.0, -1.0], 40)
    used = whole + noise
    used[:5], used[5:7] = 0.0, 1e4 + 6.0
    assert fit_tiles(whole[:, None], used, np.ones(40)).odd.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("excess", "uniform"), [(-0.2, True), (0.2, False)], ids=["within", "beyond"]
)
@pytest.mark.parametrize("tiles", [3, 5, 9])
def test_one_coefficient_is_enough_up_to_six_deviations_of_the_ratio(
    tiles: int, excess: float, uniform: bool
) -> None:
    """The residual of the rows is 1, and the tiles' own coefficients explain as much as is said."""
    rows = 60
    columns, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(rows, tiles + 1)))
    partial, left = 100.0 * columns[:, :tiles], np.sqrt(rows - tiles) * columns[:, tiles]
    extra = tiles - 1
    limit = extra + fit.UNIFORM_LIMIT * np.sqrt(2.0 * extra) + fit.UNIFORM_LIMIT + excess
    coefficients = np.ones(tiles)
    coefficients[:2] += np.array([1.0, -1.0]) * np.sqrt(limit / 2) / 100.0
    result = fit_tiles(partial, partial @ coefficients + left, np.ones(rows))
    assert (result.method, result.uniform) == ("tiles", uniform)
    assert result.scatter == pytest.approx(1.0)
    np.testing.assert_allclose(result.coefficients, coefficients)


def test_tiles_that_differ_below_the_rounding_are_not_alike() -> None:
    rng = np.random.default_rng(0)
    partial = np.outer(np.linspace(1.0, 9.0, 50), np.ones(20)) + 1e-4 * rng.normal(size=(50, 20))
    result = fit_tiles(partial, partial.sum(axis=1), np.full(50, NOISE))
    assert (result.method, result.reason) == ("total", "the tiles' sums are below the rounding")


@pytest.mark.parametrize(
    ("tiles", "rows", "wrong_rows", "odd"),
    [
        (1, 8, 3, 3),
        (1, 7, 2, 0),  # fewer than eight rows have no majority
        (1, 10, 4, 4),
        (1, 10, 5, 0),  # 60% have to agree
        (5, 60, 10, 10),
        (5, 60, 30, 0),
        (5, 16, 3, 3),
        (5, 13, 3, 3),
    ],
)
def test_rows_that_do_not_follow_a_majority_stand_apart(
    tiles: int, rows: int, wrong_rows: int, odd: int
) -> None:
    result = fitted([1.0] * tiles, rows, wrong_rows)
    assert result.odd.tolist() == list(range(odd))
    assert (abs(result.total - 1.0) < 0.01) == (odd > 0)
    # without them, eight rows more than tiles are left, or not
    assert result.method == ("pattern" if (tiles, rows) == (5, 13) else "tiles")


def test_rows_without_a_finite_size_are_left_out() -> None:
    rng = np.random.default_rng(0)
    partial = rng.normal(size=(40, 3))
    used, sigma = partial.sum(axis=1), np.full(40, NOISE)
    used[0], sigma[1], sigma[2], partial[3, 1] = np.nan, 0.0, np.inf, np.inf
    sigma[4] = 1e-200  # its square is infinite
    used[20] += 50.0
    result = fit_tiles(partial, used, sigma)
    assert (result.rows, result.odd.tolist(), result.method) == (35, [20], "tiles")
    np.testing.assert_allclose(result.coefficients, 1.0)


@pytest.mark.parametrize(
    ("size", "method"),
    # a tile moves the sums of 60 rows by about size / NOISE sqrt(60) roundings; eight tell it
    [(0.0102, "total"), (0.013, "tiles")],
)
def test_a_tile_below_the_rounding_of_the_sums_tells_nothing(size: float, method: str) -> None:
    result = fitted([1.0] * 5, 60, size=size)
    assert result.method == method
    assert result.reason == ("" if method == "tiles" else "the tiles' sums are below the rounding")


def test_sums_that_cancel_out_are_zero() -> None:
    partial = np.array([[0.1 + 0.2, -0.3]] * 20)
    assert fit_tiles(partial, np.ones(20), np.full(20, NOISE)).reason == "its sums are zero"


def test_a_small_remainder_of_large_sums_is_no_zero() -> None:
    first = np.random.default_rng(0).uniform(1, 2, 20)
    partial = np.column_stack([first, -first * (1 - 1e-10)])
    result = fit_tiles(partial, partial.sum(axis=1), np.full(20, 1e-13))
    assert result.reason != "its sums are zero"
    assert result.total == pytest.approx(1.0, rel=1e-3)


def test_rows_of_different_sizes_are_alike_all_the_same() -> None:
    partial = np.outer(np.linspace(1.0, 9.0, 50), np.ones(20))
    partial[7] = 0.0  # an empty row is no other
    result = fit_tiles(partial, partial.sum(axis=1), np.full(50, NOISE))
    assert (result.method, result.total) == ("total", pytest.approx(1.0))
    assert result.reason == "the rows are alike"


@pytest.mark.parametrize(
    ("last", "uniform"), [(1.0, True), (1.002, True), (1.02, False), (0.0, False)]
)
def test_one_coefficient_does_as_well_as_one_each_or_not(last: float, uniform: bool) -> None:
    assert fitted([1.0] * 4 + [last], 60).uniform is uniform


@pytest.mark.parametrize(("rows", "noise"), [(8, 1.0), (9, 0.1)])
def test_errors_come_from_the_residual_where_eight_rows_are_spare(rows: int, noise: float) -> None:
    column = np.linspace(1.0, 2.0, rows)
    solution = solve(column[:, None], 3.0 * column)
    assert solution.coefficients == pytest.approx([3.0])
    assert solution.errors == pytest.approx([noise / np.sqrt(column @ column)])
    assert (solution.freedom, solution.determined) == (rows - 1, True)


def test_columns_that_rows_can_t_tell_apart_have_no_coefficient() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 30))
    target = one + two
    solution = solve(np.column_stack([one, two, two, np.zeros(30)]), target)
    assert not solution.determined
    np.testing.assert_allclose(solution.coefficients, [1.0, np.nan, np.nan, np.nan])
    assert np.isnan(solution.errors).tolist() == [False, True, True, True]
    assert (solution.freedom, solution.scatter) == (28, pytest.approx(0.0, abs=1e-9))
    # also where one of them has little part in it
    barely = solve(np.column_stack([one, two, one + 0.02 * two]), target)
    assert np.isnan(barely.coefficients).all()
    nothing = solve(np.zeros((4, 2)), target[:4])
    assert (nothing.determined, nothing.freedom) == (False, 4)
    assert np.isnan(nothing.scatter)


@pytest.mark.parametrize(("apart", "determined"), [(1e-4, True), (1e-6, False)])
def test_columns_are_told_apart_down_to_the_digits_of_the_normal_equations(
    apart: float, determined: bool
) -> None:
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(2, 40))
    columns = np.column_stack([1e6 * one, 1e-6 * (one + apart * other)])
    right = np.array([3e-6, -5e6])
    solution = solve(columns, columns @ right)
    assert solution.determined is determined
    if determined:  # one refinement gives back the digits that the condition took
        np.testing.assert_allclose(solution.coefficients, right, rtol=1e-9)


def test_as_many_rows_as_columns_leave_no_scatter() -> None:
    solution = solve(np.eye(2), np.array([1.0, 2.0]))
    assert solution.freedom == 0
    assert np.isnan(solution.scatter)
    np.testing.assert_allclose(solution.errors, 1.0)


# Patterns of tiles.


@pytest.mark.parametrize(
    ("rows", "coefficients", "result"),
    [
        (12, [1.0] * 6 + [0.0] + [1.0] * 13, True),
        (6, [1.0] * 19 + [0.0], True),  # six rows leave four spare ones
        (5, [1.0] * 19 + [0.0], False),
        (12, [1.0, 0.0] * 4, True),
        (12, [1.0] * 4 + [0.0] * 2 + [1.0] * 6 + [2.0] * 2 + [1.0] * 6, True),  # two steps
        (12, ANY, False),
    ],
)
def test_a_pattern_is_found_where_the_rows_refute_all_others(
    rows: int, coefficients: list[float], result: bool
) -> None:
    rng = np.random.default_rng(2)
    weighted = 100.0 * rng.normal(size=(rows, len(coefficients)))
    target = weighted @ np.array(coefficients) + rng.normal(size=rows)
    telling = np.ones(len(coefficients), bool)
    telling[0] = False
    pattern = patterns.search(weighted, target, telling, fit.GOOD_SCATTER)
    assert (pattern is not None) == result
    if pattern is not None:
        np.testing.assert_allclose(pattern.coefficients, coefficients, atol=0.05)
        assert 0.0 < pattern.scatter <= fit.GOOD_SCATTER
        assert ((pattern.errors > 0) & (pattern.errors < 0.05)).all()


def test_a_stretch_of_tiles_is_known_also_where_the_rows_don_t_show_each() -> None:
    weighted = 100.0 * np.random.default_rng(2).normal(size=(12, 16))
    right = np.array([1.0] * 10 + [0.0] * 4 + [1.0] * 2)
    telling = np.zeros(16, bool)
    telling[7:11] = True
    pattern = patterns.search(weighted, weighted @ right, telling, fit.GOOD_SCATTER)
    assert pattern is not None
    known = np.isfinite(pattern.coefficients)
    assert np.flatnonzero(known).tolist() == list(range(7, 14))
    assert np.array_equal(np.isfinite(pattern.errors), known)
    np.testing.assert_allclose(pattern.coefficients[known], right[known], atol=1e-9)
    # the sums are exact, but known to a rounding; a larger residual makes the errors larger
    basis = np.column_stack([weighted.sum(axis=1), weighted[:, 10:14].sum(axis=1)])
    covariance = np.linalg.inv(basis.T @ basis)
    errors = np.where(right == 1.0, covariance[0, 0], covariance.sum())[known] ** 0.5
    np.testing.assert_allclose(pattern.errors[known], errors)
    left = np.linalg.svd(basis)[0][:, -1] * 1.3 * np.sqrt(10)
    rough = patterns.search(weighted, weighted @ right + left, telling, fit.GOOD_SCATTER)
    assert rough is not None
    np.testing.assert_allclose(rough.errors[known], 1.3 * errors)


def test_tiles_without_sums_gain_nothing() -> None:
    nothing = patterns._gain(np.array([3.0, 0.0, 3.0]), np.array([0.0, 0.0, 4.5]), 0.0)
    assert nothing.tolist() == [0.0, 0.0, 2.0]


def test_of_two_patterns_that_fit_alike_none_is_taken() -> None:
    rng = np.random.default_rng(2)
    weighted = 100.0 * rng.normal(size=(12, 20))
    weighted[:, 7] = weighted[:, 6]  # nobody can tell which of the two is missing
    target = weighted @ np.array([1.0] * 6 + [0.0] + [1.0] * 13)
    assert patterns.search(weighted, target, np.ones(20, bool), fit.GOOD_SCATTER) is None


@pytest.mark.parametrize(
    ("tiles", "periods"), [(7, []), (8, [2]), (12, [2, 3, 3, 3]), (16, [2] + [3] * 3 + [4] * 4)]
)
def test_regular_patterns_need_four_periods(tiles: int, periods: list[int]) -> None:
    masks = patterns._regular(tiles)
    assert masks.shape == (len(periods), tiles)
    assert [int(np.diff(np.flatnonzero(mask))[0]) for mask in masks] == periods


# Isolated outliers.


def errors_of(places: dict[int, float], width: int = 200) -> NDArray[np.float64]:
    """Return a row of residuals of size 1, with others at some columns."""
    row = np.where(np.arange(width) % 2, 1.0, -1.0)
    for place, value in places.items():
        row[place] = value
    return row[None, :]


@pytest.mark.parametrize(
    ("places", "values", "columns"),
    [
        ({5: 18.0}, {}, [5]),
        ({5: -18.0}, {}, [5]),
        ({5: 17.7}, {}, None),  # 12 deviations of 1.4826 times the median
        ({5: 18.0}, {5: 181.0}, None),  # a tenth of the value is rounding
        ({5: 18.0}, {5: -179.0}, [5]),
        ({0: 20.0, 40: 20.0, 80: 20.0, 120: 20.0}, {}, [0, 40, 80, 120]),  # 2% of the row
        ({0: 20.0, 40: 20.0, 80: 20.0, 120: 20.0, 160: 20.0}, {}, None),
        ({}, {}, None),
    ],
)
def test_outliers_are_few_and_far_out(
    places: dict[int, float], values: dict[int, float], columns: list[int] | None
) -> None:
    size_of = np.zeros((1, 200))
    for place, value in values.items():
        size_of[0, place] = value
    result = outliers.isolated(errors_of(places), size_of, np.array([1.0]), 7)
    assert {row: where.tolist() for row, where in result.items()} == (
        {} if columns is None else {7: columns}
    )


@pytest.mark.parametrize(("count", "result"), [(4, True), (5, False)])
def test_a_tile_full_of_outliers_is_a_wrong_factor(count: int, result: bool) -> None:
    row = errors_of(dict.fromkeys(range(33, 33 + count), 99.0), width=400)
    assert bool(outliers.isolated(row, np.zeros((1, 400)), np.array([1.0]), 0)) == result


@pytest.mark.parametrize(("sigma", "result"), [(3.0, False), (2.99, True)])
def test_a_row_within_its_rounding_is_not_searched(sigma: float, result: bool) -> None:
    places = outliers.isolated(errors_of({5: 18.0}), np.zeros((1, 200)), np.array([sigma]), 0)
    assert bool(places) == result


def test_outliers_and_what_isn_t_finite_do_not_count() -> None:
    values = np.ones((2, 3))
    places = {4: np.array([1])}
    assert outliers.counted(values, {}, 4) is None
    assert outliers.counted(values, places, 5) is None
    assert outliers.counted(values, places, 2) is None
    for start, expected in ((4, [[1, 0, 1], [1, 1, 1]]), (3, [[1, 1, 1], [1, 0, 1]])):
        counted = outliers.counted(values, places, start)
        assert counted is not None
        assert counted.astype(int).tolist() == expected
    values[1, 2] = np.nan
    counted = outliers.counted(values, {}, 4)
    assert counted is not None
    assert counted.astype(int).tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([2.0], "1 isolated value of y is off by a power of two"),
        ([1.5], "1 isolated value of y is off"),
        ([1.0], "1 isolated value of y is off"),  # once is no other power
        ([2.0, 0.25, 1.5], "3 isolated values of y are off by a power of two"),
        ([2.0, 0.25, 0.5, 1.5, 3.0], "5 isolated values of y are off"),  # 60% are not enough
        ([-1.06 * 8.0], "1 isolated value of y is off by a power of two"),
        ([1.08 * 8.0], "1 isolated value of y is off"),
        ([0.0], "1 isolated value of y is off"),
    ],
)
def test_powers_of_two_are_named(factors: list[float], words: str) -> None:
    values = np.array([[0.0], *([3.0 * factor] for factor in factors)])
    places = {row + 1: np.array([0]) for row in range(len(factors))}
    term = outliers.term("y", values, places, lambda row, columns: np.full(len(columns), 3.0))
    assert (term.words, term.wrong) == (words, True)
    assert term.rows == tuple(range(2, len(factors) + 2))
    without = outliers.term("y", None, places, lambda row, columns: np.full(len(columns), 3.0))
    assert without.words.endswith("off")


# What the numerics allow.


def precision(**numerics: Any) -> Precision:
    """Return what a backward test's arithmetic may make."""
    return Precision.of(spec(numerics=numerics))


HALF = HALF_ULP["bf16"]


@pytest.mark.parametrize(
    ("numerics", "expected"),
    [
        (
            {},
            {
                "rounding": RMS * HALF,
                "scale": SCALE,
                "loss": 0.0,
                "own_mean": 0.0,
                "repeats": 1.0,
                "column": 0.0,
                "wide": True,
                "stores_bf16": True,
                "block": False,
                "coarse": 0.0,
            },
        ),
        (
            {"fidelity": "lofi"},
            {
                "scale": SCALE + 2 * PRODUCT_LOSS["lofi"],
                "loss": PRODUCT_LOSS["lofi"],
                "column": 2 * PRODUCT_LOSS["lofi"],
            },
        ),
        ({"input": "fp32"}, {"scale": SCALE + TF32_SCALE, "column": 2.0**-10}),
        (
            {"input": {"x": "tf32", "dy": "bf16", "gamma": "bfp8_b"}},
            {"scale": SCALE + TF32_SCALE, "column": 2.0**-10, "repeats": 1.5},
        ),
        (
            {"accumulate": "bf16"},
            {"scale": SCALE + NARROW_SCALE, "column": 2.0**-9, "wide": False, "stores_bf16": False},
        ),
        ({"buffers": "fp32"}, {"stores_bf16": False}),
        ({"statistics": "own"}, {"scale": SCALE + OWN_SCALE, "own_mean": OWN_MEAN}),
        (
            {"output": "bfp8_b"},
            {
                "rounding": RMS * HALF_ULP["bfp8_b"] * BLOCK,
                "scale": SCALE + HALF_ULP["bfp8_b"] / 2,
                "block": True,
                "coarse": 0.0,
            },
        ),
        ({"buffers": "bfp8_b"}, {"coarse": COARSE_BUFFERS["bfp8_b"]}),
        ({"input": "bfp8_b"}, {"repeats": 1.5}),
    ],
)
def test_each_numerics_allows_its_own_errors(
    numerics: dict[str, Any], expected: dict[str, float | bool]
) -> None:
    result = precision(**numerics)
    assert {name: getattr(result, name) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", ["variance", "s1"])
def test_a_sum_may_be_off_by_its_losses(name: str) -> None:
    twice = 2 if name == "variance" else 1
    noun = Noun(name, below=0.5, above=0.25)
    loss, coarse = PRODUCT_LOSS["hifi2"], COARSE_BUFFERS["bfp8_b"]
    result = precision(accumulate="bf16", fidelity="hifi2", buffers="bfp8_b").noun(noun, 9)
    narrow, lost = 3 * NARROW_SUM, twice * SUM_LOSSES * loss
    assert result.below == pytest.approx(0.5 + lost + narrow + twice * coarse)
    above = lost if name == "variance" else loss
    assert result.above == pytest.approx(0.25 + narrow + above + twice * coarse)
    assert result.allowed == pytest.approx(lost + narrow + twice * coarse)
    assert precision().noun(noun, 9) == noun


def test_values_of_a_block_share_its_largest_one_s_rounding() -> None:
    values = np.array([1.0, -4.0] + [0.5] * 14 + [2.0, 1.0])
    bf16, block = precision(), precision(output="bfp8_b")
    np.testing.assert_allclose(bf16.element(values), bf16.rounding * np.abs(values))
    largest = np.array([4.0] * 16 + [2.0] * 2)
    np.testing.assert_allclose(block.element(values), block.rounding * largest)


def test_a_stored_sum_is_rounded_once_or_with_every_partial_sum() -> None:
    assert precision().stored(4) == STORED
    assert precision(accumulate="bf16").stored(4) == STORED * 4.0
    assert bf16_grid(np.array([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-9, -3.0])).tolist() == [
        1.0,
        1.0 + 2.0**-7,
        -3.0,
    ]
