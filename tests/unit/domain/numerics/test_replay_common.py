"""A factor that all rows share shows in their mean, however small it is beside a row's rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from gonogo.kernels.normalization.forward import LINEAR, NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay import common, ladder
from gonogo.numerics.replay.cells import POOLED, Edges
from gonogo.numerics.replay.ladder import MAX_COMMON, Finding
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Quantity

ROWS, WIDTH = 64, 768
EPSILON = 1e-5
Floats = NDArray[np.float32]


def inputs(form: str, spread: float = 1.0) -> Floats:
    x = spread * np.random.default_rng(5).standard_normal((ROWS, WIDTH))
    return round_to(x, form).astype(np.float32)


def kernel(x: Floats, factor: float, epsilon: float = EPSILON) -> Floats:
    """Return y of a kernel in fp32, with rstd off by a factor."""
    mean = x.mean(axis=1, keepdims=True)
    centered = x - mean
    variance = (centered * centered).mean(axis=1, keepdims=True)
    rstd = (1.0 / np.sqrt(variance.astype(np.float64) + epsilon) * (1.0 + factor)).astype(
        np.float32
    )
    return np.asarray(centered * rstd, np.float32)


def nearest(x: Floats, y: Floats, form: str, mode: Mode = "even") -> Finding:
    graph = NormalizedRows(Rows(x.astype(np.float64), None, None, EPSILON))
    program = replace(graph.forms[0], output_rounding=mode)
    return ladder.nearest(graph, round_to(y, form, mode), form, [program])


@pytest.mark.parametrize(
    ("form", "mode"), [("fp32", "even"), ("fp16", "even"), ("bf16", "even"), ("bf16", "zero")]
)
def test_a_right_kernel_has_no_common_factor(form: str, mode: Mode) -> None:
    x = inputs(form)
    finding = nearest(x, kernel(x, 0.0), form, mode)
    assert finding.explained
    assert finding.common <= MAX_COMMON / 4


@pytest.mark.parametrize(
    ("form", "factor", "mode"),
    [
        ("fp32", 4e-7, "even"),
        ("fp32", -4e-7, "even"),
        ("fp16", 6e-7, "even"),
        ("fp16", -5e-7, "zero"),
    ],
)
def test_a_factor_that_no_row_shows_alone_shows_in_all_of_them(
    form: str, factor: float, mode: Mode
) -> None:
    x = inputs(form)
    finding = nearest(x, kernel(x, factor), form, mode)
    assert max(finding.distance, finding.row_error) <= ladder.LIMIT
    assert finding.common == pytest.approx(abs(factor), rel=0.15)
    assert not finding.explained


def test_few_rows_show_a_factor_that_is_far_beyond_their_own_errors() -> None:
    x = inputs("fp16")[:4]
    assert nearest(x, kernel(x, 0.0), "fp16").common == 0.0
    assert nearest(x, kernel(x, 1e-6), "fp16").common == pytest.approx(1e-6, rel=0.3)
    assert nearest(x[:2], kernel(x[:2], 1e-6), "fp16").common > 0.0  # two, but no single one
    assert nearest(x[:1], kernel(x[:1], 1e-6), "fp16").common == 0.0


def test_a_factor_is_found_however_far_from_none_it_is() -> None:
    # beside an offset, the error of the mean hides the factor in each element
    x = round_to(100 + inputs("fp16"), "fp16").astype(np.float32)
    finding = nearest(x, kernel(x, 8e-6), "fp16")
    assert finding.common == pytest.approx(8e-6, rel=0.3)


@pytest.mark.parametrize("form", ["fp32", "fp16"])
def test_epsilon_left_out_under_a_large_variance_is_not_rounding(form: str) -> None:
    x = inputs(form, 3.6)
    finding = nearest(x, kernel(x, 0.0, epsilon=0.0), form)
    assert finding.common == pytest.approx(EPSILON / (2 * 3.6**2), rel=0.2)
    assert not finding.explained


def test_two_units_in_the_last_place_are_an_approximate_rsqrt() -> None:
    x = inputs("fp32")
    finding = nearest(x, kernel(x, 1.3e-7), "fp32")
    assert finding.common == pytest.approx(1.3e-7, rel=0.2)
    assert finding.explained


def test_of_a_long_output_rows_from_the_first_to_the_last_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(common, "MAX_ELEMENTS", 2 * WIDTH)
    x = inputs("fp16")[:4]
    right, y = kernel(x, 0.0), kernel(x, 1e-6)
    y[1:3] = right[1:3]
    assert nearest(x, y, "fp16").common > 0.0
    y[0] = right[0]
    assert nearest(x, y, "fp16").common == 0.0


@pytest.mark.parametrize("form", ["fp32", "fp16"])
def test_equal_rows_say_the_same_thing_once(form: str) -> None:
    x = np.repeat(inputs(form)[:1], ROWS, axis=0)
    assert nearest(x, kernel(x, 4e-7), form).common == 0.0


@pytest.mark.parametrize("form", ["fp32", "fp16"])
def test_a_few_rows_with_factors_of_their_own_are_no_common_one(form: str) -> None:
    x = inputs(form)
    y = kernel(x, 0.0)
    y[:3] = kernel(x[:3], 6e-7)
    y[3:6] = kernel(x[3:6], -6e-7)
    assert nearest(x, y, form).common <= MAX_COMMON / 4


def test_rstd_itself_shows_a_common_factor() -> None:
    x = inputs("fp32")
    rstd = 1.0 / np.sqrt(x.var(axis=1, dtype=np.float64, keepdims=True) + EPSILON)
    graph = RowStatistic(Rows(x.astype(np.float64), None, None, EPSILON), rstd=True)
    finding = ladder.nearest(
        graph, (rstd * (1.0 + 3e-7)).astype(np.float32), "fp32", graph.forms[:1]
    )
    assert finding.common == pytest.approx(3e-7, rel=0.1)


@pytest.mark.parametrize("product", ["(x - mean) rstd", LINEAR])
def test_an_output_that_is_stored_before_it_is_rounded_hides_no_factor(product: str) -> None:
    x, gamma = inputs("fp16"), np.full((1, WIDTH), 0.75)
    graph = NormalizedRows(Rows(x.astype(np.float64), gamma, None, EPSILON, centered=False))
    program = Program(product=product)
    name = graph.last(program)
    assert name is not None
    stored = replace(program, stored={name: "fp16"})
    y = round_to(graph.replay(program).values * (1 + 6e-7), "fp16")
    for other in (program, stored):
        finding = ladder.nearest(graph, y, "fp16", [other])
        assert finding.common == pytest.approx(6e-7, rel=0.15)
        assert not finding.explained
    with_beta = replace(graph, rows=replace(graph.rows, beta=np.ones((1, WIDTH))))
    assert with_beta.last(program) is None


def test_a_stored_rstd_has_no_rounding_in_fp32() -> None:
    x = inputs("bf16")
    graph = NormalizedRows(Rows(x.astype(np.float64), None, None, EPSILON))
    assert graph.rstd_rounding(Program(stored={"rstd": "bf16"})) is None
    rounding = graph.rstd_rounding(Program())
    assert rounding is not None
    assert rounding.shape == (ROWS,)


# The guards, on invented rows and cells.


def of_rows(mean: float, scatter: float, rows: int, least: float = common.MIN_SCORE) -> float:
    """Return the factor of rows whose estimates scatter about a mean, in units of one rounding."""
    estimates = mean + scatter * np.resize([1.0, -1.0], rows) * np.sqrt((rows - 1) / rows)
    rounding = np.full(rows, 1e-7)
    return common._of_rows(estimates, np.ones(rows), rounding, least) / 1e-7


@pytest.mark.parametrize(
    ("mean", "scatter", "rows", "factor"),
    [
        (2.0, 1.0, 64, 2.0),
        (-2.0, 1.0, 64, 2.0),
        (2.0, 0.13, 8, 2.0),
        (2.0, 0.12, 8, 0.0),  # rows that scatter so little are alike
        (1.51, 1.0, 64, 1.51),
        (1.49, 1.0, 64, 0.0),  # no more than a single row's error
        (2.0, 1.0, 16, 2.0),
        (2.0, 1.0, 14, 0.0),  # so few rows may do that by chance
        (9.0, 1.0, 2, 0.0),
    ],
)
def test_rows_share_a_factor_that_is_beyond_chance(
    mean: float, scatter: float, rows: int, factor: float
) -> None:
    assert of_rows(mean, scatter, rows) == pytest.approx(factor)


def test_two_rows_are_enough_where_little_is_asked() -> None:
    assert of_rows(9.0, 1.0, 2, least=1.0) == pytest.approx(9.0)


def test_rows_count_by_what_they_say() -> None:
    estimates, spreads = np.array([2.2, 1.8] * 8 + [9.0] * 4), np.array([1.0] * 16 + [0.0] * 4)
    rounding = np.full(20, 1e-7)
    result = common._of_rows(estimates, spreads, rounding, common.MIN_SCORE)
    assert result == pytest.approx(2e-7)
    assert common._of_rows(estimates[15:], spreads[15:], rounding[15:], 0.0) == 0.0
    # a row of half the rounding and of half the spread: its factor is the same
    spreads[:16:2], rounding[:16:2] = 0.5, 0.5e-7
    estimates[:16:2] *= 0.5 * 2
    weighted = (2 * 2.2 + 1.8) / 3
    result = common._of_rows(estimates, spreads, rounding, common.MIN_SCORE)
    assert result == pytest.approx(weighted * 1e-7)


@pytest.mark.parametrize(("t", "freedom"), [(5.0, 3), (5.0, 30), (10.0, 7), (2.0, 100)])
def test_a_score_is_as_unlikely_as_student_s_t(t: float, freedom: int) -> None:
    assert common.score(t, freedom) == pytest.approx(norm.isf(student.sf(t, freedom)), abs=0.1)


def test_likelihoods_are_those_of_the_upper_tail() -> None:
    z = np.array([-9.0, -1.0, 0.0, 2.0, 8.0])
    assert common._log_likelihood(z) == pytest.approx(norm.logsf(z).sum())
    np.testing.assert_allclose(common._hazard(z), norm.pdf(z) / norm.sf(z), rtol=1e-9)


def test_elements_far_inside_their_cells_tell_no_factor() -> None:
    assert common._most_likely(np.full(3, -60.0), np.ones(3)) == 0.0


def of_cells(size: float, rows: int, **changes: Any) -> float:
    """Return the factor result in cells of values that are off by a factor, in units of 1e-7.

    A standard deviation of an element is 1, of which the row's rounding makes a half.
    """
    random = np.random.default_rng(3)
    shape = (rows, 400)
    rounding = changes.get("rounding", np.full(rows, 1e-7))
    inside, inward = random.uniform(0.0, 6.0, shape), random.choice([-1.0, 1.0], shape)
    shift = 0.5 * size * 1e-7 / rounding[:, None]
    more = {"mean": np.full(shape, changes["mean"])} if "mean" in changes else {}
    replay = Quantity(
        np.zeros(shape),
        np.full(shape, changes.get("noise", 0.75)),
        {changes.get("source", POOLED): np.full(shape, 0.5), **more},
        np.full(shape, changes.get("slack", 0.0)),
    )
    near = Edges(inward * shift - inside - changes.get("beyond", 0.0), inward)
    half = np.full(shape, changes.get("half", 16.01))
    least = changes.get("least", common.MIN_SCORE)
    return common._of_cells(near, half, replay, rounding, least) / 1e-7


@pytest.mark.parametrize(
    ("size", "rows", "result"),
    [
        (4.0, 6, True),
        (4.0, 5, False),  # six rows have to be outside their cells
        (10.0, 2, True),  # two, where the factor is far beyond a row's error
        (10.0, 1, False),
        (-4.0, 6, True),
        (2.0, 40, True),
        (1.2, 40, False),  # no more than a row's own error
        (0.0, 40, False),
    ],
)
def test_cells_share_a_factor_that_enough_rows_show(size: float, rows: int, result: bool) -> None:
    assert of_cells(size, rows) == (pytest.approx(abs(size), rel=0.1) if result else 0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "mean"},  # no error of the rows' rstd
        {"slack": 1e-9},  # near a tie
        {"half": 15.99},  # too noisy: the other edge is within reach
        {"beyond": 20.0},  # no edge is near
        {"least": 100.0},
    ],
    ids=str,
)
def test_cells_that_say_nothing_show_no_factor(changes: dict[str, Any]) -> None:
    assert of_cells(4.0, 12, **changes) == 0.0


def test_a_row_s_own_error_is_that_of_all_its_sources() -> None:
    """The mean's error is as large as that of rstd: together they are 1.41 of them."""
    both = {"mean": 0.5, "noise": 0.5}
    assert of_cells(1.8, 60, **both) == 0.0  # 1.3 of a row's own errors
    assert of_cells(2.6, 60, **both) == pytest.approx(2.6, rel=0.1)
    assert of_cells(10.0, 2, **both) == 0.0  # 7.1 of them: two rows are too few
    assert of_cells(13.0, 2, **both) == pytest.approx(13.0, rel=0.1)


def test_a_factor_is_less_of_a_larger_rounding() -> None:
    rounding = np.array([1e-7] * 5 + [2e-7] * 4)
    assert of_cells(4.0, 9, rounding=rounding) == pytest.approx(4.0, rel=0.1)


def test_a_row_s_deviation_is_what_lies_along_the_pattern() -> None:
    pattern = np.array([[1.0, -1.0], [2.0, 2.0]])
    shared = {"a": pattern, "b": np.array([[3.0, -3.0], [2.0, -2.0]])}
    replay = Quantity(np.zeros((2, 2)), shared=shared)
    # the first row has 1 and 3 of the pattern, the second 1 and 0
    assert common._row_deviation(replay, pattern) == pytest.approx(np.sqrt((10.0 + 1.0) / 2))
