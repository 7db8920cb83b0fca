"""How near y is to its replay, by compiled loops over the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.normalization.moments import Rows
from gonogo.kernels.normalization.row_moments import row_moments
from gonogo.numerics.jit import plain
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.compiled import forward, results
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Machine

PRODUCTS = {
    "(x - mean) rstd": forward.DIRECT,
    "(x - mean) (gamma rstd)": forward.FACTOR_FIRST,
    "(x - mean) / root": forward.DIRECT,
    "x rstd - mean rstd": forward.SHIFTED,
    "x (gamma rstd) + (beta - mean gamma rstd)": forward.LINEAR,
}


def measure(
    rows: Rows, program: Program, output: NDArray[np.floating], form: str, limit: float
) -> Measurement | None:
    """Return how near y (rows, N) is to its replay by a program that stores nothing.

    None where fp32 doesn't hold the outputs, or the product isn't one of PRODUCTS.
    """
    y = results.singles(output)
    if y is None or program.product not in PRODUCTS:
        return None
    x = plain(rows.x)
    gamma, beta = (
        np.zeros((1, 0)) if vector is None else plain(vector) for vector in (rows.gamma, rows.beta)
    )
    statistics = row_moments(program, rows)
    machine = Machine(program)
    mean, rstd = statistics.mean, statistics.rstd
    if statistics.root is not None:
        rstd = machine.reciprocal(statistics.root)
    count = len(x)
    numbers = np.zeros((count, forward.NUMBERS))
    numbers[:, forward.RSTD] = results.column(count, rstd.values)
    numbers[:, forward.RSTD_NOISE] = results.column(count, rstd.noise)
    # an error of the mean goes into x^ times -rstd, one of rstd times x - mean
    constant = {}
    if mean is not None:
        numbers[:, forward.MEAN] = results.column(count, mean.values)
        shift = machine.multiply(mean, rstd)
        numbers[:, forward.SHIFT] = results.column(count, shift.values)
        numbers[:, forward.SHIFT_NOISE] = results.column(count, shift.noise)
        constant = {source: -error * rstd.values for source, error in mean.shared.items()}
    patterns = results.RowPatterns.of(count, [constant, dict(rstd.shared)])
    numbers[:, forward.SHARED :] = patterns.form()
    product, centered = PRODUCTS[program.product], rows.centered

    def loop(
        start: int,
        stop: int,
        unit: float,
        smallest: float,
        squared_limit: float,
        weighted: bool,
        measured: NDArray[np.float64],
        grams: NDArray[np.float64],
    ) -> None:
        forward.measure(
            start, stop, product, centered, x, y, gamma, beta, numbers,
            unit, smallest, squared_limit, weighted, measured, grams,
        )  # fmt: skip

    return results.Output(y, form, limit).measured(count, patterns, forward.PATTERNS, loop)
