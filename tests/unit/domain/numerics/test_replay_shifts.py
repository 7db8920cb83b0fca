"""A shift of the mean that all rows share shows in them together, though no row shows it alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.layernorm.replay import BackwardRows, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.shifts import common_shift

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
