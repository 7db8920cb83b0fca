"""Sums down the columns, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.columns import column_sum
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import NOTHING, Quantity

Array = NDArray[np.float64]


def terms(rows: int, form: str = "bf16", seed: int = 0) -> Array:
    drawn = np.random.default_rng(seed).standard_normal((rows, 50))
    return round_to(drawn, form).astype(np.float64)


def stored_in_order(rows: Array, form: str) -> Array:
    total = np.zeros(rows.shape[1])
    for row in rows:
        total = round_to(total + row, form).astype(np.float64)
    return total


def test_a_blocked_sum_is_the_exact_one_with_the_noise_of_its_order() -> None:
    values = terms(300, "fp32")
    total = column_sum(Quantity(values), Program())
    exact = values.sum(axis=0)
    assert total.values[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)
    by_rows = values.astype(np.float32).reshape(30, 10, 50).sum(axis=1, dtype=np.float32)
    error = by_rows.sum(axis=0, dtype=np.float32) - exact
    assert (np.abs(error) < 4 * np.sqrt(total.variance[0])).all()


def test_the_terms_own_errors_add_up_as_independent_ones() -> None:
    values = terms(300, "fp32")
    exact = column_sum(Quantity(values), Program())
    shared = {"rstd": np.full((300, 1), 1e-2)}
    noisy = column_sum(Quantity(values, np.full((1, 1), 1e-4), shared), Program())
    added = noisy.variance - exact.variance
    assert added == pytest.approx(np.full((1, 50), 300 * (1e-4 + 1e-4)), rel=1e-6)


def test_rows_in_order_are_added_in_fp32_one_by_one() -> None:
    values = terms(200, "fp32")
    total = column_sum(Quantity(values), Program(column_order=ColumnOrder.rows))
    running = np.zeros(50, np.float32)
    for row in values.astype(np.float32):
        running += row
    assert total.values[0] == pytest.approx(running.astype(np.float64), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_a_stored_sum_is_rounded_after_each_row(form: str) -> None:
    values = terms(100, form)
    program = Program(stored={"column sum": form}, column_order=ColumnOrder.rows)
    total = column_sum(Quantity(values), program)
    assert np.array_equal(total.values[0], stored_in_order(values, form))
    assert total.slack.max() == 0.0


def test_a_stored_sum_in_parts_adds_the_parts_at_the_end() -> None:
    values = terms(100)
    program = Program(stored={"column sum": "bf16"}, column_order=ColumnOrder.halves)
    parts = [stored_in_order(part, "bf16") for part in (values[:50], values[50:])]
    expected = round_to(parts[0] + parts[1], "bf16")
    assert np.array_equal(column_sum(Quantity(values), program).values[0], expected)


def test_terms_of_unknown_rounding_leave_slack() -> None:
    values = terms(100)
    program = Program(stored={"column sum": "bf16"}, column_order=ColumnOrder.rows)
    noisy = column_sum(Quantity(values, np.full((1, 1), 1e-8)), program)
    assert noisy.slack.max() > 0.0
    assert column_sum(Quantity(values, NOTHING), program).slack.max() == 0.0
