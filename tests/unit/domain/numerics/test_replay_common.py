"""A factor that all rows share shows in their mean, however small it is beside a row's rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import LINEAR, NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.ladder import MAX_COMMON, Finding
from gonogo.numerics.replay.program import Program

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
