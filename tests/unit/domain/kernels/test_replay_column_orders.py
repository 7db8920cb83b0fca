"""Sums that are stored after each addition, in the orders of libraries."""

from __future__ import annotations

import numpy as np
import pytest

from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.columns import _narrow, column_sum, row_sum
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Quantity
from replay_emulations import running, tree

STORED = [order for order in ColumnOrder if order is not ColumnOrder.blocked]


def terms(rows: int, form: str, seed: int = 0) -> Quantity:
    values = np.random.default_rng(seed).standard_normal((rows, 50))
    return Quantity(round_to(values, form).astype(np.float64))


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_the_short_rounding_is_that_of_the_formats(form: str) -> None:
    generator = np.random.default_rng(1)
    values = generator.standard_normal(20000) * 2.0 ** generator.integers(-24, 12, 20000)
    ties = round_to(values, form).astype(np.float64) * (1 + 2.0**-9)
    for drawn in (values, ties, -ties, np.zeros(3)):
        assert np.array_equal(_narrow(drawn, form), round_to(drawn, form).astype(np.float64))


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("rows", [1, 7, 32, 33, 65, 1100])
def test_known_orders_are_replayed_to_the_bit(rows: int, form: str) -> None:
    drawn = terms(rows, form)
    narrow = drawn.values.astype(np.float32)
    for order, expected in (
        (ColumnOrder.rows, running(narrow, form)),
        (ColumnOrder.windows, tree(narrow, form)),
    ):
        program = Program(stored={"column sum": form}, column_order=order)
        replay = column_sum(drawn, program)
        assert np.array_equal(replay.values[0], expected)
        assert not replay.slack.any()
        along = row_sum(Quantity(drawn.values.T), form, order)
        assert np.array_equal(along.values[:, 0], expected)


def test_folded_lanes_add_their_halves() -> None:
    drawn = terms(24, "fp16").values
    lanes = np.array([running(drawn[lane::8].astype(np.float32), "fp16") for lane in range(8)])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = round_to(lanes[:half] + lanes[half:], "fp16")
    program = Program(stored={"column sum": "fp16"}, column_order=ColumnOrder.folded)
    assert np.array_equal(column_sum(Quantity(drawn), program).values[0], lanes[0])


@pytest.mark.parametrize("order", STORED)
def test_terms_within_their_noise_stay_within_the_slack(order: ColumnOrder) -> None:
    drawn = terms(90, "fp32")  # 16-bit terms would often lie on ties
    noisy = Quantity(drawn.values, np.full(drawn.values.shape, 1e-13))
    program = Program(stored={"column sum": "fp16"}, column_order=order)
    replay = column_sum(noisy, program)
    assert 0 < (replay.slack > 0).mean() < 1
    generator = np.random.default_rng(2)
    for _ in range(5):
        moved = drawn.values + 2.5e-6 * generator.uniform(-1, 1, drawn.values.shape)
        total = column_sum(Quantity(moved), program).values
        assert (np.abs(total - replay.values) <= replay.slack).all()
