"""The fits of faults: factors of patterns, the weight of evidence, stored statistics."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.faults import padding, statistics
from gonogo.judging.faults.fault import Fault, Residual, places
from gonogo.judging.faults.stored import ROUNDINGS, StoredStatistics
from gonogo.numerics.formats import half_ulp

Doubles = NDArray[np.float64]
draw = np.random.default_rng(5).standard_normal
ROWS, WIDTH = 6, 40
FIRST = 1.0 + draw((ROWS, WIDTH))
SECOND = FIRST + 0.5 * draw((ROWS, WIDTH))
VARIANCE = np.exp(0.3 * draw((ROWS, WIDTH)))


def residual(error: Doubles, variance: Doubles = VARIANCE) -> Residual:
    return Residual.of(error, variance)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 0.0, 3.0, 0.1], "column 2"),
        ([0.0, 3.0, -2.0, 0.0], "columns 1, 2"),
        ([5.0, 0.0, 1.0, 2.0, 0.0, 0.4], "columns 0, 2, 3"),
        ([0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0], "4 columns from 1 to 4"),
        ([1.0, 1.0, 1.0, 0.0], "most columns"),
        ([0.0, 0.0], "most columns"),
        ([1.0, 1.0], "most columns"),
        ([1.0], "column 0"),
    ],
)
def test_places_are_those_that_matter(values: list[float], words: str) -> None:
    assert places("column", np.array(values)) == words


def test_factors_of_patterns_are_found() -> None:
    by_row, by_column = draw((ROWS, 1)), draw((1, WIDTH))
    assert residual(0.3 * FIRST).common(FIRST) == pytest.approx(0.3)
    assert residual(by_row * FIRST).per_row(FIRST) == pytest.approx(by_row)
    assert residual(by_column * FIRST).per_column(FIRST) == pytest.approx(by_column)
    labels = np.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) % 7
    of_label = draw(7)[labels]
    assert residual(of_label * FIRST).per_label(FIRST, labels) == pytest.approx(of_label)


def test_a_factor_weighs_elements_by_what_each_says() -> None:
    # an element says as much as its variance and the usual one of its row let it
    variance = np.array([[1.0, 1.0, 3.0]])
    factor = residual(np.array([[1.0, 0.0, 8.0]]), variance).common(np.ones((1, 3)))
    assert factor == pytest.approx((1.0 / 2 + 8.0 / 4) / (1.0 / 2 + 1.0 / 2 + 1.0 / 4))


def test_two_patterns_that_are_nearly_alike_have_factors_of_their_own() -> None:
    of_first, of_second = draw((ROWS, 1)), draw((ROWS, 1))
    error = of_first * FIRST + of_second * SECOND
    factors = residual(error).two_factors(FIRST, SECOND)
    assert factors[0] == pytest.approx(of_first)
    assert factors[1] == pytest.approx(of_second)
    assert residual(error).two_per_row(FIRST, SECOND) == pytest.approx(error)
    # of the same pattern twice the first has it all
    alone = residual(of_first * FIRST).two_factors(FIRST, 2.0 * FIRST)
    assert alone[0] == pytest.approx(of_first)
    assert not alone[1].any()


def test_the_error_of_a_right_kernel_has_the_expected_energy_and_deviation() -> None:
    # of some hundred rows of uniform errors; equal rows count once
    generator = np.random.default_rng(6)
    variance = np.exp(0.5 * generator.standard_normal((400, 16)))
    error = generator.uniform(-1.0, 1.0, (400, 16)) * np.sqrt(3.0 * variance)
    of_rows = residual(error, variance)
    assert (of_rows.rows, of_rows.size, of_rows.distinct) == (400, 6400, 6400)
    assert abs(of_rows.energy - of_rows.expected) < 3.0 * of_rows.deviation
    halves = [(of_rows.weight * error**2)[part].sum() for part in np.split(np.arange(400), 100)]
    assert np.std(halves) * 10.0 == pytest.approx(of_rows.deviation, rel=0.2)
    assert of_rows.unit == pytest.approx(of_rows.expected / 6400)


def test_rows_that_are_alike_up_to_a_power_of_two_count_once() -> None:
    scale = np.array([[1.0], [2.0], [1.0], [4.0]])
    error = np.concatenate([scale * FIRST[:1], FIRST[1:3]])
    variance = np.concatenate([scale**2 * VARIANCE[:1], VARIANCE[1:3]])
    all_rows, once = residual(error, variance), residual(FIRST[:3], VARIANCE[:3])
    assert all_rows.copies.ravel().tolist() == [4, 4, 4, 4, 1, 1]
    assert (all_rows.rows, all_rows.size, all_rows.distinct) == (3, 3 * WIDTH, 3 * WIDTH)
    assert all_rows.energy == pytest.approx(once.energy)
    assert all_rows.expected == pytest.approx(once.expected)
    assert all_rows.deviation == pytest.approx(once.deviation)


def test_equal_errors_of_a_row_say_less() -> None:
    few = np.repeat(FIRST[:, :10], 4, axis=1)
    few_errors = residual(few, np.ones_like(few))
    assert few_errors.distinct == ROWS * 10
    other = residual(FIRST, np.ones_like(few))
    # chi squared is in units of a quarter of the elements, and of what is left beyond rounding
    expected = other.expected
    of_few, of_all = (part.evidence(expected + 30.0, expected) for part in (few_errors, other))
    assert of_few == pytest.approx(of_all / 4.0)
    assert of_all == pytest.approx(30.0 / other.unit)
    assert other.evidence(4.0 * expected, 2.0 * expected) == pytest.approx(other.size)


def test_energy_by_label_is_in_units_of_what_rounding_adds() -> None:
    labels = np.broadcast_to(np.arange(WIDTH) // 10, FIRST.shape)
    ones = np.ones_like(FIRST)
    sizes = np.array([1.0, 2.0, 3.0, 4.0])[labels]
    signs = np.where(draw(FIRST.shape) > 0.0, 1.0, -1.0)
    assert residual(sizes * signs, ones).per_label_energy(labels) == pytest.approx([1, 4, 9, 16])


@pytest.mark.parametrize(
    ("factor", "noise", "near", "is_related"),
    [
        (0.6, 9.0, 0.5, True),  # nearer to 1: other faults may be beside it
        (0.4, 9.0, 0.5, False),
        (0.4, 0.1, 0.5, True),
        (-0.4, 0.1, 0.5, True),
        (0.6, 9.0, np.inf, False),
        (0.6, 0.1, np.inf, True),
    ],
)
def test_an_effect_relates_to_the_output_that_it_explains(
    factor: float, noise: float, near: float, *, is_related: bool
) -> None:
    variance = np.full_like(FIRST, 1e-6)
    effect = (factor - 1.0) * FIRST
    shown = residual(effect + noise * 0.1 * draw(FIRST.shape), variance)
    for axis in (None, 1):
        assert shown.relates(FIRST, effect, axis, near).all() == is_related


def of_stored(error: Doubles, form: str = "bf16") -> tuple[StoredStatistics, Doubles]:
    """Return the errors of stored statistics of rows, and the deviations of rounding them."""
    mean, rstd = 3.0 + draw((ROWS, 1)), np.exp(draw((ROWS, 1)))
    right = statistics.Statistics("", mean, rstd)
    stored = StoredStatistics.of(right, FIRST, -SECOND, form, residual(error, 1e-4 * VARIANCE))
    steps = np.stack([half_ulp(rstd, form) / rstd, half_ulp(mean, form)])[..., 0]
    return stored, steps * np.sqrt(ROUNDINGS / 3)


def likeliest(stored: StoredStatistics, rest: Doubles, deviations: Doubles) -> Doubles:
    """Return the likeliest errors of rstd and mean (2, rows), row by row by least squares."""
    solved = []
    for row in range(ROWS):
        scale = np.sqrt(stored.residual.weight[row])
        prior = np.sqrt(stored.residual.unit) / deviations[:, row]
        patterns = np.concatenate([(np.stack([FIRST, -SECOND])[:, row] * scale).T, np.diag(prior)])
        solved.append(
            np.linalg.lstsq(patterns, np.append(rest[row] * scale, [0, 0]), rcond=None)[0]
        )
    return np.array(solved).T


def test_stored_statistics_have_the_likeliest_errors() -> None:
    off = 0.003 * draw((2, ROWS, 1))
    error = off[0] * FIRST - off[1] * SECOND + 0.01 * draw(FIRST.shape)
    stored, deviations = of_stored(error)
    likely = likeliest(stored, error, deviations)
    effect = likely[0][:, None] * FIRST - likely[1][:, None] * SECOND
    rest = stored.rest()
    assert rest.error == pytest.approx(error - effect)
    cost = float(stored.residual.unit * np.square(likely / deviations).sum())
    assert stored.energy(error) == pytest.approx(rest.energy + cost)
    beside = stored.beside(Fault("a fault", 0.0 * FIRST, 2.0, cost=1.0))
    assert beside.effect == pytest.approx(effect)
    assert beside.cost == pytest.approx(1.0 + cost)
    # numbers that rounding holds near 0 are fitted in part
    assert 2.0 < beside.fitted < 2.0 + 2 * ROWS
    assert stored.sizes(likely) == pytest.approx(likely / deviations)


def test_stored_statistics_of_rows_that_are_alike_are_those_of_one() -> None:
    twice = np.repeat(np.arange(ROWS), 2)
    error, mean, rstd = 0.01 * FIRST, 3.0 + draw((ROWS, 1)), np.exp(draw((ROWS, 1)))

    def of(rows: NDArray[np.intp]) -> StoredStatistics:
        right = statistics.Statistics("", mean[rows], rstd[rows])
        off = residual(error[rows], 1e-4 * VARIANCE[rows])
        return StoredStatistics.of(right, FIRST[rows], -SECOND[rows], "bf16", off)

    once, both = of(np.arange(ROWS)), of(twice)
    assert both.rest().error == pytest.approx(once.rest().error[twice])
    fault = Fault("a fault", 0.0 * FIRST), Fault("a fault", 0.0 * FIRST[twice])
    fitted = once.beside(fault[0]).fitted, both.beside(fault[1]).fitted
    assert fitted[1] == pytest.approx(fitted[0])
    assert both.energy(error[twice]) == pytest.approx(once.energy(error))


def test_a_factor_is_found_beside_the_errors_of_stored_statistics() -> None:
    pattern = 2.0 + draw(FIRST.shape)
    off = 0.003 * draw((2, ROWS, 1))
    stored, _ = of_stored(0.02 * pattern + off[0] * FIRST - off[1] * SECOND)
    least = min(np.linspace(0.0, 0.04, 401), key=lambda f: stored.energy(_rest(stored, f, pattern)))
    assert stored.common(pattern) == pytest.approx(least, abs=1e-4)
    assert stored.common(pattern) == pytest.approx(0.02, rel=0.05)


def _rest(stored: StoredStatistics, factor: float, pattern: Doubles) -> Doubles:
    return np.asarray(stored.residual.error - factor * pattern)


def test_errors_that_are_more_than_roundings_are_those_of_no_stored_statistic() -> None:
    pattern = draw(FIRST.shape)
    for many, is_named in ((1.0, True), (30.0, False)):
        steps = of_stored(FIRST)[1]
        error = 0.5 * pattern
        error[2] += many * steps[0, 2] * FIRST[2]
        stored, _ = of_stored(error)
        fault = stored.likeliest([Fault("a fault", 0.5 * pattern)])
        assert (fault is not None) is is_named


def test_the_first_of_equally_likely_faults_is_named_and_none_where_roundings_are_enough() -> None:
    pattern = draw(FIRST.shape)
    stored, _ = of_stored(0.5 * pattern)
    faults = [Fault("half of it", 0.25 * pattern), *(Fault(w, 0.5 * pattern) for w in "ab")]
    likelier = stored.likeliest(faults)
    assert likelier is not None
    assert likelier.words == "a"
    assert stored.likeliest([]) is None
    assert stored.likeliest([Fault("no number", np.full_like(pattern, np.nan))]) is None
    alone, deviations = of_stored(0.0 * FIRST)
    small, _ = of_stored(0.3 * deviations[0][:, None] * FIRST)
    assert small.likeliest([Fault("nothing", 1e-4 * pattern)]) is None
    assert alone.likeliest([Fault("nothing", 1e-4 * pattern)]) is None


def test_a_factor_gives_way_to_an_epsilon_by_more_than_chance_only() -> None:
    zero = np.zeros_like(FIRST)
    for left, is_epsilon in ((1.0, False), (9.0, True)):
        error = residual(zero, VARIANCE)
        # what the factor leaves, in deviations of the energy; the epsilon leaves nothing
        size = np.sqrt(left * error.deviation / (error.weight * FIRST**2).sum())
        factor, epsilon = Fault("a factor", size * FIRST), Fault("an epsilon", zero)
        named = statistics.likelier_of([factor], epsilon, error)
        assert [fault.words for fault in named] == ["an epsilon" if is_epsilon else "a factor"]
    # of several factors the nearest one counts
    two = [factor, Fault("no factor", zero)]
    assert statistics.likelier_of(two, epsilon, error) == two
    assert statistics.likelier_of([], epsilon, error) == []
    assert statistics.likelier_of([factor], None, error) == [factor]
    undefined = Fault("an epsilon", np.full_like(zero, np.inf))
    assert statistics.likelier_of([factor], undefined, error) == [factor]


@pytest.mark.parametrize(
    ("features", "lengths"),
    [
        (160, [164, 168, 176, 192, 256, 512, 1024]),
        (1000, [1004, 1008, 1024]),
        (64, [68, 72, 80, 96, 128, 256, 512, 1024]),
        (1025, [1028, 1032, 1040, 1056, 1088, 1152, 1280, 1536, 2048]),
        (4095, [4096]),
        (5000, [5004, 5008, 5024, 5056, 5120, 8192]),
        (1, [4, 8, 16, 32, 64, 128, 256, 512, 1024]),
    ],
)
def test_rows_are_padded_to_whole_vectors_and_tiles(features: int, lengths: list[int]) -> None:
    assert padding.padded(features) == lengths


def test_a_loop_leaves_out_a_tile_its_rest_or_what_the_data_show() -> None:
    assert statistics.left_out(160, 12) == [3, 12, 32]
    assert statistics.left_out(40) == [3, 8, 32]
    assert statistics.left_out(32, 32, 0) == [3]
    assert statistics.left_out(1) == []
    terms = np.abs(draw((ROWS, WIDTH)))
    for width in (1, 7, WIDTH):
        missing = terms[:, -width:].sum(axis=1, keepdims=True)
        assert statistics.tail(terms, 1.0001 * missing) == width


def test_a_kernel_without_epsilon_has_no_other_one() -> None:
    assert statistics.fitted_epsilon(lambda value: value * FIRST, 0.0, residual(FIRST)) is None
    other = statistics.fitted_epsilon(lambda value: value * FIRST, 1e-5, residual(0.03 * FIRST))
    assert other is not None
    assert other.words == "epsilon is about 0.03"


def test_a_fault_of_many_numbers_needs_more_evidence_beside_stored_statistics() -> None:
    pattern = draw(FIRST.shape)
    large, _ = of_stored(pattern)
    evidence = (large.energy(pattern) - 0.0) / large.residual.unit
    error = np.sqrt(100.0 / evidence) * pattern  # four times what one number needs
    stored, _ = of_stored(error)
    for fitted, is_named in ((0.0, True), (1.0, True), (3.0, True), (5.0, False)):
        fault = stored.likeliest([Fault("a fault", error, fitted)])
        assert (fault is not None) is is_named
