"""A wrong mean or rstd output is named by the fault that explains nearly all of its error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.term_shares import MAX_ELEMENTS, diagnose
from gonogo.kernels.normalization.forward import RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to

EPSILON = 1e-5
COUNT, WIDTH = 24, 160
Doubles = NDArray[np.float64]

generator = np.random.default_rng(6)
X = generator.uniform(0.3, 2.0, (COUNT, 1)) * (0.5 + generator.standard_normal((COUNT, WIDTH)))
MEAN = X.mean(axis=1, keepdims=True)
VARIANCE = X.var(axis=1, keepdims=True)
SQUARES = (X - MEAN) ** 2
RSTD = 1.0 / np.sqrt(VARIANCE + EPSILON)


def named(output: Doubles, *, rstd: bool, form: str = "fp32", x: Doubles = X) -> str:
    """Return the words of the diagnosis, "" for none."""
    graph = RowStatistic(Rows(x, None, None, EPSILON), rstd)
    share = diagnose(graph, round_to(output, form), form, graph.forms[0])
    return "" if share is None else share.words


def rstd_of(variance: Doubles, epsilon: float = EPSILON) -> Doubles:
    return np.asarray(1.0 / np.sqrt(variance + epsilon))


def with_row(values: Doubles, row: int, value: float) -> Doubles:
    changed = values.copy()
    changed[row] = value
    return changed


OF_RSTD: dict[str, Callable[[], Doubles]] = {
    "the variance divides by N - 1": lambda: rstd_of(VARIANCE * WIDTH / (WIDTH - 1)),
    "the variance is taken about 0": lambda: rstd_of((X**2).mean(axis=1, keepdims=True)),
    "the variance leaves epsilon out": lambda: rstd_of(VARIANCE, 0.0),
    "epsilon is added outside the root": lambda: 1.0 / (np.sqrt(VARIANCE) + EPSILON),
    "epsilon is 0.001": lambda: rstd_of(VARIANCE, 1e-3),
    "epsilon is about 0.0004": lambda: rstd_of(VARIANCE, 4e-4),
    "the variance leaves out the last 13 columns": lambda: rstd_of(
        SQUARES[:, :-13].sum(axis=1, keepdims=True) / WIDTH
    ),
    "each row has the rstd of the row before it": lambda: np.roll(RSTD, 1, axis=0),
    "row 9 holds the values of row 8": lambda: with_row(RSTD, 9, float(RSTD[8, 0])),
    "the rstd is off in row 9": lambda: with_row(RSTD, 9, 1.01 * float(RSTD[9, 0])),
    "the rstd is stored in bf16": lambda: round_to(RSTD, "bf16").astype(np.float64),
    "a common factor of 1.001": lambda: 1.001 * RSTD,
    "a common factor of 1.09544": lambda: rstd_of(VARIANCE * WIDTH / 192),
}
OF_MEAN: dict[str, Callable[[], Doubles]] = {
    "the mean is missing": lambda: 0.0 * MEAN,
    "the mean leaves out the last 4 columns": lambda: X[:, :-4].sum(axis=1, keepdims=True) / WIDTH,
    "each row has the mean of the row after it": lambda: np.roll(MEAN, -1, axis=0),
    "row 5 holds the values of row 4": lambda: with_row(MEAN, 5, float(MEAN[4, 0])),
    "the mean is off in rows 5, 7": lambda: with_row(with_row(MEAN, 5, 0.1), 7, 0.2),
    "the mean is stored in bf16": lambda: round_to(MEAN, "bf16").astype(np.float64),
    "the mean is off by 1e-05 in all rows": lambda: MEAN + 1e-5,
    "a common factor of 0.833333": lambda: MEAN * WIDTH / 192,
}


@pytest.mark.parametrize("words", OF_RSTD)
def test_a_fault_of_an_rstd_output_is_named(words: str) -> None:
    assert named(OF_RSTD[words](), rstd=True) == words


@pytest.mark.parametrize("words", OF_MEAN)
def test_a_fault_of_a_mean_output_is_named(words: str) -> None:
    assert named(OF_MEAN[words](), rstd=False) == words


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_right_statistics_have_no_fault(form: str) -> None:
    assert named(RSTD, rstd=True, form=form) == ""
    assert named(MEAN, rstd=False, form=form) == ""


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_values_that_no_fault_makes_are_named_by_none(form: str) -> None:
    noise = 0.1 * np.random.default_rng(3).standard_normal((COUNT, 1))
    for count in (4, COUNT):
        x = X[:count]
        assert named(RSTD[:count] * (1.0 + noise[:count]), rstd=True, form=form, x=x) == ""
        assert named(MEAN[:count] + noise[:count], rstd=False, form=form, x=x) == ""


def test_an_rstd_in_16_bits_has_the_faults_that_show_there() -> None:
    wrong = rstd_of((X**2).mean(axis=1, keepdims=True))
    assert named(wrong, rstd=True, form="bf16") == "the variance is taken about 0"
    # many rows have the value of another one there
    assert named(with_row(RSTD, 9, 1.05 * float(RSTD[9, 0])), rstd=True, form="bf16") == (
        "the rstd is off in row 9"
    )


def test_of_many_rows_a_part_is_enough() -> None:
    x = np.random.default_rng(1).standard_normal((2 * MAX_ELEMENTS // 1024, 1024))
    wrong = rstd_of(x.var(axis=1, keepdims=True) * 1024 / 1023)
    assert named(wrong, rstd=True, x=x) == "the variance divides by N - 1"
