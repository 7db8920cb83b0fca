"""Slopes of the error over their standard deviations: each term is computed by hand, and rounding
alone never shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.expected import statistics
from gonogo.numerics import compare, directions
from gonogo.numerics.expectation import Direction, Expectation, Keyed, Shared, coherence
from gonogo.spec.verdicts import POLICY
from numeric_cases import KERNELS, REGIMES, Case, spec
from right_arithmetics import perfect

Array = NDArray[np.float64]
N = 6


def expectation(rows: int = 3, noise: float | Array = 0.25, **fields: Any) -> Expectation:
    """Return an expectation whose references all differ (nothing is grouped) and are exact in bf16
    (nothing is rounded)."""
    reference = fields.pop("reference", np.arange(1.0, rows * N + 1).reshape(rows, N))
    noises = np.broadcast_to(np.asarray(noise, np.float64), reference.shape).copy()
    return Expectation(
        reference=reference, bound=np.ones_like(reference), noise=noises, out=2.0**-8, **fields
    )


def z(expected: Expectation, direction: Direction, error: Array) -> Array:
    scores = directions.scores(expected, direction, error, compare.golden_of(expected))
    return scores.z


@pytest.fixture
def weights() -> Array:
    return np.random.default_rng(0).normal(0, 1, (3, N))


@pytest.fixture
def error() -> Array:
    return np.random.default_rng(1).normal(0, 1, (3, N))


def test_a_row_of_independent_noise_has_the_variance_of_a_weighted_sum(
    weights: Array, error: Array
) -> None:
    noise = np.random.default_rng(2).uniform(0.1, 1, (3, N))
    z_scores = z(expectation(noise=noise), Direction("any", weights), error)
    for i in range(3):
        numerator = math.fsum(w * e for w, e in zip(weights[i], error[i], strict=True))
        assert z_scores[i] == pytest.approx(
            numerator
            / math.sqrt(math.fsum(w * w * v for w, v in zip(weights[i], noise[i], strict=True)))
        )


def test_rms_and_largest_are_over_the_rows_that_say_something(weights: Array, error: Array) -> None:
    weights[1] = 0.0  # below any floor
    scores = directions.scores(
        expectation(), Direction("any", weights), error, compare.golden_of(expectation())
    )
    assert scores.count == 2
    assert math.isnan(scores.z[1])
    used = np.abs(scores.z[[0, 2]])
    assert scores.rms == pytest.approx(math.sqrt((used**2).mean()))
    assert scores.largest == used.max()


def test_elements_of_equal_references_share_one_error(error: Array) -> None:
    """The variance of a direction is the sum over groups of (sum over the group of |w| s)^2; the
    sign of the reference doesn't matter."""
    reference = np.array([[1.0, 1.0, -1.0, 2.0, 2.0, 3.0]])
    expected = expectation(reference=reference, noise=0.25)
    z_scores = z(expected, Direction("row", np.ones((1, N))), error[:1])
    variance = (3 * 0.5) ** 2 + (2 * 0.5) ** 2 + 0.5**2
    assert z_scores[0] == pytest.approx(error[0].sum() / math.sqrt(variance))


def test_a_shared_error_adds_its_projection(weights: Array, error: Array) -> None:
    pattern = np.random.default_rng(3).normal(0, 1, (3, N))
    variance = np.array([[0.5], [0.0], [2.0]])
    z_scores = z(
        expectation(shared=(Shared(variance, pattern), Shared(np.ones((1, 1)), np.ones((1, 1))))),
        Direction("any", weights),
        error,
    )
    for i in range(3):
        total = (
            0.25 * (weights[i] ** 2).sum()
            + variance[i, 0] * (weights[i] @ pattern[i]) ** 2
            + weights[i].sum() ** 2
        )
        assert z_scores[i] == pytest.approx((weights[i] @ error[i]) / math.sqrt(total))


def test_keyed_errors_add_up_before_they_are_squared_and_nan_is_no_key(
    weights: Array, error: Array
) -> None:
    key = np.tile([1.0, 1.0, 2.0, np.nan, 2.0, np.nan], (3, 1))
    amplitude = np.random.default_rng(4).normal(0, 1, (3, N))
    z_scores = z(expectation(keyed=(Keyed(key, amplitude),)), Direction("any", weights), error)
    for i in range(3):
        a = weights[i] * amplitude[i]
        total = 0.25 * (weights[i] ** 2).sum() + (a[0] + a[1]) ** 2 + (a[2] + a[4]) ** 2
        assert z_scores[i] == pytest.approx((weights[i] @ error[i]) / math.sqrt(total))


def test_factors_are_independent_errors_of_an_output_of_one_row(
    weights: Array, error: Array
) -> None:
    factors = (
        np.random.default_rng(5).normal(0, 1, (4, N)),
        np.random.default_rng(6).normal(0, 1, (2, N)),
    )
    z_scores = z(expectation(rows=1, factors=factors), Direction("any", weights[:1]), error[:1])
    total = 0.25 * (weights[0] ** 2).sum() + sum(
        float((row @ weights[0]) ** 2) for factor in factors for row in factor
    )
    assert z_scores[0] == pytest.approx((weights[0] @ error[0]) / math.sqrt(total))


def test_a_predicted_bias_counts_only_beyond_chance(weights: Array, error: Array) -> None:
    noise_variance = 0.25 * (weights[0] ** 2).sum()
    for size in (0.5, 50.0):
        bias = size * weights[:1] / (weights[0] @ weights[0])  # projection: size
        expected = expectation(rows=1, bias=bias)
        golden = max(
            float((weights[:1] * golden_error).sum() ** 2)
            for golden_error in compare.golden_of(expected)
        )
        total = (
            noise_variance
            + max(0.0, golden - 4 * noise_variance)
            + max(0.0, size**2 - 4 * noise_variance)
        )
        assert z(expected, Direction("any", weights[:1]), error[:1])[0] == pytest.approx(
            (weights[0] @ error[0]) / math.sqrt(total)
        )
    assert total > noise_variance


def test_what_a_perfectly_rounded_output_shows_by_itself_is_not_evidence(error: Array) -> None:
    reference = (
        np.full((1, N), 1.0) + np.arange(N) * 2.0**-20 + 0.9 * 2.0**-8
    )  # all are rounded up by nearly half an ulp
    expected = expectation(reference=reference, noise=(2.0**-8) ** 2 / 3 / 100)
    z_scores = z(
        expected,
        Direction("row", np.ones((1, N))),
        compare.rounded(reference, 2.0**-8, block=False) - reference,
    )
    assert abs(z_scores[0]) < 1.2
    away = np.full((1, N), 1.0) + np.array([1, 3, 5, 7, 9, 11]) * 2.0**-8  # all are ties
    expected = expectation(reference=away, noise=(2.0**-8) ** 2 / 3 / 100)
    assert abs(z(expected, Direction("row", np.ones((1, N))), np.full((1, N), 2.0**-8))[0]) < 1.2


def test_a_projection_inside_the_hull_of_the_allowances_is_none(weights: Array) -> None:
    allowed = np.ones((3, N))
    expected = expectation(allowance=(allowed, -2 * allowed))
    ones = Direction("row", np.ones((3, N)))
    standard_deviation = math.sqrt(0.25 * N)
    for size, left in ((0.5, 0.0), (1.5, 0.5), (-1.5, 0.0), (-3.0, -1.0)):
        np.testing.assert_allclose(
            z(expected, ones, np.full((3, N), size)), left * N / standard_deviation
        )


def test_a_direction_below_its_floor_is_null() -> None:
    expected = expectation()
    floor = np.array([1.0, 0.0, 7.0])
    scores = directions.scores(
        expected,
        Direction("row", np.ones((3, N)), floor=floor),
        np.ones((3, N)),
        compare.golden_of(expected),
    )
    assert scores.count == 2
    assert math.isnan(scores.z[2])
    nothing = directions.scores(
        expected, Direction("row", np.zeros((3, N))), np.ones((3, N)), compare.golden_of(expected)
    )
    assert (nothing.rms, nothing.largest, nothing.count) == (None, None, 0)


def test_zero_over_zero_says_nothing_and_something_over_zero_is_infinite() -> None:
    expected = expectation(noise=0.0)
    error = np.zeros((3, N))
    error[1, 0] = 1.0
    scores = directions.scores(
        expected, Direction("row", np.ones((3, N))), error, compare.golden_of(expected)
    )
    assert scores.count == 1
    assert scores.rms == scores.largest == math.inf


def test_tiles_are_several_directions_on_one_row(weights: Array, error: Array) -> None:
    z_scores = z(expectation(rows=1), Direction("tile", weights, axis="tiles"), error[:1])
    np.testing.assert_allclose(
        z_scores, [(w @ error[0]) / math.sqrt(0.25 * (w @ w)) for w in weights]
    )


def test_columns_add_independent_rows(weights: Array, error: Array) -> None:
    noise = np.random.default_rng(2).uniform(0.1, 1, (3, N))
    shared = Shared(np.array([[0.5], [1.0], [2.0]]), np.ones((1, 1)))
    z_scores = z(
        expectation(noise=noise, shared=(shared,)), Direction("col", weights, axis="column"), error
    )
    variance = noise + shared.variance
    for j in range(N):
        w = weights[:, j]
        assert z_scores[j] == pytest.approx(
            (w @ error[:, j]) / math.sqrt((w**2 * variance[:, j]).sum())
        )


def test_identical_rows_err_together_down_a_column(error: Array) -> None:
    reference = np.array([[1.0, 2, 3, 4, 5, 6], [7.0, 8, 9, 10, 11, 12], [1.0, 2, 3, 4, 5, 6]])
    z_scores = z(
        expectation(reference=reference), Direction("col", np.ones((3, N)), axis="column"), error
    )
    np.testing.assert_allclose(z_scores, error.sum(axis=0) / math.sqrt((2 * 0.5) ** 2 + 0.5**2))


def test_trends_and_spreads_add_up_down_a_column_before_they_are_squared(
    weights: Array, error: Array
) -> None:
    trend, spread = (
        np.random.default_rng(7).normal(0, 1, (3, N)),
        np.random.default_rng(8).uniform(0, 1, (3, N)),
    )
    z_scores = z(
        expectation(trend=(trend,), spread=spread), Direction("col", weights, axis="column"), error
    )
    for j in range(N):
        w = weights[:, j]
        total = 0.25 * (w @ w) + (w @ trend[:, j]) ** 2 + (np.abs(w) @ spread[:, j]) ** 2
        assert z_scores[j] == pytest.approx((w @ error[:, j]) / math.sqrt(total))


def test_grouping_is_what_keeps_a_rounded_constant_below_the_limit() -> None:
    n = 4096
    reference = np.full((1, n), 1 + 0.4 * 2.0**-7)  # rounded down by .4 of an ulp, everywhere
    expected = Expectation(
        reference=reference,
        bound=np.ones((1, n)),
        noise=np.full((1, n), (2.0**-8) ** 2 / 3),
        out=2.0**-8,
    )
    error = compare.rounded(reference, 2.0**-8, block=False) - reference
    nothing = (np.zeros((1, n)),)  # no golden error: grouping alone
    grouped = directions.scores(expected, Direction("scale", reference), error, nothing).largest
    independent = abs((reference * error).sum()) / math.sqrt((reference**2 * expected.noise).sum())
    assert grouped == pytest.approx(0.8 * math.sqrt(3))
    assert independent > 80


def test_independent_noise_of_the_stated_size_has_a_z_of_one() -> None:
    rows, n = 400, 64
    random = np.random.default_rng(9)
    noise = random.uniform(0.1, 4, (rows, n))
    reference = random.normal(0, 1, (rows, n)) * 1024
    error = random.normal(0, 1, (rows, n)) * np.sqrt(noise)
    ones = np.ones((rows, n))
    plain = Expectation(reference=reference, bound=ones, noise=noise, out=2.0**-40)
    shifted = Expectation(
        reference=reference,
        bound=ones,
        noise=noise,
        out=2.0**-40,
        shared=(Shared(np.full((rows, 1), 9.0), ones),),
    )
    moved = error + random.normal(0, 3, (rows, 1))
    for expected, direction, used in (
        (plain, Direction("row", ones), error),
        (plain, Direction("scale", reference), error),
        (plain, Direction("col", ones, axis="column"), error),
        (shifted, Direction("row", ones), moved),
        (shifted, Direction("scale", reference), moved),
    ):
        scores = directions.scores(expected, direction, used, compare.golden_of(expected))
        assert scores.rms == pytest.approx(1, abs=0.2), direction.name
        assert scores.largest is not None
        assert scores.largest < POLICY.direction_limit(scores.count)


def test_the_rounding_of_equal_values_is_coherent_and_that_of_spread_ones_is_not() -> None:
    assert coherence(np.full(50, 0.3), 2.0**-8) == 1
    assert coherence(np.array([0.3]), 2.0**-8) == 1
    assert coherence(np.zeros(5), 2.0**-8) == 1
    step = 2.0**-9 * 2 * 0.5  # of bf16 at .3
    slight = coherence(0.3 + np.random.default_rng(0).normal(0, 0.2 * step, 500), 2.0**-8)
    assert 0.2 < slight < 0.9
    assert coherence(np.random.default_rng(0).normal(0.3, 3 * step, 500), 2.0**-8) < 1e-6


@pytest.mark.parametrize("arithmetic", ["generic", "tt-train"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_perfectly_rounded_output_shows_on_no_direction_in_any_regime(
    kernel: str, arithmetic: str
) -> None:
    """Equal references (constant, ramp) share one rounding error: scale_z was 634 before they were
    grouped."""
    seen = 0
    for regime in REGIMES:
        for shape in ((7, 33), (64, 96), (33, 512)):
            for output in ("bf16", "fp32"):
                case = Case.of(spec(kernel, shape, regime=regime, numerics={"output": output}))
                by_output = statistics(
                    case.test,
                    case.raw,
                    case.given,
                    case.matrices(perfect(case.test, case.given)),
                    arithmetic,
                )
                for name, numbers in by_output.items():
                    for statistic, value in numbers.items():
                        if statistic.endswith("_z") and value is not None:
                            seen += 1
                            assert value <= POLICY.direction, (
                                regime,
                                shape,
                                output,
                                name,
                                statistic,
                            )
                            count = numbers[statistic.removesuffix("_z") + "_count"]
                            assert numbers[statistic + "_max"] <= POLICY.direction_limit(count), (
                                regime,
                                shape,
                                output,
                                name,
                                statistic,
                            )
    assert seen > 200
