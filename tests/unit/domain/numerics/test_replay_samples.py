"""The parts of the search for an arithmetic: the rows that it samples, and what it counts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import Mode, round_to, ulp
from gonogo.numerics.replay import at_random, ladder, search, walks
from gonogo.numerics.replay.ladder import LIMIT, MAX_COMMON, Finding
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import TIE, Quantity
from gonogo.numerics.replay.search import MAX_HIDDEN, MAX_MISMATCH, MIN_DECIDED, Fit

EPSILON = 1e-5
Floats = NDArray[np.float64]


def graph_of(rows: int, width: int = 64, *, centered: bool = True) -> NormalizedRows:
    x = np.random.default_rng(3).standard_normal((rows, width))
    return NormalizedRows(
        Rows(round_to(x, "bf16").astype(np.float64), None, None, EPSILON, centered)
    )


def right(graph: NormalizedRows, form: str) -> Floats:
    """The output of a right kernel, rounded once."""
    return round_to(graph.replay(graph.forms[0]).values, form).astype(np.float64)


def finding(
    distance: float = 1.0, row_error: float = 1.0, common: float = 0.0, rounding: Mode = "even"
) -> Finding:
    program = Program(output_rounding=rounding)
    return Finding(program, distance, row_error, common, 0.0)


def test_the_largest_of_three_errors_is_the_size_of_a_finding() -> None:
    assert finding(2.0, 3.0).size == 3.0
    assert finding(4.0, 3.0).size == 4.0
    assert finding(common=MAX_COMMON).size == LIMIT
    assert finding(common=MAX_COMMON).explained
    assert not finding(common=1.01 * MAX_COMMON).explained
    assert finding(math.nan).size == finding(row_error=math.nan).size == math.inf


@pytest.mark.parametrize(
    ("rounding", "distance", "expected"),
    [("random", 1.0, True), ("even", 1.0, False), ("random", 99.0, False)],
)
def test_an_output_is_rounded_at_random_where_such_a_program_explains_it(
    rounding: str, distance: float, expected: bool
) -> None:
    assert finding(distance, rounding=rounding).is_at_random is expected


def spoiled(graph: NormalizedRows, steps: dict[int, int]) -> Floats:
    """A right output whose rows are off by some steps in one element."""
    y = right(graph, "fp32")
    for row, count in steps.items():
        y[row, 7] += count * ulp(y[row, 7:8], "fp32")[0]
    return y


@pytest.mark.parametrize(
    ("steps", "missed"),
    [
        ({2: 4000, 5: 90000, 6: 20000}, [5, 6, 2]),
        (dict.fromkeys((1, 3), 9000) | {6: 90000, 7: 20000}, [6, 7]),
        (dict.fromkeys((0, 1, 2, 3, 4), 9000), []),
    ],
    ids=["worst first", "half of them", "too few are reproduced"],
)
def test_rows_that_a_program_misses_count_where_it_reproduces_others(
    steps: dict[int, int], missed: list[int]
) -> None:
    graph = graph_of(8)
    measured = measure(graph, graph.forms[0], spoiled(graph, steps), "fp32", LIMIT)
    assert ladder._missed(measured).tolist()[: len(missed) or None] == missed


def test_a_program_is_tried_on_the_worst_rows_and_on_rows_from_the_first_to_the_last() -> None:
    graph = graph_of(40)
    worst = {row: 4000 * (row + 1) for row in (3, 11, 12, 22, 27, 33)}
    measured = measure(graph, graph.forms[0], spoiled(graph, worst), "fp32", LIMIT)
    sample = set(ladder._sample(measured).tolist())
    assert sample == {*worst, 0, 7, 15, 23, 31, 39}


def test_a_small_output_of_a_kernel_that_rounds_at_random_is_explained() -> None:
    """Three elements have less information than any other program would need."""
    graph = graph_of(1, 3)
    y = round_to(graph.replay(graph.forms[0]).values, "bf16", "zero").astype(np.float64)
    explained = ladder.at_random_too(graph, y, "bf16")
    assert explained is not None
    assert explained.is_at_random
    assert ladder.at_random_too(graph, 1.5 * y, "bf16") is None


def test_other_rows_check_what_some_rows_have_shown() -> None:
    graph = graph_of(40)
    y = right(graph, "bf16")
    probed, searched, checked = search.samples(graph, y, "bf16")
    assert (len(probed.output), len(searched.output), len(checked.output)) == (2, 8, 8)
    rows = {row.tobytes() for row in searched.output}
    assert not rows & {row.tobytes() for row in checked.output}
    assert np.array_equal(searched.output[0], y[0])
    assert np.array_equal(checked.output[-1], y[-1])


def test_of_two_rows_one_checks_and_a_single_row_is_all_there_is() -> None:
    graph = graph_of(2)
    y = right(graph, "bf16")
    probed, searched, checked = search.samples(graph, y, "bf16")
    for sample, row in ((probed, 0), (searched, 0), (checked, 1)):
        assert np.array_equal(sample.output, y[row : row + 1])
    alone = graph_of(1)
    probed, searched, checked = search.samples(alone, right(alone, "bf16"), "bf16")
    assert (probed.output.shape, searched.output.shape) == ((1, 16), (1, 64))
    assert searched is checked


def test_a_search_grows_from_a_variance_of_x_only_where_a_mean_may_be_stored() -> None:
    centered, rms = graph_of(4), graph_of(4, centered=False)
    assert search._bases(rms) == list(rms.forms)
    assert {base.variance for base in search._bases(centered)} >= {"x", Program.variance}


FIT = Fit(Program(), 0.0, 1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("fit", "earned", "nearly"),
    [
        (FIT, True, True),
        (replace(FIT, mismatch=MAX_MISMATCH, decided=MIN_DECIDED), True, True),
        (replace(FIT, mismatch=MAX_HIDDEN), False, True),
        (replace(FIT, mismatch=1.01 * MAX_HIDDEN), False, False),
        (replace(FIT, decided=0.9 * MIN_DECIDED), False, False),
        (replace(FIT, gained=0.9 * MIN_DECIDED), False, True),
    ],
)
def test_a_program_is_earned_by_values_that_ties_do_not_allow(
    fit: Fit, earned: bool, nearly: bool
) -> None:
    assert (search._earned(fit), search._nearly(fit)) == (earned, nearly)


def errors(output: float, noise: float = 0.0, slack: float = 0.0) -> at_random._Errors:
    """The errors of one element whose exact value is a quarter of a step above 1, in bf16."""
    value, step = np.array([[1.0 + 2.0**-9]]), 2.0**-7
    quantity = Quantity(value, np.array([[noise * step**2]]), {}, np.array([[slack * step]]))
    return at_random._Errors.of(np.array([[output]]), quantity, "bf16")


def test_the_loss_of_a_fit_is_the_share_of_elements_that_are_a_step_or_more_off() -> None:
    graph = graph_of(8)
    y = spoiled(graph, {2: 4000, 5: 90000, 6: 20000})
    sample = search.Sample(graph, y, np.arange(y.shape[1]), "fp32")
    fit = sample.fit(graph.forms[0])
    assert (fit.mismatch, fit.loss) == (3 / y.size, 3 / y.size)


@pytest.mark.parametrize(("steps", "is_found"), [(1, False), (2, True), (3, True)])
def test_a_search_may_end_with_its_last_step(
    monkeypatch: pytest.MonkeyPatch, steps: int, is_found: bool
) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", steps)
    graph = graph_of(32)
    usual = graph.forms[0]
    storing = replace(usual, stored={"x^": "bf16", "mean": "bf16"})
    y = round_to(graph.replay(storing).values, "fp32").astype(np.float64)
    sample = search.Sample(graph, y, np.arange(y.shape[1]), "fp32")
    assert search._grown(sample, usual, "bf16") == (storing if is_found else None)


def test_only_storing_programs_that_miss_some_rows_are_kept_for_a_second_search() -> None:
    near = search.Near()
    storing, other = Program(stored={"mean": "bf16"}), Program()
    ladder._note(near, other, np.array([1]))
    ladder._note(near, storing, np.array([], np.intp))
    assert (near.programs, near.rows) == ([], set())
    ladder._note(near, storing, np.array([4, 1]))
    assert (near.programs, near.rows) == ([storing], {1, 4})


def test_an_element_is_rounded_up_as_often_as_what_is_cut_off_says() -> None:
    step = 2.0**-7
    down, up = errors(1.0), errors(1.0 + step)
    assert (down.least_probability, up.least_probability) == (0.75, 0.25)
    assert (down.error[0, 0], up.error[0, 0]) == (-0.25 * step, 0.75 * step)
    for one in (down, up):
        assert one.variance[0, 0] == 0.25 * 0.75 * step**2
        assert one.information[0, 0] == 0.25 * 0.75
        assert (one.classes[0, 0], one.step[0, 0]) == (2, step)


def test_noise_and_ties_widen_what_an_element_may_be() -> None:
    step = 2.0**-7
    noisy, tied = errors(1.0 + step, noise=1e-4), errors(1.0 + step, slack=0.5)
    assert noisy.variance[0, 0] == pytest.approx((0.1875 + 1e-4) * step**2)
    assert noisy.least_probability == pytest.approx(0.25 + TIE * 0.01)
    assert tied.variance[0, 0] == pytest.approx((0.1875 + 0.25 / 3) * step**2)
    assert tied.least_probability == pytest.approx(0.75)
    assert errors(1.0, slack=1.5).information[0, 0] == 0.0  # as wide as a step: it says nothing


def test_sums_that_say_little_count_for_nothing() -> None:
    sums = at_random._Sums.of(3)
    assert sums.largest == 0.0
    sums.along[:] = (6.0, 8.0, 99.0)
    sums.variance[:] = (4.0, 16.0, 1.0)
    sums.information[:] = (at_random.MIN_SUMMED, 100.0, 0.99 * at_random.MIN_SUMMED)
    assert sums.largest == 3.0


def test_the_steps_of_a_walk_are_those_of_its_partial_sums() -> None:
    one = np.array([[1.5, 3.0, -1.5]])
    assert walks.variance(one, "bf16").tolist() == [
        step**2 / 12 for step in (2.0**-7, 2.0**-6, 2.0**-7)
    ]
    # whatever the order, each partial sum lies in the same binade
    many = np.array([[1.5], [0.0], [0.0], [0.0]])
    assert walks.variance(many, "bf16")[0] <= 4 * 2.0**-14 / 12
