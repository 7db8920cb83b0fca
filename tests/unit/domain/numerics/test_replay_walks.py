"""Walks of sums in an unknown order: when errors are a walk's, on sums whose errors are given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import half_ulp, round_to, ulp
from gonogo.numerics.replay import walks
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Quantity
from gonogo.numerics.replay.walks import MAX_COLUMN, MAX_COMMON, MAX_EXCESS, MAX_OF_SUMS, MAX_SCORE

Floats = NDArray[np.float64]
WIDTH = 64
IN_FP32 = Program(column_order=ColumnOrder.unordered)
STORED = replace(IN_FP32, stored={"column sum": "bf16"})
HADAMARD = np.ones((1, 1))
for _ in range(6):
    HADAMARD = np.block([[HADAMARD, HADAMARD], [HADAMARD, -HADAMARD]])
"""64 patterns of signs, each orthogonal to all others; the first has one sign."""
SIGNS = HADAMARD[1]
ALONE = MAX_SCORE / MAX_COLUMN
"""The score of errors that are as large as they should be, and go along nothing."""


@dataclass
class Sums:
    """Sums whose terms (rows, N), totals (1, N) and walks' variances (1, N) are given."""

    total: Floats
    walk: Floats
    values: Floats = field(default_factory=lambda: HADAMARD[2:6])
    forms: tuple[Program, ...] = (IN_FP32,)
    requested: list[list[int]] = field(default_factory=list)
    """The columns of each request."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.total.shape[0], self.total.shape[1]

    @property
    def count(self) -> int:
        return len(self.values)

    def unordered(self, formats: Sequence[str], likely: Iterable[Program]) -> Iterable[Program]:
        return ()

    def of_same_kernel(self, program: Program) -> tuple[Program, ...]:
        return ()

    def terms(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        return Quantity(self.values[:, columns])

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        self.requested.append(np.arange(self.shape[1])[columns].tolist())
        return Quantity(self.total[:, columns], self.walk[:, columns])


def as_graph(given: Sums) -> Graph:
    """Return it as what the search takes: it has all that is read here of a kernel's graph."""
    return cast(Graph, given)


def score(
    error: Floats,
    *,
    level: float = 1.0,
    program: Program = IN_FP32,
    total: Floats | None = None,
    form: str = "bf16",
    values: Floats = HADAMARD[2:6],
) -> float:
    """Return the score of errors, given in steps; `level`: the walk's length that fits one step."""
    sums = np.full(len(error), 1.5) if total is None else total
    y = sums + error * ulp(sums, form)
    # an error of a step is what the output's rounding and `level` times the walk make of it
    walk = (1.0 - 1.0 / 12.0) / level * np.square(ulp(y, form))
    graph = Sums(sums[None], walk[None], values[:, : len(error)])
    return walks.score(as_graph(graph), program, y[None], form)


@pytest.mark.parametrize("form", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("size", [1.5, 3.0])
def test_errors_that_go_along_nothing_score_by_their_size_alone(form: str, size: float) -> None:
    assert score(SIGNS, total=np.full(WIDTH, size), form=form) == pytest.approx(ALONE)
    assert score(-SIGNS, total=np.full(WIDTH, size), form=form) == pytest.approx(ALONE)


def test_each_column_is_measured_by_its_own_walk_and_its_own_step() -> None:
    total = np.repeat([1.25, 5.0, -2.5, 40.0], 16)  # the errors of each size cancel
    assert score(SIGNS, total=total) == pytest.approx(ALONE)
    larger = SIGNS * np.where(np.arange(WIDTH) < 2, 3.0, 1.0)
    mean = (2 * 9.0 + 62) / 64
    assert score(larger, total=np.full(WIDTH, 1.25)) == pytest.approx(3.0 * ALONE / mean**0.5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_errors_along_the_sums_are_a_common_factor(sign: float) -> None:
    error = SIGNS.copy()
    error[SIGNS < 0] *= np.where(np.arange(32) < 8, -1.0, 1.0)  # 40 against 24
    along = (40 - 24) / WIDTH**0.5
    assert score(sign * error) == pytest.approx(along * MAX_SCORE / MAX_OF_SUMS)
    assert score(sign * error) > ALONE


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_factor_of_an_approximate_rsqrt_is_taken_away(sign: float) -> None:
    allowed = sign * MAX_COMMON / 2.0**-23  # in steps of a sum of 1
    total = np.repeat([1.25, 1.75], 32)
    for share, taken_away in ((0.5, True), (0.99, True), (1.01, False), (4.0, False)):
        of_all = score(SIGNS + share * allowed * total, total=total, form="fp32")
        assert (of_all == pytest.approx(ALONE)) is taken_away
        assert (of_all > MAX_SCORE) is not taken_away


def test_fewer_than_an_eighth_of_moved_columns_are_a_fault() -> None:
    moved = np.where(np.arange(WIDTH) < 8, 1.0, 0.25)
    assert score(SIGNS * moved) < math.inf
    moved[7] = 0.5  # at the edge of its cell, in which it stays
    assert score(SIGNS * moved) == math.inf


@pytest.mark.parametrize(
    ("level", "is_walk"), [(0.5, True), (1.0, True), (3.6, True), (3.64, False), (9.0, False)]
)
def test_a_walk_longer_than_chance_allows_is_none(level: float, is_walk: bool) -> None:
    assert pytest.approx(3.621, abs=1e-3) == MAX_EXCESS * (1.0 + MAX_SCORE * (2.0 / WIDTH) ** 0.5)
    assert (score(SIGNS, level=level) < math.inf) is is_walk


def test_errors_smaller_than_the_output_s_own_rounding_are_no_walk() -> None:
    moved = np.where(np.arange(WIDTH) < 8, 0.6, 0.0)
    assert score(SIGNS * moved) == math.inf


def test_few_columns_and_sums_that_do_not_round_are_no_walk() -> None:
    assert score(SIGNS[:16]) == pytest.approx(ALONE)
    assert score(SIGNS[:15]) == math.inf
    for walk in (np.zeros((1, WIDTH)), np.where(np.arange(WIDTH) == 3, 0.0, 1.0)[None]):
        graph = Sums(np.ones((1, WIDTH)), walk)
        assert walks.score(as_graph(graph), IN_FP32, np.ones((1, WIDTH)), "bf16") == math.inf


def rows_of(*rows: Floats, count: int = 32) -> Floats:
    """Return terms: these rows, and others that go along nothing."""
    return np.concatenate([*(row[None] for row in rows), HADAMARD[8 : 8 + count - len(rows)]])


def test_errors_along_a_row_are_a_fault_of_that_row_where_totals_are_stored() -> None:
    along = rows_of(5.0 * SIGNS)
    assert score(SIGNS, program=STORED, values=along) == pytest.approx(8.0)
    assert score(-SIGNS, program=STORED, values=along) == pytest.approx(8.0)
    assert score(SIGNS, program=STORED, values=rows_of()) == pytest.approx(ALONE)
    # in fp32 the rows' own errors are as large
    assert score(SIGNS, values=along) == pytest.approx(ALONE)


def test_errors_a_little_along_all_rows_are_a_fault_of_all() -> None:
    few = score(SIGNS, program=STORED, values=rows_of(SIGNS, count=4))
    assert few == pytest.approx(WIDTH / 4 * MAX_SCORE / walks.MAX_OF_ROWS)
    empty = score(SIGNS, program=STORED, values=rows_of(SIGNS, 0.0 * SIGNS, count=5))
    assert empty == pytest.approx(few)  # a row of zeros has no direction


def test_errors_along_the_sum_of_some_rows_are_a_fault_of_their_block() -> None:
    apart = rows_of(SIGNS + 3.0 * HADAMARD[6], SIGNS - 3.0 * HADAMARD[6])
    assert score(SIGNS, program=STORED, values=apart) == pytest.approx(8.0)
    # rows whose first common block has all rows
    apart[[1, 17]] = apart[[17, 1]]
    assert score(SIGNS, program=STORED, values=apart) < 3.0


def test_blocks_are_pairs_of_blocks_and_an_odd_one_is_kept() -> None:
    terms = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0]])
    first = [block[:, 0].tolist() for block in walks._blocks(terms)]
    assert first == [[1, 2, 4, 8, 16], [3, 12, 16], [15, 16], [31]]
    assert walks._blocks(terms)[1][:, 1].tolist() == [30, 120, 160]
    assert len(walks._blocks(terms[:1])) == 1


def test_an_error_along_a_direction_is_in_standard_deviations() -> None:
    variance = np.array([1.0, 4.0])
    along = walks._along(
        np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 2.0]]), np.array([2.0, 8.0]), variance
    )
    assert along == pytest.approx([2.0, 4.0, (2.0 + 4.0) / 2.0**0.5])
    assert np.isnan(walks._along(np.zeros((1, 2)), np.ones(2), variance)).all()


def test_directions_are_computed_on_columns_from_the_first_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Sums(np.ones((1, WIDTH)), np.ones((1, WIDTH)))
    for most, expected in ((4 * 32, 32), (4, walks.MIN_COLUMNS), (4 * 99, WIDTH)):
        monkeypatch.setattr(walks, "MAX_TERMS", most)
        walks.score(as_graph(graph), IN_FP32, np.ones((1, WIDTH)), "bf16")
        columns = graph.requested.pop()
        assert len(columns) == expected
        assert (columns[0], columns[-1]) == (0, WIDTH - 1)
        assert np.ptp(np.diff(columns)) <= 1


TOTALS = SIGNS * np.linspace(0.3, 70.0, WIDTH)


def is_scaled(total: Floats, output: Floats) -> bool:
    graph = Sums(total[None], np.ones((1, len(total))))
    return walks.is_scaled(as_graph(graph), IN_FP32, output[None], "bf16")


def test_sums_that_share_a_factor_are_scaled_whatever_their_sizes_and_signs() -> None:
    for factor in (0.98, 1.0, 1.02):
        assert is_scaled(TOTALS, round_to(factor * TOTALS, "bf16").astype(np.float64))
    random = np.random.default_rng(1).uniform(0.9, 1.1, WIDTH)
    assert not is_scaled(TOTALS, round_to(random * TOTALS, "bf16").astype(np.float64))


@pytest.mark.parametrize(("outside", "scaled"), [(0, True), (3, True), (4, False), (9, False)])
def test_a_factor_leaves_fewer_than_a_sixteenth_of_the_columns_outside(
    outside: int, scaled: bool
) -> None:
    far = 1.0 + 0.1 * np.arange(1, outside + 1)
    output = np.concatenate([TOTALS[:outside] * far, TOTALS[outside:]])
    assert is_scaled(TOTALS, output) is scaled


def test_sums_that_are_zero_say_nothing_of_a_factor() -> None:
    total = np.where(np.arange(WIDTH) < 20, 0.0, np.where(np.arange(WIDTH) < 40, 1.0, TOTALS))
    output = np.where(total == 0.0, 7.0, total)
    assert is_scaled(total, output)
    assert not is_scaled(0.0 * total, output)


def test_a_value_within_half_a_step_of_its_scaled_sum_is_inside() -> None:
    step = half_ulp(TOTALS, "bf16")
    inside, outside = 0.99 * SIGNS * HADAMARD[2] * step, 1.01 * SIGNS * HADAMARD[2] * step
    assert is_scaled(TOTALS, TOTALS + inside)
    assert not is_scaled(TOTALS, TOTALS + outside)


def test_a_factor_is_sought_on_columns_from_the_first_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Sums(TOTALS[None], np.ones((1, WIDTH)))
    for most, expected in ((8, 8), (99, WIDTH)):
        monkeypatch.setattr(walks, "FACTOR_COLUMNS", most)
        assert walks.is_scaled(as_graph(graph), IN_FP32, TOTALS[None], "bf16")
        columns = graph.requested.pop()
        assert (len(columns), columns[0], columns[-1]) == (expected, 0, WIDTH - 1)
