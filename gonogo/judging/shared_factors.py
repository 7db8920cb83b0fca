"""The common factor that two right fp32 kernels may have between them, on the inputs of a seed.

Three things give every row of an output the same factor, and none is a fault: another way to
compute rstd, the squares that a running sum loses, and 16-bit inputs. The squares of 16-bit values
are no random numbers: those of odd numbers are 1 modulo 8. So each addition to a fp32 sum that is
a few bits coarser rounds the same way. The fewer running totals a kernel has, the larger is the
factor: 1.4e-6 of rstd for one total of 1,024 uniform bf16 values, 2.9e-6 for four of 8,462. x -
mean has full mantissas and shows no such factor. It depends on the values too much for a formula,
so the orders of addition are simulated on the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import NARROW, round_to

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Floats = NDArray[np.float32]

RSQRT_FACTOR = 2.0**-22
"""The factor that two ways to compute rstd may have between them in every row: a hardware rsqrt of
2 ulp. (1/N rounded to fp32, instead of a division by N, gives 2^-25 of rstd.)"""
RUNNING_FACTOR, FP32_STEP = 1 / 64, 2.0**-23
"""Running fp32 sums of N squares come out small in every row. Squares below half a spacing h of the
sum are lost: with a density f of d near 0, rounding d^2 to h costs 2 zeta(-1/2, 1/2) f h^(3/2) =
.122 f h^(3/2). Over the binades of the sum that is .0158 f std (N 2^-23)^(3/2) of rstd at most, and
.0131 where N is a power of two. f std is .29 for uniform values, .40 for normal, .71 for Laplace
ones. Measured in 122 rows of N = 65536: .0052 for normal values (derived: .0052), .0093 for Laplace
ones (derived: .0093)."""
TOTALS = (1, 4, 8, 32)
"""The running totals of the simulated orders: a single one, a vector register, several of them."""
ROOM = 1.25
"""How far a library's factor may exceed the simulated one. Fused multiply-adds, which don't round
the squares, change running sums by up to a fifth."""
SIMULATED_ELEMENTS, SIMULATED_ROWS = 2**20, 32
"""The elements of x that are simulated, in rows spread evenly, and the rows at least."""
DISTINCT = 6
"""The different values of a stored rstd from which its roundings are taken for independent. Fewer
rows never make a factor (factors.MIN_ROWS)."""
STORED_ROUNDINGS = 4
"""The roundings by half an ulp at most that two builds may have in what they store of a row: the
variance and the variance + epsilon count half, rstd counts whole."""
SHARED_BY = ("dgamma",)
"""The outputs whose values each add up all rows: they share the rows' errors of rstd."""


def fp32_factor(terms: int) -> float:
    """Return the common factor of two right fp32 kernels on values with random mantissas.

    It is that of rsqrt, and that of running sums of so many terms.
    """
    return RSQRT_FACTOR + RUNNING_FACTOR * math.pow(terms * FP32_STEP, 1.5)


def shared_factors(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return the largest common factor of each output that two right fp32 kernels may have.

    given: the inputs as the device got them, flat. For an output whose rstd the kernel computes,
    the factor is at least the difference of the orders in TOTALS.
    """
    quantities = _quantities(test, given)
    errors = np.zeros((1, 1))
    if "rstd" in quantities:
        errors = order_factors(_some_rows(test, given), test.epsilon, "mean" in quantities)
    shared = {
        name: float(np.ptp(errors.mean(axis=1)))
        for name in test.outputs
        if test.is_matrix(name) or name == "rstd"
    }
    shared |= {
        name: float(np.ptp(errors, axis=0).max()) for name in SHARED_BY if name in test.outputs
    }
    return {
        name: max(
            fp32_factor(
                test.features if test.is_matrix(name) or test.is_per_row(name) else test.rows
            ),
            RSQRT_FACTOR + ROOM * shared.get(name, 0.0),
        )
        for name in test.outputs
    }


def stored_factor(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> float:
    """Return the factor that all rows may share where a kernel stores rstd in the output's format.

    Rows whose rstd is nearly the same, as on ramps, with an offset or with very long rows, round it
    alike. The factor is 0 where rstd takes at least DISTINCT values of the format.
    """
    quantities = _quantities(test, given)
    if test.numerics.output not in NARROW or "rstd" not in quantities:
        return 0.0
    deviations = _deviations(_some_rows(test, given), "mean" in quantities)
    rstd = 1 / np.sqrt(np.square(deviations).mean(axis=1) + test.epsilon)
    mantissas, _ = np.frexp(rstd)
    if np.unique(round_to(mantissas, test.numerics.output)).size >= DISTINCT:
        return 0.0
    return STORED_ROUNDINGS * UNIT_ROUNDOFF[test.numerics.output]


def order_factors(x: Floats, epsilon: float, centered: bool) -> Array:
    """Return how far rstd of each row is from the exact one, by the order of addition.

    x: (rows, N). centered: whether the kernel subtracts the mean. The result has the shape
    (1 + len(TOTALS), rows): the relative errors; those of the exact order, 0, come first.
    """
    deviations = _deviations(x, centered)
    exact = np.square(deviations).mean(axis=1) + epsilon
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(deviations.astype(np.float32))
        errors = [
            np.sqrt(exact / (_sums(squares, totals) / x.shape[1] + epsilon)) - 1
            for totals in TOTALS
        ]
    stacked = np.stack([np.zeros(len(x)), *errors])
    return np.asarray(np.nan_to_num(stacked, posinf=0.0, neginf=0.0))


def _sums(terms: Floats, totals: int) -> Array:
    """Return the fp32 sum of each row in so many running totals, which are added in pairs."""
    padded = np.pad(terms, ((0, 0), (0, -terms.shape[1] % totals)))
    partial = np.add.accumulate(padded.reshape(len(terms), -1, totals), axis=1)[:, -1]
    while partial.shape[1] > 1:
        partial = partial[:, ::2] + partial[:, 1::2]
    return partial[:, 0].astype(np.float64)


def _quantities(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return the quantities that the kernel computes in between."""
    graphs = registry.numerics(test).graphs(test, given).values()
    return {quantity for graph in graphs for quantity in graph.storable(graph.forms[0])}


def _deviations(x: Floats, centered: bool) -> Array:
    wide = x.astype(np.float64)
    return wide - wide.mean(axis=1, keepdims=True) if centered else wide


def _some_rows(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> Floats:
    x = np.asarray(given["x"], np.float32).reshape(test.rows, test.features)
    count = max(SIMULATED_ROWS, SIMULATED_ELEMENTS // test.features)
    if len(x) <= count:
        return x
    return x[np.linspace(0, len(x) - 1, count).astype(np.intp)]
