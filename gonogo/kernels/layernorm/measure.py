"""How near dx is to its replay, and the column sums of dgamma and dbeta, by compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.jit import plain
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.compiled import columns, gradient, results, sums
from gonogo.numerics.replay.program import ColumnOrder, Order, Program
from gonogo.numerics.replay.quantity import Quantity

Statistics = tuple[Quantity | None, Quantity]
"""Mean and rstd of each row (rows, 1); None for the mean of a kernel that subtracts none."""
Coefficients = Callable[[Quantity, Quantity], tuple[Quantity, Quantity]]

NO_MEAN = Quantity(np.zeros((1, 1)))
"""The mean, and s1, of a kernel that subtracts none."""


def input_gradient(
    inputs: tuple[Array, Array, Array],
    statistics: Statistics,
    formula: int,
    program: Program,
    coefficients: Coefficients,
    output: NDArray[np.float32],
    form: str,
    limit: float,
) -> Measurement:
    """Return how near dx (rows, N) is to its replay by a program that stores nothing.

    Args:
        inputs: x and dy (rows, N), gamma (1, N).
        statistics: mean and rstd; without errors where the kernel is given them.
        formula: one of gradient's.
        program: only its order is used.
        coefficients: the linear formula's b and c from the means of P and of P x.
        output: dx.
        form: its format.
        limit: the distance beyond which elements are counted.
    """
    x, dy, gamma = map(plain, inputs)
    mean, rstd = statistics
    count, width = x.shape
    centered, shift = mean is not None, NO_MEAN if mean is None else mean
    given = not shift.shared and not rstd.shared
    numbers = np.zeros((count, gradient.NUMBERS))
    numbers[:, gradient.MEAN] = results.column(count, shift.values)
    numbers[:, gradient.RSTD] = results.column(count, rstd.values)
    facts = np.zeros((count, gradient.SUMS, sums.FACTS))
    order = sums.ORDERS[program.order]

    def add(start: int, stop: int) -> None:
        gradient.add_sums(
            start, stop, formula, centered, given, x, dy, gamma[0], numbers, order, facts
        )

    over_rows(add, count, results.rows_at_once(count, width))
    constant, linear = of_normalized(shift, rstd)
    mean_product = facts[:, gradient.S1, sums.VALUE, None]
    slope = facts[:, gradient.S2, sums.SLOPE, None]
    errors = joined(scaled(constant, mean_product), scaled(linear, slope))
    is_linear = formula == gradient.LINEAR
    s1 = NO_MEAN
    if centered:
        s1 = results.mean(facts[:, gradient.S1], "s1", width).per_row("s1")
    second = results.mean(facts[:, gradient.S2], "s2", width, {} if is_linear else errors)
    s2 = second.per_row("s2")
    numbers[:, gradient.MEAN_P] = results.column(count, s1.values)
    numbers[:, gradient.MEAN_P_XHAT] = s2.values[:, 0]
    if is_linear:
        b, c = coefficients(s1, s2)
        numbers[:, gradient.B] = results.column(count, b.values)
        numbers[:, gradient.C] = results.column(count, c.values)
        # x b - c = (x - mean) b - (c - mean b)
        constant = joined(scaled(b.shared, shift.values), scaled(c.shared, -np.ones((1, 1))))
        linear = dict(b.shared)
    else:
        constant = joined(s1.shared, scaled(constant, s2.values))
        linear = joined(scaled(s2.shared, rstd.values), scaled(linear, s2.values))
        constant, linear = scaled(constant, -rstd.values), scaled(linear, -rstd.values)
    patterns = results.RowPatterns.of(count, [constant, linear, dict(rstd.shared)])
    numbers[:, gradient.SHARED :] = patterns.form()

    def loop(
        start: int,
        stop: int,
        unit: float,
        smallest: float,
        squared_limit: float,
        weighted: bool,
        measured: Array,
        grams: Array,
    ) -> None:
        gradient.measure(
            start, stop, formula, centered, given, x, dy, gamma[0], output, numbers,
            unit, smallest, squared_limit, weighted, measured, grams,
        )  # fmt: skip

    whole = results.Output(output, form, limit)
    return whole.measured(count, patterns, gradient.PATTERNS, loop)


def column_sums(
    x: Array,
    dy: Array,
    statistics: Statistics | None,
    program: Program,
) -> Quantity:
    """Return the sums of dy x^ down the columns (1, N), or of dy without `statistics`.

    x, dy: (rows, N). The program stores nothing.
    """
    x, dy = plain(x), plain(dy)
    count, width = dy.shape
    numbers = np.zeros((count, columns.NUMBERS))
    given = centered = True
    if statistics is not None:
        mean, rstd = statistics
        centered, mean = mean is not None, NO_MEAN if mean is None else mean
        given = not mean.shared and not rstd.shared
        numbers[:, columns.MEAN] = results.column(count, mean.values)
        numbers[:, columns.RSTD] = results.column(count, rstd.values)
        patterns = list(of_normalized(mean, rstd))
        if not given:
            numbers[:, columns.SHARED :] = results.RowPatterns.of(count, patterns).form()
    facts = np.zeros((width, sums.FACTS))
    is_blocked = program.column_order is ColumnOrder.blocked
    order = sums.ORDERS[Order.blocked if is_blocked else Order.running]

    def add(start: int, stop: int) -> None:
        columns.add_columns(
            start, stop, statistics is not None, centered, given, x, dy, numbers, order, facts
        )

    over_rows(add, width, columns.WIDTH)
    noise = facts[:, sums.NOISE].copy()
    facts[:, sums.NOISE] = 0.0
    means = results.mean(facts, "order", count)
    deviation = means.shared["order"].T
    return Quantity(count * means.values.T, noise[None] + (count * deviation) ** 2)


def of_normalized(mean: Quantity, rstd: Quantity) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the errors of x^ that a row shares: constants, and factors of x - mean (rows, 1)."""
    return scaled(mean.shared, -rstd.values), dict(rstd.shared)


def scaled(errors: Mapping[str, Array], factor: Array) -> dict[str, Array]:
    """Return errors times a factor."""
    return {source: error * factor for source, error in errors.items()}


def joined(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, Array]:
    """Return the sums of errors of equal sources, and all others."""
    zero = np.zeros((1, 1))
    return {source: a.get(source, zero) + b.get(source, zero) for source in {**a, **b}}
