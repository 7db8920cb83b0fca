"""Sums that replays share: epsilon and gamma do not change them, nor does a part of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic, output
from gonogo.kernels.normalization.moments import Rows, moments
from gonogo.kernels.normalization.row_moments import root_mean_squares, row_moments
from gonogo.numerics import jit
from gonogo.numerics.formats import round_to
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.numerics.replay.cells import on_grid
from gonogo.numerics.replay.orders import partial_mean_deviation
from gonogo.numerics.replay.program import WELFORD, Order, Program
from gonogo.numerics.replay.quantity import Quantity

PROGRAMS = (
    Program(),
    Program("x", "(x - mean) / root"),
    Program("E[x^2] - mean^2", order=Order.running),
    Program(WELFORD),
    Program(WELFORD, order=Order.running_mean),
    Program("x", stored={"mean": "bf16", "variance": "bf16"}),
    Program(stored={"epsilon": "bf16", "mean": "bf16", "x - mean": "bf16", "square": "bf16"}),
    Program(stored={"epsilon": "fp16", "sum of squares": "fp16", "N": "fp16", "rstd": "fp16"}),
)


def drawn(rows: int = 6, width: int = 37) -> Rows:
    x = np.random.default_rng(width).standard_normal((rows, width)) + 0.5
    x[1] = x[1, 0]
    gamma = np.random.default_rng(1).standard_normal((1, width))
    return Rows(x.astype(np.float32).astype(np.float64), gamma, None, 1e-5)


def bits(quantity: Quantity) -> bytes:
    arrays = (quantity.values, quantity.variance, quantity.slack)
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def test_another_epsilon_or_gamma_has_the_statistics_of_new_rows() -> None:
    rows = drawn()
    chosen = np.array([0, 2, 5], np.intp)
    for quick in (False, True):
        for program in PROGRAMS:  # each after those before it, with whose sums it may not mix
            for epsilon in (1e-5, 0.25, 1e-3):
                other = rows.with_epsilon(epsilon).some(chosen).with_gamma(np.ones((1, 37)))
                new = replace(drawn(), epsilon=epsilon, gamma=np.ones((1, 37))).some(chosen)
                assert bits(NormalizedRows(other).replay(program, quick=quick)) == bits(
                    NormalizedRows(new).replay(program, quick=quick)
                )
                assert other.sums is rows.some(chosen).sums


@pytest.mark.parametrize(
    "program", [Program(), Program("x", "(x - mean) / root"), Program(WELFORD)]
)
def test_epsilon_may_be_outside_of_the_root(program: Program) -> None:
    rows, chosen = drawn(), np.array([0, 2, 5], np.intp)
    outside = rows.with_epsilon(1e-3, is_outside=True).with_gamma(np.ones((1, 37))).some(chosen)
    x = rows.x[chosen]
    expected = (x - x.mean(axis=1, keepdims=True)) / (x.std(axis=1, keepdims=True) + 1e-3)
    replay = NormalizedRows(outside).replay(program)
    assert np.allclose(replay.values, expected, rtol=1e-6, atol=0.0)
    inside = NormalizedRows(rows.with_epsilon(1e-3).some(chosen)).replay(program)
    assert np.sqrt(replay.variance).max() < 2.0 * np.sqrt(inside.variance).max()


def test_rows_with_other_values_share_no_sums() -> None:
    rows = drawn()
    root_mean_squares(rows)
    assert not replace(rows, x=rows.x + 1.0).sums


@pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")
@pytest.mark.parametrize("epsilon", [1e-5, 0.0])
def test_a_part_of_a_large_tensor_is_replayed_as_the_definition_does(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "MIN_ELEMENTS", 1000)
    rows = drawn(40, 333)
    row_moments(Program(), rows)  # by loops; their sums are those of the part
    part = rows.with_epsilon(epsilon).some(np.array([0, 2, 3, 30], np.intp))
    alone = Rows(part.x, part.gamma, None, epsilon)  # too small for loops
    for program in PROGRAMS:
        replay = NormalizedRows(part).replay(program)
        definition = output(program, alone, moments(program, alone))
        assert replay.values.tobytes() == definition.values.tobytes()
        assert np.allclose(replay.variance, definition.variance, rtol=1e-12, atol=0.0)
        assert np.allclose(replay.slack, definition.slack, rtol=1e-12, atol=0.0)


@pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")
@pytest.mark.parametrize("width", [1, 3, 31, 32, 33, 1000])
@pytest.mark.parametrize("type_of_x", [np.float32, np.float64])
def test_root_mean_squares_by_loops_are_those_of_numpy(
    width: int, type_of_x: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.asarray(drawn(40, width).x * 2.0 ** np.arange(-20, 20)[:, None], type_of_x)
    x[0, 0], x[1, -1], x[2] = np.inf, -np.inf, 0.0
    results: list[NDArray[np.float64]] = []
    for least in (0, x.size):
        monkeypatch.setattr(jit, "MIN_ELEMENTS", least)
        results.append(root_mean_squares(Rows(x.astype(np.float64), None, None, 1e-5)))
    assert np.allclose(*results, rtol=1e-14, atol=0.0)
    monkeypatch.setattr(jit, "MIN_ELEMENTS", 0)
    rows = Rows(x.astype(np.float64), None, None, 1e-5)
    whole, part = root_mean_squares(rows), root_mean_squares(rows.some(np.array([3, 7], np.intp)))
    assert part.tobytes() == whole[[3, 7]].tobytes()


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_a_mean_deviates_at_least_by_the_rounding_of_partial_means(
    form: str, offset: float
) -> None:
    rows = drawn()
    rows = replace(rows, x=np.asarray(round_to(rows.x + offset, form), np.float64))
    replay = RowStatistic(rows, rstd=False).replay(Program())
    usual = row_moments(Program(), rows).mean
    assert usual is not None
    size = np.sqrt(np.square(rows.x).mean(axis=1, keepdims=True))
    least = partial_mean_deviation(size, usual.values, 37) ** 2
    assert np.allclose(replay.variance, np.maximum(usual.variance, least), rtol=1e-9, atol=0.0)
    assert replay.values.tobytes() == usual.values.tobytes()


def test_a_grid_of_bf16_has_the_values_that_rounding_leaves() -> None:
    generator = np.random.default_rng(3)
    patterns = generator.integers(0, 2**32, (400, 1), np.uint32)
    patterns[::2] &= np.uint32(0xFFFF0000)
    values = patterns.view(np.float32)
    values = values[np.isfinite(values[:, 0])]
    on_the_grid = round_to(values, "bf16") == values
    assert 100 < on_the_grid.sum() < 300
    for value, is_held in zip(values, on_the_grid, strict=True):
        assert on_grid(value[None], "bf16") == is_held[0]
