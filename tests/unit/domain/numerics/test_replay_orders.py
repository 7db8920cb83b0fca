"""Sums in simulated orders, against plain loops over float32."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import orders, spans
from gonogo.numerics.replay.program import Order

COUNTS = (1, 2, 3, 4, 7, 8, 31, 32, 33, 64, 100, 257)


def drawn(rows: int, count: int, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((rows, count)) + 3).astype(np.float32)


def in_lanes(row: NDArray[np.float32], lanes: int) -> np.float32:
    totals = [np.float32(0)] * lanes
    for place, term in enumerate(row):
        totals[place % lanes] += term
    while len(totals) > 1:
        half = len(totals) // 2
        totals = [a + b for a, b in zip(totals[:half], totals[half:], strict=True)]
    return np.float32(totals[0])


def in_halves(row: NDArray[np.float32]) -> np.float32:
    totals = list(row)
    while len(totals) > 1:
        half = (len(totals) + 1) // 2
        rest = totals[half:] + [np.float32(0)] * (2 * half - len(totals))
        totals = [a + b for a, b in zip(totals[:half], rest, strict=True)]
    return np.float32(totals[0])


@pytest.mark.parametrize("count", COUNTS)
def test_the_deviation_is_the_largest_error_of_lanes_and_of_the_tree(count: int) -> None:
    terms = drawn(40, count)
    mean, deviation = orders.mean(terms, Order.blocked)
    exact = np.array([math.fsum(map(float, row)) / count for row in terms])
    sums = [[*(in_lanes(row, lanes) for lanes in (4, 8, 32)), in_halves(row)] for row in terms]
    errors = np.abs(np.array(sums, np.float64) / count - exact[:, None])
    largest = errors.max(axis=1)
    floor = orders.MIN_ULPS * 2.0**-23 * 2.0 ** np.floor(np.log2(np.abs(exact)))
    size = np.abs(terms).mean(axis=1, dtype=np.float64)
    expected = np.maximum(np.maximum(largest, (largest / size).mean() * size), floor)
    assert mean == pytest.approx(exact, rel=1e-15, abs=0)
    assert deviation == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("lanes", "offset", "least"), [(1, 0, 0.5), (4, 0, 0.25), (4, 30, 0.5), (8, 30, 0.25)]
)
def test_running_means_of_16_bit_terms_deviate_as_derived(
    lanes: int, offset: int, least: float
) -> None:
    generator = np.random.default_rng(5)
    terms = round_to(offset + generator.standard_normal((400, 512)), "bf16").astype(np.float32)
    mean = np.zeros((400, lanes), np.float32)
    for step in range(512 // lanes):
        column = terms[:, step * lanes : (step + 1) * lanes]
        mean += (column - mean) / np.float32(step + 1)
    exact = terms.mean(axis=1, dtype=np.float64)
    errors = mean.mean(axis=1, dtype=np.float64) - exact
    size = np.sqrt(np.square(terms, dtype=np.float64).mean(axis=1))
    derived = orders.partial_mean_deviation(size, exact, 512)
    assert least < math.sqrt(float(np.square(errors / derived).mean())) < 1.1


def test_a_row_deviates_at_least_as_the_average_row() -> None:
    terms = drawn(40, 300)
    terms[0] = 3.5  # every order is exact
    _, alone = orders.mean(terms[:1], Order.blocked)
    _, deviation = orders.mean(terms, Order.blocked)
    assert alone[0] == orders.MIN_ULPS * 2.0**-22
    assert deviation[0] > alone[0]
    assert deviation[0] < deviation.mean()


def test_rows_of_any_size_deviate_alike() -> None:
    # the rows of a small size once had the deviations of the large ones, and hid a wrong epsilon
    terms = drawn(16, 300)
    scale = (2.0 ** (3 * np.arange(16)))[:, None].astype(np.float32)
    for order in Order:
        _, deviation = orders.mean(terms, order)
        _, scaled = orders.mean(terms * scale, order)
        assert scaled == pytest.approx(deviation * scale[:, 0], rel=1e-12, abs=0)
    _, deviation = orders.welford(terms)
    _, scaled = orders.welford(terms * scale)
    assert scaled == pytest.approx(deviation * scale[:, 0] ** 2, rel=1e-12, abs=0)


@pytest.mark.parametrize("count", COUNTS)
def test_running_orders_take_in_term_after_term(count: int) -> None:
    terms = drawn(3, count, seed=1)
    sums, _ = orders.mean(terms, Order.running)
    means, _ = orders.mean(terms, Order.running_mean)
    for row, by_sum, by_mean in zip(terms, sums, means, strict=True):
        total = running = np.float32(0)
        for place, term in enumerate(row, 1):
            total += term
            running += (term - running) / np.float32(place)
        assert by_sum == float(total) / count
        assert by_mean == float(running)


def test_a_running_sum_may_be_off_by_a_part_of_its_error() -> None:
    terms = np.linspace(100, 101, 2**16, dtype=np.float32)[None]
    blocked, deviation = orders.mean(terms, Order.blocked)
    running, spread = orders.mean(terms, Order.running)
    error = abs(running[0] - blocked[0])
    assert error > 5 * deviation[0]
    assert spread[0] == pytest.approx(np.hypot(deviation[0], orders.RUNNING_SPREAD * error), abs=0)


def test_other_orders_stay_within_a_few_deviations() -> None:
    generator = np.random.default_rng(2)
    terms = drawn(200, 1000, seed=3)
    exact, deviation = orders.mean(terms, Order.blocked)
    shuffled = terms[:, generator.permutation(1000)]
    blocks = shuffled.reshape(200, 50, 20).sum(axis=2, dtype=np.float32)
    error = np.abs(blocks.sum(axis=1, dtype=np.float32) / 1000.0 - exact) / deviation
    assert error.max() < 4
    assert np.sqrt(np.mean(error**2)) > 0.2


def test_a_quick_deviation_comes_from_the_size_of_the_terms() -> None:
    terms = np.array([[-2.0, 2.0, 6.0]], np.float32)
    mean, deviation = orders.mean(terms, Order.blocked, quick=True)
    assert mean[0] == 2.0
    assert deviation[0] == pytest.approx(2.0**-23 * 10 / 3, abs=0)


@pytest.mark.parametrize(
    ("rows", "width", "blocks"),
    [(1, 1, 1), (819, 8462, 14), (64, 2**13, 1), (65, 2**13, 2), (3, 2**20, 3)],
)
def test_blocks_are_even_and_cover_all_rows(rows: int, width: int, blocks: int) -> None:
    edges = spans.even(rows, width)
    sizes = [stop - start for start, stop in edges]
    assert len(edges) == blocks
    assert (edges[0][0], edges[-1][1]) == (0, rows)
    assert all(first[1] == second[0] for first, second in pairwise(edges))
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == 1 or max(sizes) * width <= spans.ELEMENTS


def test_averages_are_those_of_the_row_s_block() -> None:
    values = np.array([1.0, 3.0, 10.0])
    assert spans.averages(values, [(0, 2), (2, 3)]).tolist() == [2.0, 2.0, 10.0]


def test_the_variance_of_welford_s_updates_is_as_far_off_as_its_rounded_means() -> None:
    deviations = np.random.default_rng(4).standard_normal((40, 33))
    for offset, least, most in ((0.0, 0.0, 3e-7), (100.0, 3e-7, 1e-5)):
        x = (offset + deviations).astype(np.float32)
        variance, deviation = orders.welford(x)
        assert np.allclose(variance, x.astype(np.float64).var(axis=1), rtol=1e-12)
        relative = deviation / variance
        assert least < relative.mean() < most
        # one more order, of a single lane, lies within a few deviations
        mean, squares = np.zeros((2, 40), np.float32)
        for count, column in enumerate(x.T, 1):
            off = column - mean
            mean += off / np.float32(count)
            squares += off * (column - mean)
        assert (np.abs(squares / 33 - variance) < 8 * deviation).all()
