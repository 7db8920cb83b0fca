"""The ladder: which program explains an output, which are tried, and what the search learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.formats import ulp
from gonogo.numerics.replay import ladder, search
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.quantity import Quantity
from normalized_rows import OTHER, PLAIN, STORING, graph_of, output_of


@dataclass(frozen=True)
class WatchedRows(NormalizedRows):
    """A graph that notes the programs which are tried on the whole output."""

    tried: list[Program] = field(default_factory=list)

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Note the program, and replay it as usual."""
        self.tried.append(program)
        return super().replay(program, columns, quick=quick)


def watched(rows: int, width: int = 64) -> WatchedRows:
    return WatchedRows(graph_of(rows, width).rows)


def test_the_first_program_that_explains_an_output_is_returned_and_no_other_is_tried() -> None:
    graph = watched(40)
    for right in (PLAIN, STORING):
        rest = iter((PLAIN, OTHER, STORING, replace(STORING, order=Order.running_mean)))
        finding = ladder.nearest(graph, output_of(graph, right, "fp32"), "fp32", rest)
        assert (finding.program, finding.explained) == (right, True)
        assert next(rest) == (OTHER if right == PLAIN else replace(STORING, order="running means"))


def test_the_nearest_program_is_the_one_with_the_least_error() -> None:
    graph = watched(40)
    y = output_of(graph, STORING, "fp32")
    y[5, 5] += 40 * ulp(y[5:6, 5:6], "fp32")[0, 0]
    finding = ladder.nearest(graph, y, "fp32", [PLAIN, OTHER, STORING, OTHER])
    assert (finding.program, finding.explained) == (STORING, False)
    assert finding.mismatch == 1 / y.size


@pytest.mark.parametrize("row", [10, 20])
def test_rows_that_a_storing_program_misses_are_noted_once(row: int) -> None:
    """Row 10 is in no sample of the ladder; row 20 is the worst one."""
    graph = watched(40)
    y = output_of(graph, STORING, "fp32")
    y[row] = output_of(graph, PLAIN, "fp32")[row] * (1 if row == 10 else 3)
    near = search.Near()
    finding = ladder.nearest(graph, y, "fp32", [PLAIN, STORING, OTHER], near)
    assert not finding.explained
    assert (near.programs, near.rows) == ([STORING], {row})
    assert not ladder.nearest(graph, y, "fp32", [PLAIN, STORING, OTHER]).explained


def test_a_program_that_some_rows_rule_out_is_not_tried_on_all_of_them() -> None:
    """The sample has the row that is worst: neither program can be nearer than the first one."""
    graph = watched(40)
    y = output_of(graph, STORING, "fp32")
    y[20] *= 3
    graph.tried.clear()
    ladder.nearest(graph, y, "fp32", [PLAIN, STORING])
    assert STORING not in graph.tried


@pytest.mark.parametrize(
    ("spoiled", "is_near"), [([1, 100, 198], True), ([0], False), ([199], False)]
)
def test_a_walk_is_tried_on_some_columns_from_the_first_to_the_last(
    spoiled: Sequence[int], is_near: bool
) -> None:
    graph = watched(4, 200)
    y = output_of(graph, PLAIN, "fp32")
    y[:, spoiled] += 1
    assert ladder._is_near(graph, y, "fp32", PLAIN) is is_near


def test_the_distances_of_a_finding_are_numbers_of_json() -> None:
    assert ladder._finite(3.0) == 3.0
    assert ladder._finite(math.inf) == ladder._finite(math.nan) == ladder.LARGEST
