"""The faults of mean and rstd as outputs: one value for each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults import statistics
from gonogo.judging.faults.fault import Fault, Residual, places
from gonogo.judging.faults.stored import SHOWS
from gonogo.kernels.normalization.forward import RowStatistic
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import NARROW, round_to

EQUAL = 9.0
"""The largest square of the difference of equal values, over the variance of a right one."""
MAX_WRONG = 1 / 4
"""The largest share of the rows that are named by their errors alone."""


def faults(graph: RowStatistic, exact: Array, residual: Residual, form: str) -> Iterator[Fault]:
    """Yield the faults of mean or rstd, those without a fitted number first.

    The effects have one row, whose elements are the rows of x.

    Args:
        graph: the statistic, with the kernel's inputs.
        exact: its right values (rows, 1).
        residual: its error (1, rows).
        form: its format.
    """
    rows = graph.rows
    x = np.asarray(rows.x, np.float64)
    name = "rstd" if graph.rstd else "mean"

    def effect(wrong: statistics.Statistics) -> Array:
        return np.asarray(((wrong.rstd if graph.rstd else wrong.mean) - exact).T)

    output = exact + residual.error.T
    for wrong in statistics.wrong(
        x, rows.epsilon, centered=rows.centered, **_tails(graph, x, exact, output)
    ):
        yield Fault(wrong.words, effect(wrong))
    for other in NARROW:
        if other != form:
            rounded = round_to(exact, other).astype(np.float64)
            yield Fault(f"the {name} is stored in {other}", (rounded - exact).T)
    if form == "fp32":  # in 16 bits many rows have the same value
        error, variance, weight = residual.error.T, residual.variance.T, residual.weight.T
        by_row = Residual(error, variance, weight, np.ones_like(exact))
        for fault in of_rows.stale(exact, by_row):
            row = np.flatnonzero(fault.effect)  # any value is near some other row's
            rest = np.square(by_row.error[row] - fault.effect[row])
            if (rest <= EQUAL * by_row.variance[row]).all():
                yield Fault(fault.words, fault.effect.T)
    factors = of_rows.common(exact.T, residual)
    fitted = None
    if graph.rstd:

        def of_epsilon(value: float) -> Array:
            return effect(statistics.right(x, value, centered=rows.centered))

        fitted = statistics.fitted_epsilon(of_epsilon, rows.epsilon, residual)
    yield from statistics.likelier_of(factors, fitted, residual)
    if not graph.rstd:
        ones = np.ones_like(residual.error)
        shift = residual.common(ones)
        yield Fault(f"the mean is off by {shift:.2g} in all rows", shift * ones, 1)
    wrong_rows = residual.error**2 > SHOWS * residual.variance
    count = int(wrong_rows.sum())
    if 0 < count <= MAX_WRONG * wrong_rows.size:
        off = np.where(wrong_rows, residual.error, 0.0)
        yield Fault(f"the {name} is off in {places('row', off)}", off, count)


def _tails(
    graph: RowStatistic, x: Array, exact: Array, output: Array
) -> dict[str, tuple[int, ...]]:
    """Return how many last columns the statistic seems to leave out."""
    if not graph.rstd:
        return {"of_mean": (statistics.tail(x / x.shape[1], exact - output),)}
    mean = statistics.right(x, graph.rows.epsilon, centered=graph.rows.centered).mean
    with np.errstate(divide="ignore", invalid="ignore"):
        missing = exact**-2.0 - output**-2.0
    if not np.isfinite(missing).all():
        return {}
    return {"of_squares": (statistics.tail((x - mean) ** 2 / x.shape[1], missing),)}
