"""Sums: right orders lie within the noise, and the noise is no wider than it has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.sums import fp32_sum, narrow_noise, narrow_sum, updated_variance_noise

Singles = NDArray[np.float32]
F = np.float32


def in_lanes(lanes: int) -> Callable[[Singles], Singles]:
    def total(terms: Singles) -> Singles:
        rows, count = terms.shape
        padded = np.zeros((rows, -(-count // lanes) * lanes), F)
        padded[:, :count] = terms
        sums = np.add.reduce(padded.reshape(rows, -1, lanes).transpose(1, 0, 2), axis=0)
        while sums.shape[1] > 1:
            sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
        return sums[:, 0]

    return total


def running(terms: Singles) -> Singles:
    return np.add.accumulate(terms, axis=1)[:, -1]


def in_blocks(terms: Singles) -> Singles:
    rows, count = terms.shape
    padded = np.zeros((rows, -(-count // 32) * 32), F)
    padded[:, :count] = terms
    return running(np.add.accumulate(padded.reshape(rows, -1, 32), axis=2)[:, :, -1])


ORDERS: dict[str, Callable[[Singles], Singles]] = {
    "numpy": lambda terms: terms.sum(axis=1),
    "4 lanes": in_lanes(4),
    "8 lanes": in_lanes(8),
    "32 lanes": in_lanes(32),
    "blocks": in_blocks,
}


def inputs(rows: int, count: int) -> Iterator[tuple[str, Singles]]:
    random = np.random.default_rng(2)
    for offset in (0, 3, 100):
        normal = (random.normal(size=(rows, count)) + offset).astype(F)
        yield f"normal at {offset}", normal
        yield f"squares at {offset}", normal * normal
    yield "equal terms", np.full((rows, count), F(0.1)) * np.linspace(1, 2, rows, dtype=F)[:, None]
    outlier = random.normal(size=(rows, count)).astype(F)
    outlier[:, count // 2] *= 1000
    yield "an outlier", outlier
    normal = random.normal(size=(rows, count))
    yield "total near 0", (normal - normal.mean(axis=1, keepdims=True)).astype(F)
    yield "few bits", normal.astype(ml_dtypes.bfloat16).astype(F)


@pytest.mark.parametrize("count", [2, 3, 4, 17, 64, 1000])
def test_right_orders_lie_within_the_noise(count: int) -> None:
    for title, terms in inputs(200, count):
        exact = terms.sum(axis=1, dtype=np.float64)
        total, deviation = fp32_sum(terms.astype(np.float64))
        np.testing.assert_allclose(total, exact, rtol=1e-12, atol=1e-12)
        for name, order in ORDERS.items():
            error = np.abs(order(terms).astype(np.float64) - exact)
            assert (error <= 8 * deviation + 1e-300).all(), (title, name)


@pytest.mark.parametrize("count", [64, 1000])
def test_the_noise_is_no_wider_than_a_few_errors_of_four_lanes(count: int) -> None:
    for title, terms in inputs(200, count):
        if title in ("equal terms", "few bits"):  # they add without an error
            continue
        error = in_lanes(4)(terms).astype(np.float64) - terms.sum(axis=1, dtype=np.float64)
        _, deviation = fp32_sum(terms.astype(np.float64))
        assert np.sqrt(np.mean(deviation**2)) < 3 * np.sqrt(np.mean(error**2)), title


@pytest.mark.parametrize("count", [5, 100, 3000])
def test_a_running_sum_is_replayed(count: int) -> None:
    for title, terms in inputs(20, count):
        total, deviation = fp32_sum(terms.astype(np.float64), "running")
        error = np.abs(running(terms) - total)
        assert (error <= 1e-12 * np.abs(total) + 1e-12).all(), title
        _, blocked = fp32_sum(terms.astype(np.float64))
        assert (deviation >= blocked).all(), title


def test_what_no_order_rounds_has_no_noise() -> None:
    integers = np.random.default_rng(3).integers(-500, 500, (8, 1000)).astype(np.float64)
    assert not fp32_sum(integers)[1].any()
    integers[3, 5] += 2.0**-9
    assert np.flatnonzero(fp32_sum(integers)[1]).tolist() == [3]


def test_each_row_is_by_itself_however_many_there_are() -> None:
    terms = np.random.default_rng(4).normal(size=(3000, 100))
    for order in ("blocked", "running", "updated"):
        whole = np.array(fp32_sum(terms, order))  # several chunks
        part = np.array(fp32_sum(terms[1234:1240], order))
        np.testing.assert_array_equal(whole[:, 1234:1240], part)
    long = np.random.default_rng(5).normal(size=(1, 300_000))
    total, deviation = fp32_sum(long, "running")
    assert total[0] == running(long.astype(F)) + (long.sum() - long.astype(F).sum(dtype=float))
    assert 0 < deviation[0] < 1


def test_any_leading_axes_and_nothing_to_add() -> None:
    terms = np.random.default_rng(6).normal(size=(2, 3, 50))
    total, deviation = fp32_sum(terms)
    assert total.shape == deviation.shape == (2, 3)
    for shape in ((4, 0), (0, 5), (4, 1)):
        total, deviation = fp32_sum(np.ones(shape))
        assert total.tolist() == [shape[1]] * shape[0]
        assert not deviation.any()


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_totals_in_16_bits(form: str) -> None:
    terms = round_to(np.random.default_rng(7).normal(size=(50, 300)), form)
    noise = narrow_noise(terms, form)
    errors = []
    for lanes in (1, 10, 30):
        totals = np.zeros((50, lanes))
        for block in np.split(terms, 300 // lanes, axis=1):
            totals = round_to(totals + block, form)
        total = totals[:, 0]
        for lane in totals.T[1:]:
            total = round_to(total + lane, form)
        errors.append(np.abs(total - terms.sum(axis=1)))
        assert (errors[-1] <= 8 * noise).all()
    assert noise.mean() < 4 * errors[0].mean()


def welford(x: Singles, lanes: int) -> NDArray[np.float64]:
    """Return variances by updates of each lane's mean, merged at the end, in fp32."""
    rows, count = x.shape
    steps = count // lanes
    mean, squares = np.zeros((rows, lanes), F), np.zeros((rows, lanes), F)
    for at in range(steps):
        column = x[:, at * lanes : (at + 1) * lanes]
        apart = column - mean
        mean = mean + apart / F(at + 1)
        squares = squares + apart * (column - mean)
    center, total = mean[:, 0], squares[:, 0]
    for lane in range(1, lanes):
        apart = mean[:, lane] - center
        center = center + apart / F(lane + 1)
        total = total + squares[:, lane] + apart * apart * F(steps * lane / (lane + 1))
    return total.astype(np.float64) / count


@pytest.mark.parametrize("count", [16, 256, 2048])
def test_welfords_noise(count: int) -> None:
    random = np.random.default_rng(8)
    for offset in (0, 3, 100):
        x = (random.normal(size=(100, count)) + offset).astype(F)
        noise = updated_variance_noise(x.astype(np.float64))
        errors = [welford(x, lanes) - x.var(axis=1, dtype=np.float64) for lanes in (4, 8, 16)]
        assert (np.abs(errors) <= 8 * noise).all()
        assert np.sqrt(np.mean(noise**2)) < 4 * np.sqrt(np.mean(np.square(errors)))


@pytest.mark.parametrize(
    ("totals", "parts"),
    [
        ("running", [range(7)]),
        ("2 parts", [range(4), range(4, 7)]),
        ("3 lanes", [range(0, 7, 3), range(1, 7, 3), range(2, 7, 3)]),
    ],
)
def test_stored_totals_are_added_one_by_one(totals: str, parts: list[range]) -> None:
    terms = round_to(np.random.default_rng(3).normal(size=(5, 7)), "bf16")

    def added(values: Any) -> Any:
        total = np.zeros(5)
        for value in values:
            total = round_to(total + value, "bf16")
        return total

    expected = added(added(terms[:, at] for at in part) for part in parts)
    assert (narrow_sum(terms, "bf16", totals) == expected).all()


@pytest.mark.parametrize("totals", ["", "0 lanes", "2 trees", "lanes"])
def test_unknown_totals_are_refused(totals: str) -> None:
    with pytest.raises(ValueError, match=f"totals '{totals}'"):
        narrow_sum(np.zeros((1, 2)), "bf16", totals)
