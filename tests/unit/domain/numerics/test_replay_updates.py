"""Updated means and variances: compiled loops have the bits of the definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import MAX_PARTS, Rows
from gonogo.kernels.normalization.row_moments import by_loops
from gonogo.numerics import jit
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.program import Order, Program

if not jit.HAVE_NUMBA:
    pytest.skip("numba: not installed", allow_module_level=True)

WIDTHS = (1, 3, 8, 33, 1000, 8462)


def drawn(width: int) -> NDArray[np.float32]:
    x = np.random.default_rng(width).standard_normal((8, width))
    scale = np.array([1.0, 1e-3, 300.0, 1e4, 1e-12, 1e12, 1.0, 0.0])[:, None]
    x = x * scale + np.array([0.0, 0.0, 3.0, 1e6, 0.0, 0.0, 100.0, 0.5])[:, None]
    return x.astype(np.float32)


@pytest.mark.parametrize("width", WIDTHS)
def test_compiled_updates_have_the_bits_of_numpy(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = drawn(width)
    results = []
    for is_loaded in (False, True):
        monkeypatch.setattr(jit.Compiled, "is_used", is_loaded)
        results.append((*orders.mean(x, Order.running_mean), *orders.welford(x)))
    for numpy_has, compiled_has in zip(*results, strict=True):
        assert numpy_has.tobytes() == compiled_has.tobytes()


def test_equal_parts_of_rows_share_their_statistics() -> None:
    rows = Rows(drawn(33).astype(np.float64), None, None, 1e-5)
    chosen = np.array([1, 4, 6], np.intp)
    y, rstd = NormalizedRows(rows).some(chosen), RowStatistic(rows, rstd=True).some(chosen.copy())
    assert y.rows is rstd.rows
    assert not rows.with_epsilon(0.0).parts  # another epsilon has other statistics
    assert rows.with_epsilon(0.0).some(chosen).epsilon == 0.0


def test_few_parts_of_rows_are_kept() -> None:
    rows = Rows(drawn(33).astype(np.float64), None, None, 1e-5)
    first = rows.some(np.array([0], np.intp))
    for row in range(1, MAX_PARTS + 1):
        rows.some(np.array([row], np.intp))
        rows.some(np.array([0], np.intp))
    assert rows.some(np.array([0], np.intp)) is first  # it was asked for all the time
    assert len(rows.parts) == MAX_PARTS


def test_a_part_has_the_sums_that_its_rows_have_among_all() -> None:
    rows = Rows(drawn(1000).astype(np.float64), None, None, 1e-5)
    chosen = np.array([0, 2, 7], np.intp)
    alone = by_loops(Program(), rows.some(chosen))
    again = Rows(rows.x, None, None, 1e-5)
    by_loops(Program(), again)
    part = by_loops(Program(), again.some(chosen))
    assert part.rstd.values.tobytes() == alone.rstd.values.tobytes()
    assert part.rstd.variance.tobytes() == alone.rstd.variance.tobytes()


def test_all_rows_are_no_part() -> None:
    rows = Rows(drawn(33).astype(np.float64), None, None, 1e-5)
    assert rows.some(np.arange(8)) is rows
    assert rows.some(np.arange(8)[::-1]) is not rows
