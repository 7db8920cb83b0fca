"""Sums that are stored after each addition, in the orders of libraries."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.corpus.sources.gpu import COLUMN_SUMS, ROW_SUMS, tensor
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder, walks
from gonogo.numerics.replay.columns import column_sum
from gonogo.numerics.replay.narrow_sums import Place, _narrow, bounds
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity
from replay_emulations import paired, running, shuffled, threaded, tree

STORED = [
    order for order in ColumnOrder if order not in (ColumnOrder.blocked, ColumnOrder.unordered)
]


def terms(rows: int, form: str, seed: int = 0) -> Quantity:
    values = np.random.default_rng(seed).standard_normal((rows, 50))
    return Quantity(round_to(values, form).astype(np.float64))


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_the_short_rounding_is_that_of_the_formats(form: str) -> None:
    generator = np.random.default_rng(1)
    values = generator.standard_normal(20000) * 2.0 ** generator.integers(-24, 12, 20000)
    ties = round_to(values, form).astype(np.float64) * (1 + 2.0**-9)
    for drawn in (values, ties, -ties, np.zeros(3)):
        expected = round_to(drawn, form).astype(np.float64)
        assert np.array_equal(_narrow(drawn, form, "even"), expected)


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
        along = Machine(Program(stored={"sum": form}, row_order=order)).row_sum(
            Quantity(drawn.values.T), "sum"
        )
        assert np.array_equal(along.values[:, 0], expected)


def test_folded_lanes_add_their_halves() -> None:
    drawn = terms(24, "fp16").values
    lanes = np.array([running(drawn[lane::8].astype(np.float32), "fp16") for lane in range(8)])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = round_to(lanes[:half] + lanes[half:], "fp16")
    program = Program(stored={"column sum": "fp16"}, column_order=ColumnOrder.folded)
    assert np.array_equal(column_sum(Quantity(drawn), program).values[0], lanes[0])


def numbered(rows: int, width: int) -> NDArray[np.float64]:
    """Return terms that fp16 holds, in a fixed pattern."""
    return ((np.arange(rows * width) * 7919 % 2003 - 1001) / 64).reshape(rows, width)


TENSORFLOW_ROWS = {
    33: [62.375, -80.375, 58.4375],
    1500: [64.75, -7.53125, -48.15625],
    2048: [-13.6875, 16.8125, 16.34375],
    8462: [17.09375, 44.03125, 7.125],
}
"""N -> sums of 3 rows of `numbered`, by tf.reduce_sum of TensorFlow 2.21 in fp16 on a CPU."""
TENSORFLOW_COLUMNS = {
    15: [58.75, 68.25, 46.4375, 24.640625, 2.84375, -18.953125, -40.75, -62.5625, -53.0625,
         -12.28125, 28.546875],
    16: [53.6875, 61.75, 38.5, 15.25, -8.0, -31.25, -54.5, -77.75, -38.4375, 0.90625, 40.28125],
    33: [57.65625, 40.9375, -7.0, -54.9375, -71.625, -25.703125, -11.078125, 3.625, 18.21875,
         32.875, 47.5625],
}  # fmt: skip
"""Rows -> sums of 11 columns of `numbered`, likewise."""


@pytest.mark.parametrize("width", TENSORFLOW_ROWS)
def test_packets_are_tensorflow_s(width: int) -> None:
    drawn = numbered(3, width)
    total = bounds(drawn.T, np.zeros(drawn.T.shape), "fp16", ColumnOrder.packets)
    assert total[:, 1].tolist() == TENSORFLOW_ROWS[width]
    last = bounds(
        drawn[2:].T,
        np.zeros((width, 1)),
        "fp16",
        ColumnOrder.packets,
        place=Place(np.array([2]), 3),
    )
    assert last[0, 1] == TENSORFLOW_ROWS[width][2]


@pytest.mark.parametrize("rows", TENSORFLOW_COLUMNS)
def test_lanes_are_tensorflow_s(rows: int) -> None:
    drawn = numbered(rows, 11)
    program = Program(stored={"column sum": "fp16"}, column_order=ColumnOrder.lanes)
    assert column_sum(Quantity(drawn), program).values[0].tolist() == TENSORFLOW_COLUMNS[rows]


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


def climbed(dy: NDArray[np.float64], output: NDArray[np.floating], form: str) -> ladder.Finding:
    """Return what the ladder finds for sums of dy whose order nobody named."""
    rows = BackwardRows(np.zeros_like(dy), dy, np.ones((1, dy.shape[1])), None, None, 1e-5)
    narrow = [form] if form != "fp32" else []
    return ladder.climb(ColumnGradient(rows, weighted=False), output[None], form, narrow)


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_narrow_totals_in_an_unknown_order_walk_and_nothing_else_does(form: str) -> None:
    dy = round_to(np.random.default_rng(4).standard_normal((60, 400)), form).astype(np.float64)

    def added(rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """Five blocks add their rows to totals of their own, which are added in fp32."""
        totals = [running(rows[block::5].astype(np.float32), form) for block in range(5)]
        return np.asarray(np.sum(totals, axis=0), np.float32)

    finding = climbed(dy, round_to(added(dy), form), form)
    assert finding.explained
    assert finding.program.column_order is ColumnOrder.unordered
    assert finding.program.stored == {"column sum": form}
    twice = np.concatenate([dy, dy[7:8]])
    exact = dy.sum(axis=0)
    for wrong in (
        *(added(dy[:-1]), added(twice), 1.01 * added(dy)),
        *(1.001 * exact, np.where(np.arange(400) < 16, added(dy[8:]), added(dy))),
        exact + 6 * (added(dy) - exact),  # a walk of longer steps than the format's
    ):
        assert not climbed(dy, round_to(wrong, form), form).explained


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_a_factor_of_all_columns_is_no_walk(form: str) -> None:
    dy = round_to(np.random.default_rng(4).standard_normal((60, 400)), form).astype(np.float64)
    rows = BackwardRows(np.zeros_like(dy), dy, np.ones((1, dy.shape[1])), None, None, 1e-5)
    graph = ColumnGradient(rows, weighted=False)
    program = next(p for p in graph.unordered([form], []) if "column sum" in p.stored)
    exact, walked = dy.sum(axis=0), running(dy.astype(np.float32), form)
    for factor in (1.0, 1.001, 1.01):
        output = round_to(factor * exact, form)[None]
        assert walks.is_scaled(graph, program, output, form)
    assert not walks.is_scaled(graph, program, walked[None], form)


def test_fp32_totals_in_an_unknown_order_walk() -> None:
    generator = np.random.default_rng(5)
    dy = np.abs(generator.standard_normal((4000, 40))).astype(np.float32)
    order = generator.permutation(len(dy))
    total = np.add.accumulate(dy[order], axis=0)[-1]
    finding = climbed(dy.astype(np.float64), total, "fp32")
    assert finding.explained
    assert finding.program.column_order is ColumnOrder.unordered
    assert not climbed(dy.astype(np.float64), total * np.float32(1 + 2e-6), "fp32").explained


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("width", [33, 62, 64, 96, 128, 300, 511, 512])
def test_warps_add_up_in_lanes_and_then_in_halves(width: int, form: str) -> None:
    drawn = terms(width, form)
    total = bounds(drawn.values, np.zeros(drawn.values.shape), form, ColumnOrder.warps)
    assert np.array_equal(total[:, 1], shuffled(drawn.values.T, form))


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("width", [1, 33, 300, 341, 512, 900, 1000, 1024])
def test_tiles_add_up_pairs_and_then_halves(width: int, form: str) -> None:
    drawn = terms(width, form)
    total = bounds(drawn.values, np.zeros(drawn.values.shape), form, ColumnOrder.tiles)
    assert np.array_equal(total[:, 1], paired(drawn.values.T, form))


@pytest.mark.parametrize("recorded", ROW_SUMS, ids=str)
def test_row_sums_are_those_of_an_h100(recorded: tuple[str, str, int, int]) -> None:
    """jax 0.11.2 added up the rows by lax.reduce; here are the bits of its first eight sums."""
    order, form, rows, width = recorded
    sums = bits_of_sums(tensor(rows, width)[:8].T, form, ColumnOrder[order])
    assert sums == ROW_SUMS[recorded]


@pytest.mark.parametrize("recorded", COLUMN_SUMS, ids=str)
def test_column_sums_are_those_of_an_h100(recorded: tuple[str, int, int]) -> None:
    form, rows, width = recorded
    sums = bits_of_sums(tensor(rows, width)[:, :8], form, ColumnOrder.one_warp)
    assert sums == COLUMN_SUMS[recorded]


def bits_of_sums(terms: NDArray[np.float32], form: str, order: ColumnOrder) -> str:
    """Return the 16 bits of each sum of terms (terms, sums), in hexadecimal digits."""
    values = round_to(terms, form).astype(np.float64)
    sums = bounds(values, np.zeros(values.shape), form, order)[:, 1]
    if form == "fp16":
        bits = sums.astype(np.float16).view(np.uint16)
    else:
        bits = sums.astype(np.float32).view(np.uint32) >> 16
    return " ".join(f"{value:04x}" for value in bits)


def test_several_warps_add_up_their_totals_in_halves() -> None:
    values = np.zeros((1024, 1))
    values[0], values[[2, 64, 66]] = 1.0, 1.5 * 2.0**-9  # below half a unit of 1, together above it
    total = bounds(values, np.zeros(values.shape), "bf16", ColumnOrder.warps)
    assert total[0, 1] == 1 + 2.0**-7


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("width", [3, 128, 300, 341, 512, 900, 4096])
def test_threads_contract_products_with_their_additions(width: int, form: str) -> None:
    squares = np.square(terms(width, form).values)
    total = bounds(squares, np.zeros(squares.shape), form, ColumnOrder.threads)
    assert np.array_equal(total[:, 1], threaded(squares.T, form))
