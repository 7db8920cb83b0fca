"""A shift of the mean that all rows share shows in them together, though no row shows it alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.layernorm.replay import BackwardRows, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder, shifts
from gonogo.numerics.replay.cells import SharedErrors
from gonogo.numerics.replay.common import score
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.shifts import MeanOfRows, common_shift

ROWS, WIDTH = 32, 1024
EPSILON = 1e-5
SHIFT = 6e-6
Floats = NDArray[np.float32]


def inputs(form: str = "fp32", rows: int = ROWS) -> Floats:
    x = 10.0 + np.random.default_rng(3).standard_normal((rows, WIDTH))
    return round_to(x, form).astype(np.float32)


def rows_of(x: Floats) -> Rows:
    return Rows(x.astype(np.float64), None, None, EPSILON)


def in_lanes(x: Floats, lanes: int) -> Floats:
    partial = np.add.accumulate(x.reshape(len(x), -1, lanes), axis=1)[:, -1]
    while partial.shape[1] > 1:
        partial = partial[:, ::2] + partial[:, 1::2]
    return np.asarray(partial / np.float32(WIDTH))


def updated(x: Floats) -> Floats:
    mean = np.zeros((len(x), 1), np.float32)
    for step in range(WIDTH):
        mean = mean + (x[:, step : step + 1] - mean) / np.float32(step + 1)
    return np.asarray(mean)


def corrected(x: Floats) -> Floats:
    mean = in_lanes(x, 4)
    return mean + in_lanes(x - mean, 4)


def about_the_first(x: Floats) -> Floats:
    return x[:, :1] + in_lanes(x - x[:, :1], 4)


def cut_off(x: Floats) -> Floats:
    """Return the means of sums of 32 terms at a time, whose total is truncated."""
    totals = np.zeros((len(x), 1), np.float32)
    for start in range(0, WIDTH, 32):
        part = x[:, start : start + 32].sum(axis=1, keepdims=True, dtype=np.float64)
        total = totals + part
        near = total.astype(np.float32)
        below = np.nextafter(near, np.float32(0))
        totals = np.where(np.abs(near) > np.abs(total), below, near)
    return np.asarray(totals / np.float32(WIDTH))


def kernel(x: Floats, mean: NDArray[np.floating]) -> Floats:
    """Return y of a kernel in fp32 that has these means (rows, 1)."""
    centered = x - mean.astype(np.float32)
    variance = (centered * centered).mean(axis=1, keepdims=True, dtype=np.float32)
    return np.asarray(centered * (1.0 / np.sqrt(variance + np.float32(EPSILON))), np.float32)


def exact(x: Floats) -> NDArray[np.float64]:
    return np.asarray(x.mean(axis=1, keepdims=True, dtype=np.float64))


SHIFTED: dict[str, Callable[[Floats], NDArray[np.float64]]] = {
    "an absolute shift": lambda x: exact(x) + SHIFT,
    "a shift by a share of each row's deviation": lambda x: (
        exact(x) - SHIFT / 2 * x.std(1)[:, None]
    ),
    "a share of each mean": lambda x: exact(x) * (1.0 + SHIFT / 10),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_a_shift_that_no_row_shows_alone_shows_in_all_of_them(name: str) -> None:
    x = inputs()
    means = SHIFTED[name](x)
    for graph, output in (
        (NormalizedRows(rows_of(x)), kernel(x, means)),
        (RowStatistic(rows_of(x), rstd=False), means.astype(np.float32)),
    ):
        measured = measure(graph, graph.forms[0], output, "fp32", ladder.LIMIT)
        assert max(measured.largest, measured.largest_row) <= ladder.LIMIT
        finding = ladder.climb(graph, output, "fp32", [])
        assert not finding.explained
        assert finding.row_error > ladder.LIMIT


def test_rows_with_means_of_any_size_show_a_share_of_the_mean() -> None:
    x = inputs() * np.linspace(-1.0, 1.0, ROWS, dtype=np.float32)[:, None]
    graph = RowStatistic(rows_of(x), rstd=False)
    right = exact(x).astype(np.float32)
    wrong = (exact(x) * (1 + SHIFT / 10)).astype(np.float32)
    assert ladder.climb(graph, right, "fp32", []).explained
    assert not ladder.climb(graph, wrong, "fp32", []).explained


def test_dx_shows_a_shift_of_the_mean_that_its_kernel_computes() -> None:
    x = inputs()
    dy = np.random.default_rng(4).standard_normal(x.shape).astype(np.float32)
    rows = BackwardRows(
        x.astype(np.float64), dy.astype(np.float64), np.ones((1, WIDTH)), None, None, EPSILON
    )
    for shift, is_right in ((0.0, True), (SHIFT, False)):
        centered = x - (exact(x) + shift).astype(np.float32)
        rstd = 1.0 / np.sqrt((centered * centered).mean(axis=1, keepdims=True) + EPSILON)
        normalized = centered * rstd.astype(np.float32)
        s1 = dy.mean(axis=1, keepdims=True)
        s2 = (dy * normalized).mean(axis=1, keepdims=True)
        dx = (rstd * (dy - s1 - normalized * s2)).astype(np.float32)
        assert ladder.climb(InputGradient(rows), dx, "fp32", []).explained == is_right


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "mean_of",
    [
        *(lambda x, lanes=lanes: in_lanes(x, lanes) for lanes in (1, 2, 4, 16, 128)),
        updated,
        corrected,
        about_the_first,
    ],
)
def test_a_right_kernel_has_no_common_shift(
    form: str, sign: int, mean_of: Callable[[Floats], Floats]
) -> None:
    x = inputs(form) * np.float32(sign)
    graph = NormalizedRows(rows_of(x))
    assert ladder.climb(graph, kernel(x, mean_of(x)), "fp32", []).explained


def test_a_total_that_is_cut_off_is_no_shift_but_its_error_in_the_other_direction_is() -> None:
    x = np.random.default_rng(1).random((ROWS, WIDTH)).astype(np.float32)
    graph = NormalizedRows(rows_of(x))
    off = cut_off(x) - exact(x)
    assert (off < 0.0).all()
    assert ladder.climb(graph, kernel(x, exact(x) + off), "fp32", []).explained
    assert not ladder.climb(graph, kernel(x, exact(x) - off), "fp32", []).explained


def test_rows_that_are_alike_say_the_same_thing_once() -> None:
    x = np.repeat(inputs(rows=1), ROWS, axis=0)
    graph = NormalizedRows(rows_of(x))
    y = kernel(x, exact(x) + SHIFT)
    measured = measure(graph, Program(), y, "fp32", ladder.LIMIT)
    assert common_shift(graph, Program(), "fp32", measured.shared) == 0.0


def test_a_kernel_that_stores_its_mean_has_no_shift_of_its_rounding() -> None:
    x = inputs("bf16")
    graph = NormalizedRows(rows_of(x))
    stored = Program(stored={"mean": "bf16"})
    assert graph.mean_of_rows(Program()) is not None
    assert graph.mean_of_rows(stored) is None
    assert RowStatistic(rows_of(x), rstd=True).mean_of_rows(Program()) is None


@dataclass(frozen=True)
class Means:
    """A graph of rows whose means are exact by any order: all elements of a row are equal."""

    means: MeanOfRows | None

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the means, whatever the program."""
        return self.means


UNIT = 2.0**-40
"""The deviation of a mean, next to which the roundings of the tests' own sums are nothing."""
SAYS = 0.5
"""The variance of a row's estimate, of 1."""
PULLS = np.array([1.0, -1.0, 0.5, 0.0, -0.5, 1.5, -1.5, 0.0])
"""The rows' own errors, in deviations of a row."""
Doubles = NDArray[np.float64]


def means_of(
    count: int, *, deviation: Doubles | float = UNIT, rstd: Doubles | float = 1.0, width: int = 4
) -> MeanOfRows:
    """Return the means 1, -1, 2, -2, ... of rows: an absolute shift is no share of theirs."""
    mean = np.where(np.arange(count) % 2, -1.0, 1.0) * (1.0 + np.arange(count) // 2)
    differing = deviation * (1.0 + 1e-9 * np.arange(count))  # rows that are alike count once
    x = np.repeat(mean[:, None], width, axis=1)
    return MeanOfRows(x, mean, differing, np.broadcast_to(rstd, mean.shape))


def shift_of(
    means: MeanOfRows, off: Doubles, order: Order = Order.blocked, form: str = "fp32"
) -> float:
    """Return the common shift of rows whose means are off by as many deviations."""
    estimates = np.stack([off * SAYS, np.full(len(off), SAYS)])
    errors = SharedErrors(*np.zeros((3, len(off))), estimates)
    return common_shift(Means(means), Program(order=order), form, errors)


def student(off: Doubles) -> float:
    """Return the score of the mean of errors of equal weight."""
    return score(abs(off.mean()) * math.sqrt(len(off)) / off.std(ddof=1), len(off) - 1)


def test_a_shift_is_as_unlikely_as_its_rows_say() -> None:
    for sign in (1.0, -1.0):
        # no right kernel's rows scatter by more than two of their deviations
        of_usual = 5.0 * math.sqrt(8 * SAYS) / 2.0
        assert shift_of(means_of(8), sign * (5.0 + PULLS)) == pytest.approx(of_usual)
        # those of rows that scatter less are Student's
        alike = sign * (5.0 + 0.3 * PULLS)
        assert shift_of(means_of(8), alike) == pytest.approx(student(alike))
        # those of rows that scatter more are their own
        apart = 8.0 * math.sqrt(8) / 4.0
        assert shift_of(means_of(8), sign * (8.0 + 4.0 * PULLS)) == pytest.approx(apart)


def test_a_shift_counts_from_two_rows_on_and_from_what_chance_leaves() -> None:
    two = np.array([11.0, 9.0])
    assert shift_of(means_of(2), two) == pytest.approx(10.0 * math.sqrt(2 * SAYS) / 2.0)
    assert shift_of(means_of(1), two[:1]) == 0.0
    assert shift_of(means_of(8), 40.0 * (np.arange(8) == 3)) == 0.0
    assert shift_of(means_of(8), 4.8 + PULLS) == 0.0
    assert shift_of(means_of(8), 5.0 + PULLS) > 4.89


def test_what_is_small_next_to_a_row_or_scatters_too_little_is_no_shift() -> None:
    pulls = np.tile(PULLS, 32)
    assert shift_of(means_of(256), 1.9 + pulls) == 0.0  # 1.4 deviations of a row's estimate
    assert shift_of(means_of(256), 2.2 + pulls) > 4.89
    assert shift_of(means_of(8), 9.0 + 0.1 * PULLS) == 0.0  # rows that share what they round to
    assert shift_of(means_of(8), 9.0 + 0.2 * PULLS) > 4.89


def test_other_outputs_and_kernels_without_a_mean_of_their_own_have_no_shift() -> None:
    off = 5.0 + PULLS
    assert shift_of(means_of(8), off, form="bf16") == 0.0
    errors = SharedErrors(*np.zeros((3, 8)), np.stack([off * SAYS, np.full(8, SAYS)]))
    assert common_shift(Means(None), Program(), "fp32", errors) == 0.0
    assert common_shift(object(), Program(), "fp32", errors) == 0.0
    assert common_shift(Means(means_of(8)), Program(), "fp32", SharedErrors.none(8)) == 0.0


def test_rows_that_say_nothing_are_left_out() -> None:
    off = 5.0 + PULLS
    expected = shift_of(means_of(7), off[:7])
    silent = np.stack([off * SAYS, np.where(np.arange(8) < 7, SAYS, 0.0)])
    errors = SharedErrors(*np.zeros((3, 8)), silent)
    assert common_shift(Means(means_of(8)), Program(), "fp32", errors) == pytest.approx(expected)
    exact = means_of(8, deviation=np.where(np.arange(8) < 7, UNIT, 0.0))
    assert shift_of(exact, off) == pytest.approx(expected)
    assert shift_of(means_of(8, deviation=0.0), off) == 0.0


def test_rows_that_differ_by_a_power_of_two_are_alike() -> None:
    sizes = np.exp2(np.arange(8))
    x = np.repeat(sizes[:, None], 4, axis=1)
    alike = MeanOfRows(x, sizes, UNIT * sizes, 1.0 / sizes)
    assert shift_of(alike, 5.0 + PULLS) == 0.0


def test_a_shift_by_a_share_of_each_row_s_deviation_counts_by_it() -> None:
    uneven = np.array([1.0, 3.0, 0.2, 5.0, 0.7, 9.0, 2.0, 0.3])
    even = 1.0 + uneven / 100.0  # an absolute shift explains nearly as much
    for sizes in (uneven, even):
        means = means_of(8, deviation=UNIT, rstd=1.0 / sizes)
        off = 16.0 * sizes + 4.0 * PULLS
        multiple = (off * sizes).sum() / (sizes**2).sum()
        size = multiple * math.sqrt(SAYS * (sizes**2).mean())
        scatter = math.sqrt(SAYS * ((off - multiple * sizes) ** 2).sum() / 7)
        assert shift_of(means, off) == pytest.approx(size * math.sqrt(8) / max(2.0, scatter))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_shift_between_a_running_sum_s_error_and_none_is_that_of_an_order_between(
    sign: float,
) -> None:
    means, running = means_of(8), sign * 60.0
    # the program's means are off already, and the output by something more
    program = means._replace(mean=means.mean + running * UNIT)
    assert shift_of(program, -running / 2.0 + PULLS, Order.running) == 0.0
    assert shift_of(program, -1.5 * running + PULLS, Order.running) > 4.89
    assert shift_of(program, 0.5 * running + PULLS, Order.running) > 4.89


def test_a_shift_beyond_the_orders_counts_from_the_nearest_one() -> None:
    # libraries' running sums differ by a quarter of their error, which a row's estimate holds
    running, variance = 4.0, 1.0 / SAYS
    means = means_of(8)
    program = means._replace(mean=means.mean + running * UNIT)
    usual = 2.0 * math.sqrt(variance / (variance - (running / 4.0) ** 2))
    for beyond, nearest in ((-20.0, 20.0), (24.0, 20.0)):
        deviations = shift_of(program, beyond - running + PULLS, Order.running)
        assert deviations == pytest.approx(nearest * math.sqrt(8) / usual)


def test_a_shift_is_far_from_the_nearest_order_too() -> None:
    means, running, pulls = means_of(256), 4.0, np.tile(PULLS, 32)
    program = means._replace(mean=means.mean + running * UNIT)
    assert shift_of(program, 1.3 + pulls, Order.running) == 0.0
    assert shift_of(program, 1.7 + pulls, Order.running) > 4.89


def test_the_rounded_reciprocal_of_the_count_is_no_shift() -> None:
    # three equal terms have an exact sum, and 1 / 3 in fp32 is too large by 3e-8
    signed = means_of(8).mean
    means = means_of(8, deviation=2.0**-30 * np.abs(signed), width=3)
    reciprocal = 3.0 * float(np.float32(1 / 3)) - 1.0
    off = reciprocal * 2.0**30 * np.sign(signed)
    assert shift_of(means, off + PULLS) == 0.0
    assert shift_of(means, PULLS - off) > 4.89


def test_of_many_rows_a_part_from_the_first_to_the_last_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    off = np.array([11.0, 0.0, 9.0, 0.0, 10.0, 0.0, 0.0, 12.0])
    monkeypatch.setattr(shifts, "MAX_ELEMENTS", 4 * 4)
    assert shift_of(means_of(8), off) == pytest.approx(10.5 * math.sqrt(4 * SAYS) / 2.0)
    monkeypatch.setattr(shifts, "MAX_ELEMENTS", 1)  # two rows are the least that can say it
    assert shift_of(means_of(8), off) == pytest.approx(11.5 * math.sqrt(2 * SAYS) / 2.0)
