"""Programs that stand in for a fault: the noise of their sums is as large as the fault.

Sums that are added up otherwise leave errors of rstd that differ from row to row. A wrong epsilon
and a factor are in all rows alike. Where the rows of an output agree far better than those of a
right kernel with such sums would, the program explains what it could not have computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits.earlier import earlier
from gonogo.kernels.layernorm.replay import InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.numerics.expectation import Array
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.common import MAX_ELEMENTS, MIN_SCORE
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.ladder import MAX_COMMON
from gonogo.numerics.replay.program import CANCELLED, WELFORD, Program

MIN_ROWS = 8
"""Rows with sums of their own, which agree by no chance."""
MAX_SCATTER = 1.0
"""The largest scatter of the rows about a fault, in standard deviations: right kernels by the
simpler program show .4 to .7."""
MIN_SCATTER = 0.7
"""A smaller scatter counts as this one, so that a trial without any noise is seen no sooner."""
MAX_GROWTH = 2.0
"""The largest common error of a right kernel's rows, relative to that of a simulated order. Orders
whose rows agree because their errors are small say nothing about larger ones."""
MIN_RATIO = 2.0
"""The least scatter of a right kernel's rows, relative to the output's."""
MIN_EVIDENCE = math.log(1e6)
"""The least logarithm of how much more likely the fault is: (rows - 1) log(ratio of the scatters),
the likelihood of normal errors with the one scatter or the other."""


@dataclass(frozen=True)
class _Fit:
    """A fault that is fitted to the rows' errors of rstd.

    scatter: of the rows about it, in standard deviations. size: its largest share of rstd. score:
    how many standard deviations it differs from none.
    """

    scatter: float
    size: float
    score: float


def simpler_program(
    graph: Graph, output: NDArray[np.floating], program: Program, form: str
) -> Program | None:
    """Return the first rung of the ladder, where `program`, a later one, stands in for a fault.

    Its products are those of `program`. None where a right kernel by `program` may look like this.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: (rows, N), which `program` explains.
        program: a program that stores nothing.
        form: the output's format; only fp32 shows each row's error by itself.
    """
    if form != "fp32" or not isinstance(graph, NormalizedRows | InputGradient | RowStatistic):
        return None
    count = max(1, min(graph.shape[0], MAX_ELEMENTS // graph.shape[1]))
    chosen = np.linspace(0, graph.shape[0] - 1, count).astype(np.intp)
    part = graph.some(chosen)
    before = earlier(part, program)
    if not before:
        return None
    alike = replace(before[0], product=program.product)
    simpler = alike if alike in part.forms else before[0]
    rounding = part.rstd_rounding(simpler)
    if rounding is None:
        return None
    shared = cells(output[chosen], part.replay(simpler), form).shared
    says = np.flatnonzero(shared.spreads > 0.0)
    rounding, spreads = rounding[says], shared.spreads[says]
    if len(np.unique(rounding)) < MIN_ROWS:
        return None
    errors, weights = shared.estimates[says] / spreads * rounding, spreads / rounding**2
    rows = part.rows
    x = rows.x[says]
    exact = _exact_variances(x, centered=rows.centered)
    with np.errstate(all="ignore"):  # a constant row, values whose squares overflow
        share = 0.5 * rows.epsilon / (exact + rows.epsilon)
        computed = [
            -0.5 * (variance - exact) / (exact + rows.epsilon)
            for variance in _variances(x, program, centered=rows.centered)
        ]
    if not np.isfinite([*computed, share, errors, weights]).all():
        return None
    for pattern in (np.ones_like(share), share) if rows.epsilon else (np.ones_like(share),):
        fault = _fit(errors, weights, pattern)
        if fault.scatter > MAX_SCATTER or fault.size <= MAX_COMMON or fault.score < MIN_SCORE:
            continue
        right = [_fit(sample, weights, pattern) for sample in computed]
        reach = min(fault.size / MAX_GROWTH, max(fit.size for fit in right))
        usual = min(fit.scatter for fit in right if fit.size >= reach)
        ratio = usual / max(fault.scatter, MIN_SCATTER)
        if ratio >= MIN_RATIO and (len(errors) - 1) * math.log(ratio) >= MIN_EVIDENCE:
            return simpler
    return None


def _fit(errors: Array, weights: Array, pattern: Array) -> _Fit:
    """Return the multiple of a pattern (rows,) that is nearest to errors of the same weights."""
    information = float((weights * pattern**2).sum())
    factor = float((weights * pattern * errors).sum()) / information
    rest = float((weights * (errors - factor * pattern) ** 2).sum())
    return _Fit(
        math.sqrt(rest / (len(errors) - 1)),
        abs(factor) * float(pattern.max()),
        abs(factor) * math.sqrt(information),
    )


def _exact_variances(x: Array, *, centered: bool) -> Array:
    narrow = np.asarray(x, np.float64)
    return narrow.var(axis=1) if centered else np.asarray((narrow**2).mean(axis=1))


def _variances(x: Array, program: Program, *, centered: bool) -> Iterator[Array]:
    """Yield the variances (rows,) of right kernels by a program, one for each simulated order."""
    narrow = np.ascontiguousarray(x, np.float32)
    if program.variance == WELFORD:
        yield from orders.updated_variances(narrow)
        return
    if not centered:
        yield from orders.means(narrow * narrow, program.order)
        return
    means = orders.means(narrow, program.order)
    if program.variance == CANCELLED:
        squares = orders.means(narrow * narrow, program.order)
        yield from (square - mean**2 for square, mean in zip(squares, means, strict=True))
        return
    for index, mean in enumerate(means):
        off = narrow - mean.astype(np.float32)[:, None]
        yield orders.means(off * off, program.order)[index]
