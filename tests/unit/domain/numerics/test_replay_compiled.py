"""The compiled path of replays against the NumPy definition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.kernels.layernorm.programs import CENTERED
from gonogo.kernels.layernorm.replay import (
    LATE_MEAN,
    BackwardRows,
    ColumnGradient,
    InputGradient,
)
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.kernels.normalization.row_moments import by_definition, by_loops
from gonogo.numerics.formats import round_to
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.numerics.replay import measure, spans
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.compiled.results import as_input
from gonogo.numerics.replay.measure import plain
from gonogo.numerics.replay.program import Order, Program
from property_examples import examples

pytestmark = pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")

Array = NDArray[np.float64]
LIMIT = 8.0
DISTANCE = 1e-9
"""Relative: both have the same operations in the same order, but for sums of positive numbers."""
ROW_ERROR = 1e-5
"""Relative: its sums of products lose up to 1e-11 of their size (cells.MIN_EIGENVALUE)."""


@dataclass(frozen=True)
class Case:
    """Inputs: their shape, format, size, offset in standard deviations, and vectors."""

    rows: int
    width: int
    form: str
    scale: float
    offset: float
    vectors: str
    seed: int

    def drawn(self, shape: tuple[int, int], place: int, offset: float = 0.0) -> Array:
        generator = np.random.default_rng([self.seed, place])
        return self.on_grid(self.scale * (generator.standard_normal(shape) + offset))

    def on_grid(self, values: Array) -> Array:
        return round_to(values, self.form).astype(np.float64)

    @property
    def x(self) -> Array:
        x = self.drawn((self.rows, self.width), 0, self.offset)
        if self.seed % 3 == 0:
            x[0] = x[0, 0]
        return x

    def vector(self, name: str, place: int) -> Array | None:
        rows = self.rows if "rows" in self.vectors else 1
        drawn = np.random.default_rng([self.seed, place]).standard_normal((rows, self.width))
        return self.on_grid(drawn) if name in self.vectors else None

    def output(self, values: Array) -> NDArray[np.float32]:
        """Return values that are about right, a wrong one, a power of two and a zero."""
        generator = np.random.default_rng([self.seed, 9])
        exponent = generator.integers(-26, -8)
        y = values * (1 + 2.0**exponent * generator.standard_normal(values.shape))
        y[0, 0] *= 1.01
        y[-1, -1] = 2.0 ** np.round(np.log2(abs(values[-1, -1]) + self.scale))
        y[-1, 0] = 0.0
        return round_to(y, self.form)


SCALES = {"fp32": (1.0, 2.0**-135, 2.0**30), "bf16": (1.0, 2.0**-130), "fp16": (1.0, 2.0**-12)}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    form = draw(st.sampled_from(("fp32", "bf16", "fp16")))
    return Case(
        draw(st.sampled_from((1, 2, 3, 17))),
        draw(st.sampled_from((1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 1025, 1100))),
        form,
        draw(st.sampled_from(SCALES[form])),
        draw(st.sampled_from((0.0, 3.0, 100.0))),
        draw(st.sampled_from(("gamma beta", "gamma", "beta", "", "gamma beta rows"))),
        draw(st.integers(0, 1000)),
    )


CONSTANT = Case(3, 33, "fp32", 1.0, 100.0, "gamma beta", 3)
ONE = Case(2, 1, "bf16", 1.0, 0.0, "gamma beta", 1)
TINY = Case(2, 100, "fp32", 2.0**-135, 3.0, "gamma", 1)
LONG = Case(17, 1100, "fp16", 1.0, 3.0, "beta", 2)


def assert_equal(
    loops: Measurement | None, definition: Measurement, case: Case, program: Program
) -> None:
    """Compare all rows, but for constant ones that the program sums in order.

    Their x - mean is then 1e-8 of x, and float64 leaves 1e-8 of what is computed from it, or more.
    """
    assert loops is not None
    label = (case, program)
    compared = (np.ptp(case.x, axis=1) > 0.0) | (program.order is Order.blocked)
    near = np.abs(loops.distances - definition.distances)[compared]
    assert (near <= DISTANCE * definition.distances[compared] + 1e-12).all(), label
    assert np.array_equal(loops.beyond[compared], definition.beyond[compared]), label
    for number in ("largest", "estimates", "spreads"):
        fast = getattr(loops.shared, number)[compared]
        slow = getattr(definition.shared, number)[compared]
        assert fast == pytest.approx(slow, rel=ROW_ERROR, abs=1e-6), (label, number)
    assert loops.width == definition.width


def programs(forms: tuple[Program, ...], order: Order) -> list[Program]:
    return [replace(form, order=order) for form in forms]


@settings(deadline=None, max_examples=examples(25))
@given(cases(), st.booleans(), st.sampled_from(tuple(Order)))
@example(CONSTANT, True, Order.running)
@example(ONE, True, Order.blocked)
@example(TINY, False, Order.running_mean)
@example(LONG, True, Order.blocked)
def test_y_is_measured_as_the_definition_does(case: Case, centered: bool, order: Order) -> None:
    rows = Rows(case.x, case.vector("gamma", 1), case.vector("beta", 2), 1e-5, centered)
    graph = NormalizedRows(rows)
    y = case.output(graph.replay(graph.forms[0]).values)
    for program in programs(graph.forms, order):
        loops = graph.measure(program, y, case.form, LIMIT)
        assert_equal(loops, plain(graph, program, y, case.form, LIMIT), case, program)


@settings(deadline=None, max_examples=examples(25))
@given(cases(), st.booleans(), st.booleans(), st.sampled_from(tuple(Order)))
@example(CONSTANT, False, True, Order.running)
@example(CONSTANT, True, False, Order.running)
@example(ONE, True, True, Order.blocked)
@example(ONE, True, False, Order.blocked)
@example(TINY, False, True, Order.running_mean)
@example(TINY, False, False, Order.running_mean)
@example(LONG, True, True, Order.blocked)
@example(LONG, True, False, Order.blocked)
def test_dx_is_measured_as_the_definition_does(
    case: Case, computed: bool, centered: bool, order: Order
) -> None:
    graph = InputGradient(backward(case, computed, centered))
    y = case.output(graph.replay(graph.forms[0]).values)
    for program in programs(graph.forms, order):
        loops = graph.measure(program, y, case.form, LIMIT)
        assert_equal(loops, plain(graph, program, y, case.form, LIMIT), case, program)


def backward(case: Case, computed: bool, centered: bool = True) -> BackwardRows:
    x, shape = case.x, (case.rows, case.width)
    gamma = case.on_grid(np.random.default_rng(case.seed).standard_normal((1, case.width)))
    mean = case.on_grid(x.mean(axis=1, keepdims=True)) if centered and not computed else None
    size = x.var(axis=1, keepdims=True) if centered else (x**2).mean(axis=1, keepdims=True)
    rstd = None if computed else case.on_grid(1.0 / np.sqrt(size + 1e-5))
    return BackwardRows(x, case.drawn(shape, 4), gamma, mean, rstd, 1e-5, centered=centered)


@settings(deadline=None, max_examples=examples(25))
@given(cases(), st.booleans(), st.booleans(), st.booleans())
@example(CONSTANT, True, True, True)
@example(CONSTANT, True, True, False)
@example(ONE, False, True, True)
@example(TINY, True, True, True)
@example(TINY, False, True, False)
@example(LONG, False, False, True)
@example(LONG, False, True, False)
def test_column_sums_are_those_of_the_definition(
    case: Case, computed: bool, weighted: bool, centered: bool
) -> None:
    graph = ColumnGradient(backward(case, computed, centered), weighted)
    # there are no loops for a mean that is subtracted late
    for program in (form for form in graph.forms if form.product != LATE_MEAN):
        loops, definition = graph.by_loops(program), graph.by_definition(program)
        deviation = np.sqrt(definition.variance)
        assert (np.abs(loops.values - definition.values) <= 1e-7 * deviation).all(), (case, program)
        assert np.allclose(loops.variance, definition.variance, rtol=1e-9, atol=0.0), (
            case,
            program,
        )


@settings(deadline=None, max_examples=examples(15))
@given(cases(), st.booleans(), st.sampled_from(tuple(Order)))
@example(CONSTANT, True, Order.running_mean)
def test_row_statistics_are_those_of_the_definition(
    case: Case, centered: bool, order: Order
) -> None:
    for variance in ("x - mean", "E[x^2] - mean^2") if centered else ("x - mean",):
        for product in ("(x - mean) rstd", "(x - mean) / root"):
            program = Program(variance, product, order=order)
            x = case.x * (1.0 + 2.0**-30)  # not on the grid of fp32, which the sums round to
            rows = Rows(x, None, None, 1e-5, centered)
            loops, definition = by_loops(program, rows), by_definition(program, rows)
            for name in ("mean", "rstd", "root"):
                fast, slow = getattr(loops, name), getattr(definition, name)
                assert (fast is None) == (slow is None)
                if fast is not None:
                    assert np.array_equal(fast.values, slow.values)
                    assert np.allclose(fast.variance, slow.variance, rtol=1e-9, atol=0.0)


def test_blocks_of_rows_are_the_same_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "ELEMENTS", 700)
    case = Case(17, 100, "fp32", 1.0, 3.0, "gamma beta rows", 5)
    rows = Rows(case.x, case.vector("gamma", 1), case.vector("beta", 2), 1e-5)
    graph = NormalizedRows(rows)
    y = case.output(graph.replay(graph.forms[0]).values)
    loops = graph.measure(graph.forms[0], y, "fp32", LIMIT)
    assert_equal(loops, plain(graph, graph.forms[0], y, "fp32", LIMIT), case, graph.forms[0])
    gradient = ColumnGradient(backward(case, computed=True), weighted=True)
    by_columns = gradient.by_loops(Program()).variance
    assert np.allclose(by_columns, gradient.by_definition(Program()).variance, rtol=1e-9)
    statistic = RowStatistic(rows, rstd=True)
    parts = [statistic.some(np.arange(*block)).replay(Program()) for block in spans.even(17, 100)]
    whole = statistic.replay(Program()).shared["variance"]
    assert np.allclose(whole, np.concatenate([part.shared["variance"] for part in parts]))


def test_large_inputs_stay_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(9, 100, "fp32", 1.0, 3.0, "gamma beta", 5)
    assert as_input(case.x.astype(np.float32)).dtype == np.float64
    monkeypatch.setattr(spans, "ELEMENTS", 700)
    x = as_input(case.x.astype(np.float32))
    assert x.dtype == np.float32
    for first, centered in enumerate((True, False)):
        rows = Rows(case.x, case.vector("gamma", 1), case.vector("beta", 2), 1e-5, centered)
        wide, narrow = NormalizedRows(rows), NormalizedRows(replace(rows, x=x, loops={}))
        y = case.output(wide.replay(wide.forms[0]).values)
        for program in wide.forms[first::4]:  # they differ by what is stored, not by their inputs
            expected = plain(wide, program, y, "fp32", LIMIT)
            assert_equal(narrow.measure(program, y, "fp32", LIMIT), expected, case, program)
            assert_equal(plain(narrow, program, y, "fp32", LIMIT), expected, case, program)
    inputs = backward(case, computed=True)
    given_as = replace(inputs, x=x, dy=as_input(inputs.dy.astype(np.float32)))
    dx = case.output(InputGradient(inputs).replay(Program(product=CENTERED)).values)
    for program in InputGradient(inputs).forms[::4]:
        expected = plain(InputGradient(inputs), program, dx, "fp32", LIMIT)
        loops = InputGradient(given_as).measure(program, dx, "fp32", LIMIT)
        assert_equal(loops, expected, case, program)
    sums = ColumnGradient(inputs, weighted=True).by_definition(Program())
    for same in (
        ColumnGradient(given_as, weighted=True).by_loops(Program()),
        ColumnGradient(given_as, weighted=True).by_definition(Program()),
    ):
        assert np.allclose(same.values, sums.values, rtol=1e-12)
        assert np.allclose(same.variance, sums.variance, rtol=1e-9, atol=0.0)


def test_what_the_loops_do_not_cover_goes_to_the_definition() -> None:
    case = Case(3, 64, "bf16", 1.0, 0.0, "gamma", 1)
    graph = NormalizedRows(Rows(case.x, case.vector("gamma", 1), None, 1e-5))
    stored = Program(stored={"x^": "bf16"})
    y = round_to(graph.replay(stored).values, "bf16")
    assert measure.measure(graph, stored, y, "bf16", LIMIT).largest == 0.0
    wide = np.full(y.shape, 1.0 + 2.0**-40)
    assert graph.measure(Program(), wide, "fp32", LIMIT) is None
    measured = measure.measure(graph, Program(), wide, "fp32", LIMIT)
    assert measured.worst == plain(graph, Program(), wide, "fp32", LIMIT).worst


def test_an_undefined_distance_is_the_largest() -> None:
    graph = NormalizedRows(Rows(np.ones((2, 40)), None, None, 0.0))
    y = np.zeros((2, 40), np.float32)
    with np.errstate(all="ignore"):
        loops = graph.measure(Program(), y, "fp32", LIMIT)
        definition = plain(graph, Program(), y, "fp32", LIMIT)
    assert loops is not None
    assert np.array_equal(np.isnan(loops.distances), np.isnan(definition.distances))
    assert np.isnan(loops.distances).all()
