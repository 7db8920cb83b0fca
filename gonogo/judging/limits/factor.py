"""A factor of rstd that is common to all rows, and that a later rung of the ladder stands in for.

Where the mean is large, E[x^2] - mean^2 or running sums may be as far off as a factor of all rows.
An output that they explain is then explained by that factor, too, under an earlier rung.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits import rungs
from gonogo.judging.limits.earlier import earlier
from gonogo.kernels.layernorm.replay import InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program

MAX_FACTOR = 1e-2
"""The largest factor that is tried: no rung that stores nothing stands in for a larger one."""


def stood_in_for(graph: Graph, output: NDArray[np.floating], program: Program, form: str) -> float:
    """Return the largest |f| of a factor 1 + f with which an earlier rung explains an output too.

    0 where there is none. output: (rows, N), which `program` explains.
    """
    largest = 0.0
    for rung in earlier(graph, program):
        replay = graph.replay(rung)
        pattern = part_with_rstd(graph, replay.values)
        if pattern is None:
            return 0.0
        weighted = pattern / (half_ulp(output, form) ** 2 / 3 + replay.variance)
        norm = float((pattern * weighted).sum())
        if not norm > 0.0 or not np.isfinite(norm):
            continue
        factor = float(((output - replay.values) * weighted).sum()) / norm
        if largest < abs(factor) < MAX_FACTOR:
            other = with_factor(graph, 1.0 + factor)
            if other is not None and rungs.any_explains([rung], other, output, form):
                largest = abs(factor)
    return largest


@singledispatch
def part_with_rstd(graph: object, values: Array) -> Array | None:
    """Return the part of an output's values that rstd scales; None where it isn't known."""
    return None


@part_with_rstd.register
def _(graph: NormalizedRows, values: Array) -> Array | None:
    return values if graph.rows.beta is None else values - graph.rows.beta


@part_with_rstd.register
def _(graph: InputGradient, values: Array) -> Array | None:
    return values


@singledispatch
def with_factor(graph: object, factor: float) -> Graph | None:
    """Return the graph of a kernel whose part with rstd has a factor: gamma takes it."""
    return None


@with_factor.register
def _(graph: NormalizedRows, factor: float) -> Graph | None:
    gamma = np.ones((1, 1)) if graph.rows.gamma is None else graph.rows.gamma
    return replace(graph, rows=graph.rows.with_gamma(factor * gamma))


@with_factor.register
def _(graph: InputGradient, factor: float) -> Graph | None:
    return replace(graph, rows=replace(graph.rows, gamma=factor * graph.rows.gamma))
