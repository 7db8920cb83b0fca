"""Flips between two builds: counted by hand, and on NumPy twins of a LayerNorm.

The twins differ by a factor, by the order of their sums, or by a step of a stored rstd.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging import flips
from gonogo.judging.factors import Flips, pooled
from gonogo.judging.shared_factors import fp32_factor
from gonogo.numerics.formats import round_to, ulp

Floats = NDArray[np.float32]
ORDERS = ("pairs", "forward", "backward", "lanes of 4", "lanes of 8", "lanes of 32")
ULPS_OF_A_VALUE = {"bf16": 185.0, "fp16": 1477.0}
"""The mean of |v| / ulp(v) for evenly spread logarithms of mantissas: 2^7 or 2^10, over ln 2."""


def row_sums(values: Floats, order: str) -> Floats:
    """Return the fp32 sums of the rows in one of ORDERS."""
    if order == "forward":
        return np.asarray(np.cumsum(values, axis=1, dtype=np.float32)[:, -1])
    if order == "backward":
        return row_sums(values[:, ::-1], "forward")
    if order == "pairs":
        while values.shape[1] > 1:
            values = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
            values = values[:, ::2] + values[:, 1::2]
        return values[:, 0]
    lanes = int(order.rpartition(" ")[2])
    values = np.pad(values, ((0, 0), (0, -values.shape[1] % lanes)))
    in_lanes = values.reshape(values.shape[0], -1, lanes)
    return row_sums(np.cumsum(in_lanes, axis=1, dtype=np.float32)[:, -1], "pairs")


def layernorm(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    output_format: str,
    order: str = "lanes of 32",
    *,
    rstd_factor: float = 1.0,
    output_factor: float = 1.0,
    rstd_format: str = "fp32",
    reciprocal: bool = False,
) -> Floats:
    """Return y of a LayerNorm in fp32, rounded once; the options are what a build may change."""
    n = np.float32(x.shape[1])

    def average(sums: Floats) -> Floats:
        return np.asarray(sums * (np.float32(1) / n) if reciprocal else sums / n, np.float32)

    centered = x - average(row_sums(x, order))[:, None]
    variance = average(row_sums(centered * centered, order))
    rstd = 1 / np.sqrt(variance.astype(np.float64) + 1e-6) * rstd_factor
    xhat = centered * round_to(rstd.astype(np.float32), rstd_format)[:, None]
    return round_to((xhat * gamma + beta).astype(np.float64) * output_factor, output_format)


class Inputs:
    """x, gamma and beta of a test, and the flips between two of its twins."""

    def __init__(
        self, output_format: str, rows: int, n: int, *, seed: int = 0, with_beta: bool = True
    ) -> None:
        generator = np.random.default_rng(seed)
        self.format = output_format
        self.x = round_to(generator.uniform(-1, 1, (rows, n)), output_format)
        self.gamma = round_to(generator.uniform(0, 1, n), output_format)
        self.beta = round_to(generator.uniform(0, 1, n) * with_beta, output_format)

    def y(self, *, output_format: str | None = None, **options: Any) -> Floats:
        return layernorm(self.x, self.gamma, self.beta, output_format or self.format, **options)

    def flips(self, output: Floats, reference: Floats) -> Flips:
        """Return the flips of one seed."""
        beta = np.broadcast_to(self.beta.astype(np.float64), output.shape)
        counts = flips.count(
            output,
            reference,
            self.format,
            fp32_factor(output.shape[1]),
            beta if self.beta.any() else None,
        )
        return pooled({"y": [asdict(counts)]})[0]


def test_flips_are_counted_by_direction_and_by_row() -> None:
    reference = np.array([[1.0, -1.0, 2.0, 0.0], [1.0, 1.0, -4.0, 8.0]], np.float32)
    output = reference.copy()
    output[0, 0] += 2.0**-7  # one ulp of bf16 away from zero
    output[0, 1] += 2.0**-7  # toward zero
    output[0, 2] += 2.0**-6
    output[1, 2] += 2.0**-5 * 3  # three ulp toward zero
    counts = flips.count(output, reference, "bf16", 4)
    zero = counts.pivots["zero"]
    assert (counts.elements, counts.differing, counts.rows) == (8, 4, 2)
    assert (zero.away, zero.toward) == (2, 2)
    assert (zero.rows_away, zero.rows_toward) == (1, 1)
    # |v| / ulp(v) of a power of two is 2^7
    assert zero.sensitivity == 7 * 2**7
    assert zero.factor == pytest.approx((1 - 1 + 1 - 3) / (7 * 2**7))
    # rows: moves 1 and -3, distances 384 and 512
    residuals = np.array([1, -3]) - zero.factor * np.array([384, 512])
    assert zero.factor_error == pytest.approx(np.sqrt(2 * (residuals**2).sum()) / (7 * 2**7))
    assert (counts.stepped_up, counts.stepped_down) == (0, 0)


def test_the_slope_of_the_moves_is_that_of_a_straight_line() -> None:
    generator = np.random.default_rng(1)
    reference = round_to(generator.uniform(1.0, 2.0, (3, 8)), "bf16")
    steps = generator.integers(-2, 3, reference.shape)
    output = (reference + steps * 2.0**-7).astype(np.float32)
    zero = flips.count(output, reference, "bf16", 0.0).pivots["zero"]
    weights = reference.ravel() / 2.0**-7
    line, covariance = np.polyfit(weights, steps.ravel(), 1, cov=True)
    assert zero.slope == pytest.approx(line[0])
    assert zero.slope_error == pytest.approx(np.sqrt(covariance[0, 0]))
    # two elements have no scatter, and values that are alike no slope
    few = flips.count(output[:1, :2], reference[:1, :2], "bf16", 0.0).pivots["zero"]
    alike = flips.count(output, np.ones_like(output), "bf16", 0.0).pivots["zero"]
    assert (few.slope, few.slope_error, alike.slope, alike.slope_error) == (None,) * 4
    for value in (1.3984375, 1.4140625, 1.7265625):
        same = np.full((7, 3), value, np.float32)
        moved = same + np.float32(2.0**-7) * (np.arange(3) == 1)
        assert flips.count(moved.astype(np.float32), same, "bf16", 0.0).pivots["zero"].slope is None
    three = flips.count(output[:1, :3], reference[:1, :3], "bf16", 0.0).pivots["zero"]
    assert three.slope is not None
    # all moved alike: there is no slope, and nothing is left about it
    one_step = reference + np.float32(2.0**-7)
    even = flips.count(one_step, reference, "bf16", 0.0).pivots["zero"]
    assert (even.slope, even.slope_error) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_values_at_the_pivot_tell_nothing_of_a_factor() -> None:
    reference = np.array([[0.0, 0.0, 2.0], [0.0, 1.0, -1.0]], np.float32)
    zero = flips.count(reference, reference, "bf16", 0.0).pivots["zero"]
    assert zero.elements == 3


def test_a_factor_that_leaves_beta_in_place_is_signed_by_beta() -> None:
    beta = np.full((1, 3), 1.0)
    reference = np.array([[0.5, 2.0, 1.0]], np.float32)
    output = np.array([[0.5 - 2.0**-8, 2.0 + 2.0**-6, 1.0]], np.float32)
    pivots = flips.count(output, reference, "bf16", 64, beta).pivots
    assert (pivots["zero"].away, pivots["zero"].toward) == (1, 1)
    assert (pivots["beta"].away, pivots["beta"].toward) == (2, 0)


def test_where_the_sum_cancels_nothing_is_counted_about_beta() -> None:
    beta = np.full((1, 2), 1.0)
    reference = np.array([[0.1, 0.125]], np.float32)  # beta is 9 and 7 values away from zero
    output = reference + np.float32(2.0**-10)
    beta_pivot = flips.count(output, reference, "bf16", 64, beta).pivots["beta"]
    assert (beta_pivot.away, beta_pivot.toward) == (0, 1)
    edge = flips.count(output, reference, "bf16", 64, np.full((1, 2), 1.125)).pivots["beta"]
    assert (edge.away, edge.toward) == (0, 1)  # 10 and 8 values away


def test_values_that_are_not_finite_are_left_out() -> None:
    reference = np.array([[1.0, np.inf, np.nan, 2.0]], np.float32)
    output = np.array([[np.nan, 1.0, np.nan, 2.0 + 2.0**-6]], np.float32)
    counts = flips.count(output, reference, "bf16", 4)
    assert (counts.elements, counts.differing, counts.rows) == (1, 1, 4)
    zero = counts.pivots["zero"]
    assert (zero.away, zero.elements, zero.sensitivity) == (1, 1, 2**7)


def test_values_of_a_vector_are_rows_of_their_own() -> None:
    reference = np.linspace(1, 2, 64, dtype=np.float32)[None]
    output = round_to(reference * 1.01, "bf16")
    counts = flips.count(output, round_to(reference, "bf16"), "bf16", 32)
    assert counts.rows == 64
    assert counts.pivots["zero"].rows_away == counts.pivots["zero"].away > 60


def test_a_block_format_counts_in_steps_of_its_blocks() -> None:
    reference = np.full((1, 16), 0.125, np.float32)
    reference[0, 0] = 1.0  # the block's exponent: its step is 2^-6
    output = reference + np.float32(2.0**-6)
    zero = flips.count(output, reference, "bfp8_b", 16).pivots["zero"]
    assert zero.sensitivity == pytest.approx((1 + 15 * 0.125) / ulp(reference, "bfp8_b")[0, 0])
    assert zero.factor == pytest.approx(16 / zero.sensitivity)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs("bf16", 100, 64)
    sides = inputs.y(rstd_factor=1.001), inputs.y()
    beta = np.broadcast_to(inputs.beta.astype(np.float64), sides[0].shape)
    whole = flips.count(*sides, "bf16", fp32_factor(64), beta)
    monkeypatch.setattr(flips, "ELEMENTS_PER_BLOCK", 64)
    assert flips.count(*sides, "bf16", fp32_factor(64), beta) == whole


@pytest.mark.parametrize("output_format", ["bf16", "fp16"])
@pytest.mark.parametrize("factor", [3e-6, -3e-6])
@pytest.mark.parametrize(("option", "pivot"), [("output_factor", "zero"), ("rstd_factor", "beta")])
def test_a_factor_of_3e_6_shows_in_one_seed_of_32x1024(
    output_format: str, factor: float, option: str, pivot: str
) -> None:
    inputs = Inputs(output_format, 32, 1024)
    result = inputs.flips(inputs.y(**{option: 1 + factor}), inputs.y())
    best = result.best
    assert (best.seen, best.pivot) == (True, pivot), result.words
    assert best.low is not None
    assert best.high is not None
    assert best.low < factor < best.high
    assert min(best.away, best.toward) == 0
    assert "a common factor of " in result.words
    # the number of flips is that of the formula, within 4 standard deviations
    expected = abs(factor) * best.sensitivity
    assert abs(best.away + best.toward - expected) < 4 * np.sqrt(expected)


@pytest.mark.parametrize("output_format", ["bf16", "fp16"])
def test_a_million_elements_make_the_flips_of_the_formula(output_format: str) -> None:
    values = np.exp(np.random.default_rng(0).uniform(0, 8 * np.log(2), (1024, 1024)))
    reference, output = (round_to(values * factor, output_format) for factor in (1.0, 1 + 4e-6))
    zero = flips.count(output, reference, output_format, fp32_factor(1024)).pivots["zero"]
    assert zero.sensitivity / values.size == pytest.approx(ULPS_OF_A_VALUE[output_format], rel=0.01)
    assert zero.away == pytest.approx(4e-6 * zero.sensitivity, rel=0.15)
    assert zero.toward == 0


def test_a_factor_of_1e_6_shows_in_819x8462() -> None:
    values = np.random.default_rng(0).standard_normal((819, 8462)).astype(np.float32)
    reference, output = (
        round_to(values * factor, "bf16") for factor in (1.0, np.float64(1 + 1e-6))
    )
    (result,) = pooled({"y": [asdict(flips.count(output, reference, "bf16", fp32_factor(8462)))]})
    best = result.best
    assert best.seen
    assert best.toward == 0
    assert best.away > 1000
    assert best.factor == pytest.approx(1e-6, rel=0.15)


def test_right_kernels_that_sum_in_another_order_share_no_factor() -> None:
    pairs, deviations = 0, []
    for output_format in ("bf16", "fp16", "fp32"):
        for rows, n, seed in ((32, 1024, 1), (128, 1000, 2), (16, 8462, 3), (300, 33, 4)):
            inputs = Inputs(output_format, rows, n, seed=seed)
            outputs = [inputs.y(order=order) for order in ORDERS]
            outputs.append(inputs.y(reciprocal=True))
            for output, reference in combinations(outputs, 2):
                result = inputs.flips(output, reference)
                assert not result.best.seen, result.words
                assert not result.stepped, result.words
                pairs += 1
                if output_format != "fp32":
                    deviations += [
                        abs(pivot.rows_away - pivot.rows_toward)
                        / max(1, pivot.rows_away + pivot.rows_toward) ** 0.5
                        for pivot in result.factors
                    ]
    assert pairs == 252
    assert max(deviations) <= 3.3  # of 336 standard normal deviations


def test_running_sums_of_squares_come_out_small_by_the_derived_factor() -> None:
    squares = np.random.default_rng(5).standard_normal((400, 16384)).astype(np.float32) ** 2
    exact = squares.astype(np.float64).sum(axis=1)
    rstd_errors = -(row_sums(squares, "forward") / exact - 1) / 2
    error = rstd_errors.std() / 20
    derived = 0.0131 * 0.399 * (16384 * 2.0**-23) ** 1.5
    assert rstd_errors.mean() == pytest.approx(derived, abs=3 * error)
    assert derived > 5 * error
    # with room for values that lie more densely near their mean
    assert derived + 5 * error < fp32_factor(16384)


def test_1_over_n_rounded_is_a_factor_of_2_to_the_minus_25_at_most_and_no_finding() -> None:
    inputs = Inputs("fp32", 300, 33)
    result = inputs.flips(inputs.y(reciprocal=True), inputs.y())
    best = result.best
    assert best.probability < 1e-3
    assert best.factor is not None
    assert abs(best.factor) < 2.0**-25
    assert not best.seen
    assert result.words.startswith("no common factor; ")


@pytest.mark.parametrize("output_format", ["bf16", "fp32"])
@pytest.mark.parametrize("with_beta", [True, False])
def test_rows_whose_stored_rstd_moved_are_named_instead_of_a_factor(
    output_format: str, with_beta: bool
) -> None:
    inputs = Inputs(output_format, 128, 1024, with_beta=with_beta)
    stored = inputs.y(rstd_format="bf16")
    moved = inputs.flips(inputs.y(rstd_format="bf16", rstd_factor=1.001), stored)
    assert 128 * 0.08 < moved.stepped_up < 128 * 0.35
    assert moved.stepped_down == 0
    assert not moved.best.seen
    assert f"{moved.stepped_up} rows' rstd moved by a step ({moved.stepped_up} up" in moved.words
    both = inputs.flips(stored, inputs.y())
    assert min(both.stepped_up, both.stepped_down) > 10
    assert not both.best.seen
    # a factor of more than a step moves all rows: it is one
    factor = inputs.flips(inputs.y(rstd_format="bf16", rstd_factor=1.01), stored)
    assert factor.stepped > 64
    assert factor.best.seen
    assert factor.best.factor == pytest.approx(0.01, rel=0.1)
    assert "rstd moved" not in factor.words


def test_truncation_is_no_factor() -> None:
    inputs = Inputs("bf16", 32, 1024, with_beta=False)
    exact = inputs.y(output_format="fp32")
    truncated = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    result = inputs.flips(truncated, inputs.y())
    assert not result.best.seen
    assert result.seen
    assert result.words.startswith("y moved toward zero by 0.5 steps on average")
    assert result.is_rounded_otherwise
    # further, it is one
    assert inputs.flips(truncated, inputs.y(output_factor=1.006)).best.seen


@pytest.mark.parametrize(
    ("moved", "width", "is_step"),
    [(6, 24, True), (6, 25, False), (5, 8, False), (6, 8, True), (20, 24, True)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_moves_six_elements_and_a_quarter_of_its_row(
    moved: int, width: int, sign: int, *, is_step: bool
) -> None:
    reference = np.full((3, width), 1.5, np.float32)
    output = reference.copy()
    output[1, :moved] += sign * 2.0**-7
    counts = flips.count(output, reference, "bf16", 0.0)
    assert (counts.stepped_up, counts.stepped_down) == (
        is_step and sign > 0,
        is_step and sign < 0,
    )
    # it tells nothing of a factor then
    assert counts.pivots["zero"].elements == (2 if is_step else 3) * width


@pytest.mark.parametrize(
    ("other_way", "factor", "is_step"),
    [
        (1, 1.0, True),
        (2, 1.0, False),
        (0, 1 / 32, True),
        (0, 1 / 64, False),
        (0, 2.0, True),
        (0, 4.0, False),
    ],
)
def test_a_step_has_one_direction_and_the_size_of_a_stored_rstd_s(
    other_way: int, factor: float, *, is_step: bool
) -> None:
    reference = np.full((3, 20), 1.5, np.float32)
    output = reference.copy()
    output[1] *= 1.0 + 2.0**-7 * factor
    output[1, :other_way] -= 2.0**-6
    assert flips.count(output, reference, "fp32", 0.0).stepped_up == is_step


@pytest.mark.parametrize(("stepped", "counted"), [(1, 3), (2, 2), (3, 4)])
def test_stepped_rows_are_left_out_unless_they_are_most(stepped: int, counted: int) -> None:
    reference = np.full((4, 16), 1.5, np.float32)
    output = reference.copy()
    output[:stepped] += 2.0**-7
    counts = flips.count(output, reference, "bf16", 0.0)
    assert (counts.stepped_up, counts.pivots["zero"].elements) == (stepped, 16 * counted)


def test_one_row_has_no_scatter_and_zeros_have_no_factor() -> None:
    reference = np.array([[0.0, 0.0, 1.0, 2.0]], np.float32).T.repeat(2, axis=1)
    output = reference + np.float32(2.0**-6)
    one = flips.count(output[2:3, :1], reference[2:3, :1], "bf16", 0.0).pivots["zero"]
    assert one.factor == pytest.approx(2.0**-6)
    assert one.factor_error is None
    two = flips.count(output[2:], reference[2:], "bf16", 0.0).pivots["zero"]
    assert two.factor_error is not None
    none = flips.count(output[:2], reference[:2], "bf16", 0.0).pivots["zero"]
    assert (none.factor, none.factor_error, none.sensitivity) == (None, None, 0.0)


def test_rows_that_moved_further_than_a_step_are_no_steps() -> None:
    inputs = Inputs("bf16", 64, 256, with_beta=False)
    reference = inputs.y()
    output = reference.copy()
    output[3] = reference[4]  # a stale row
    output[9] = reference[9] * 4
    result = inputs.flips(output, reference)
    assert (result.stepped, result.best.seen) == (0, False)
