"""Outputs that are rounded at random, on replays whose values and errors are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import ulp
from gonogo.numerics.replay import at_random, spans
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Quantity

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
STEP = 2.0**-7
SIZE = 32
PROGRAM = Program(output_rounding="random")
ROWS, COLUMNS = np.indices((SIZE, SIZE))
CHECKED = (ROWS + COLUMNS) % 2 == 0
"""Half of the elements: of each row, of each column."""


@dataclass
class Exact:
    """An output whose values before the rounding are given."""

    values: Floats
    shared: Mapping[str, Floats] = field(default_factory=dict)
    forms: tuple[Program, ...] = (Program(),)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def some(self, rows: NDArray[np.intp]) -> Exact:
        return Exact(self.values[rows], {name: error[rows] for name, error in self.shared.items()})

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        return Quantity(self.values, shared=self.shared)


def as_graph(given: Exact) -> Graph:
    """Return it as what the search takes: it has all that is read here of a kernel's graph."""
    return cast(Graph, given)


def score(
    p: Floats | float,
    up: Mask,
    low: Floats | float = 1.0,
    shared: Mapping[str, Floats] | None = None,
    least: float = 0.0,
) -> float:
    """Return the score of values `p` steps above `low` of which some are rounded up."""
    base = np.broadcast_to(np.asarray(low, np.float64), up.shape)
    step = np.copysign(ulp(base, "bf16"), base)
    graph = Exact(base + p * step, shared or {})
    output = np.where(up, base + step, base)
    return at_random.score(as_graph(graph), PROGRAM, output, "bf16", least)


@pytest.fixture(params=[2**19, 64], ids=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are replayed together, or by the pair."""
    monkeypatch.setattr(spans, "ELEMENTS", request.param)


@pytest.mark.usefixtures("blocks")
def test_errors_that_cancel_everywhere_have_no_score() -> None:
    assert score(0.5, CHECKED) == pytest.approx(0.0, abs=1e-9)
    assert score(0.5, CHECKED, low=-1.0) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("along", ["a column", "a row"])
def test_a_column_or_a_row_that_is_always_rounded_up_shows(along: str) -> None:
    up = np.where(COLUMNS < 2, COLUMNS == 0, CHECKED)  # one up, the next one down: all rows cancel
    up = up if along == "a column" else up.T
    assert score(0.5, up) == pytest.approx(SIZE**0.5)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("along", ["a column", "a row"])
def test_a_column_or_a_row_whose_large_values_are_rounded_up_shows(along: str) -> None:
    """Its mean error is 0: a factor."""
    is_large = ROWS % 4 < 2
    low = np.where(is_large, 1.0 + 96 * STEP, 1.0)
    up = np.where(COLUMNS == 0, is_large, np.where(COLUMNS == 1, ~is_large, CHECKED))
    if along == "a row":
        low, up = low.T, up.T
    small, large = 1.0 + 0.5 * STEP, 1.0 + 96.5 * STEP
    expected = 16 * 0.5 * (large - small) / (16 * 0.25 * (large**2 + small**2)) ** 0.5
    assert score(0.5, up, low) == pytest.approx(expected)


@pytest.mark.usefixtures("blocks")
def test_errors_along_one_that_a_row_shares_show() -> None:
    first = np.where(COLUMNS < SIZE // 2, 1e-9, -1e-9)
    up = np.where(ROWS < 2, (first > 0) ^ (ROWS == 1), CHECKED)  # all columns cancel
    assert score(0.5, up, shared={"mean": first}) == pytest.approx(SIZE**0.5, rel=1e-3)
    assert score(0.5, up) < 1e-3 * SIZE


@pytest.mark.usefixtures("blocks")
def test_all_elements_together_show_what_no_class_does() -> None:
    """Values on both sides of a middle are in two classes. A step counts as one, however wide."""
    p, is_wide = np.where(CHECKED, 0.45, 0.55), ROWS < SIZE // 2
    up = np.random.default_rng(4).random((SIZE, SIZE)) < p + 0.25 * is_wide
    low = np.where(is_wide, 8.0, 1.0)
    error, steps = np.where(up, 1.0 - p, -p), 128.0 + p
    expected = (error * steps).sum() / (p * (1.0 - p) * steps**2).sum() ** 0.5
    assert score(p, up, low) == pytest.approx(expected)


@pytest.mark.usefixtures("blocks")
def test_values_that_lie_alike_between_two_steps_show_by_their_class() -> None:
    """Three tenths are always rounded up and seven tenths always down, where values are small."""
    is_small = ROWS < SIZE // 2
    low = np.where(is_small, 1.0, 64.0)
    p = np.where(CHECKED, 0.3, 0.7)
    balanced = (ROWS // 2 + COLUMNS // 2) % 10
    up = np.where(is_small, CHECKED, np.where(CHECKED, balanced < 3, balanced < 7))
    # in small values 256 errors of .7 of a step; in large ones about as many up as p says
    value = score(p, up, low)
    assert value > 0.7 * 256 / (512 * 0.21) ** 0.5 - 2.0
    assert score(p, np.where(CHECKED, balanced < 3, balanced < 7), low) < 4.0


def test_an_element_that_is_rounded_as_it_never_should_be_is_enough() -> None:
    up = CHECKED.copy()
    p = np.where((ROWS == 3) & (COLUMNS == 4), 1e-9, 0.5)
    up[3, 4] = False
    assert score(p, up) < 2.0
    up[3, 4] = True
    assert score(p, up) == math.inf


def test_the_least_probability_is_one_that_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for least, expected in ((0.25, True), (0.2501, False)):
        monkeypatch.setattr(at_random, "MIN_PROBABILITY", least)
        assert (score(0.25, CHECKED) < math.inf) is expected


@pytest.mark.parametrize(("count", "enough"), [(256, True), (255, False)])
def test_too_few_elements_say_nothing_unless_another_output_has_shown_it(
    count: int, enough: bool
) -> None:
    up = np.arange(count)[None] % 2 == 0
    assert (score(0.5, up, least=at_random.MIN_INFORMATION) < math.inf) is enough
    assert score(0.5, up) < math.inf


def test_only_narrow_outputs_are_rounded_at_random() -> None:
    graph = Exact(np.ones((1, 1)), forms=(Program(product="first"), Program(product="second")))
    (program,) = at_random.programs(as_graph(graph), "bf16")
    assert (program.product, program.output_rounding) == ("first", "random")
    assert list(at_random.programs(as_graph(graph), "fp32")) == []


def errors(
    value: float, output: float, form: str = "bf16", slack: float = 0.0
) -> at_random._Errors:
    quantity = Quantity(np.array([[value]]), slack=np.array([[slack]]))
    return at_random._Errors.of(np.array([[output]]), quantity, form)


def test_an_exact_value_stays_as_it_is_and_a_negative_one_is_a_mirror_image() -> None:
    assert errors(1.0, 1.0).least_probability == 1.0
    value = 1.0 + 0.25 * STEP
    for output, probability in ((1.0, 0.75), (1.0 + STEP, 0.25)):
        one, mirrored = errors(value, output), errors(-value, -output)
        assert one.least_probability == mirrored.least_probability == probability
        assert one.step[0, 0] == -mirrored.step[0, 0] == STEP
        assert one.error[0, 0] == -mirrored.error[0, 0]
        assert one.variance[0, 0] == mirrored.variance[0, 0]


def test_the_last_class_has_the_values_just_below_a_step_and_those_beyond_the_largest() -> None:
    assert errors(1.0 + 0.86 * STEP, 1.0).classes[0, 0] == at_random.BINS - 2
    assert errors(1.0 + 0.88 * STEP, 1.0).classes[0, 0] == at_random.BINS - 1
    beyond = errors(70000.0, math.inf, "fp16")
    assert (beyond.classes[0, 0], beyond.least_probability) == (at_random.BINS - 1, 1.0)


def test_a_tie_as_wide_as_a_step_leaves_nothing_to_say() -> None:
    value = 1.0 + 0.25 * STEP
    assert errors(value, 1.0, slack=0.99 * STEP).information[0, 0] == 0.1875
    assert errors(value, 1.0, slack=STEP).information[0, 0] == 0.0


def test_a_pattern_weighs_errors_and_says_nothing_where_it_is_zero() -> None:
    value = np.full((2, 3), 1.0 + 0.5 * STEP)
    output = np.array([[1.0, 1.0 + STEP, 1.0], [1.0, 1.0, 1.0 + STEP]])
    element = at_random._Errors.of(output, Quantity(value), "bf16")
    pattern = np.array([[2.0, 0.0, 1.0], [3.0, 0.0, -1.0]])
    columns, rows = at_random._Sums.of(3), at_random._Sums.of(2)
    columns.add(element, pattern, axis=0)
    rows.add(element, pattern, axis=1)
    whole = at_random._Sums.of(2)
    for _ in range(2):
        whole.add(element, pattern, axis=None, place=1)
    assert (columns.along / STEP).tolist() == [-2.5, 0.0, -1.0]
    assert (columns.variance / STEP**2).tolist() == [0.25 * 13, 0.0, 0.25 * 2]
    assert columns.information.tolist() == [0.5, 0.0, 0.5]
    assert (rows.along / STEP).tolist() == [-1.5, -2.0]
    assert rows.information.tolist() == [0.5, 0.5]
    assert (whole.along / STEP).tolist() == [0.0, -7.0]
    assert whole.information.tolist() == [0.0, 2.0]


def test_a_sum_without_a_variance_is_left_out_and_a_small_variance_is_none() -> None:
    sums = at_random._Sums.of(2)
    sums.information[:] = 100.0
    sums.along[:], sums.variance[:] = (1.0, 0.0), (0.25, 0.0)
    assert sums.largest == 2.0
