"""Epsilon as a term: whether an output could have shown that it is missing.

Under a large variance epsilon's share of rstd is below the rounding of rstd, or below what an
approximate rsqrt may be off. Then a kernel with another epsilon gives an output that a right one
may give, too.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import singledispatch

import numpy as np

from gonogo.kernels.layernorm.narrowed import narrowed
from gonogo.kernels.layernorm.replay import ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.numerics.formats import half_ulp, round_to
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.common import MAX_ELEMENTS, common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.ladder import LIMIT, MAX_COMMON
from gonogo.numerics.replay.program import Program

EPSILON = "epsilon"
"""The name of the term."""
MIN_CHANGED = 3
"""The least elements of the whole output that epsilon must change: inputs that show it in fewer
don't use it."""
MIN_CAUSE = 1 / 4
"""The least change, relative to the output's rounding, that may be why an output is red. A kernel
with less of an error is as red as the right one."""


class Sight(Enum):
    """The statement of an output about epsilon."""

    unused = "it isn't used"
    """The kernel adds none, or these inputs don't use it."""
    seen = "its absence would not be explained"
    faint = "its absence would be explained, and is smaller than the rounding"
    unseen = "its absence would be explained"


def sight(graph: Graph, program: Program, form: str) -> Sight:
    """Return what an output, explained by a program, says about epsilon.

    It is tried on more rows than other terms, since it shows in what all rows share: a part of
    MAX_ELEMENTS elements. The missing epsilon goes through the program, whose stored values may
    hide it, or move by a step.

    Args:
        graph: the output's formula with the kernel's inputs.
        program: a program that explains the output.
        form: the output's format.
    """
    without = without_epsilon(graph)
    if without is None:
        return Sight.unused
    part, share = _part(graph)
    wrong, _ = _part(without)
    mode = program.output_rounding
    with np.errstate(all="ignore"):  # rows without any variance
        replay = part.replay(program)
        right = round_to(replay.values, form, mode)
        values = wrong.replay(program, quick=True).values
        changed = round_to(values, form, mode)
        if np.count_nonzero(changed != right) < MIN_CHANGED * share:
            return Sight.unused
        if not np.isfinite(changed).all():
            return Sight.seen
        measured = cells(changed, replay, form, mode)
        if not max(measured.largest, measured.largest_row) <= LIMIT:
            return Sight.seen
        if common_factor(part, program, changed, form, measured.shared) > MAX_COMMON:
            return Sight.seen
        rounding = half_ulp(right, form) + np.sqrt(replay.variance)
    is_faint = np.abs(values - replay.values).max() < MIN_CAUSE * rounding.max()
    return Sight.faint if is_faint else Sight.unseen


def _part(graph: Graph) -> tuple[Graph, float]:
    """Return some rows of a graph, or some columns of sums, and their share of the output."""
    if isinstance(graph, ColumnGradient):
        part, _ = narrowed(graph, MAX_ELEMENTS)
        return part, part.shape[1] / graph.shape[1]
    rows, width = graph.shape
    count = max(1, min(rows, MAX_ELEMENTS // width))
    return graph.some(np.linspace(0, rows - 1, count).astype(np.intp)), count / rows


@singledispatch
def without_epsilon(graph: object) -> Graph | None:
    """Return the graph of a kernel that adds no epsilon; None where none is added."""
    return None


@without_epsilon.register
def _(graph: NormalizedRows) -> Graph | None:
    return replace(graph, rows=graph.rows.without_epsilon)


@without_epsilon.register
def _(graph: RowStatistic) -> Graph | None:
    return replace(graph, rows=graph.rows.without_epsilon) if graph.rstd else None


@without_epsilon.register
def _(graph: InputGradient) -> Graph | None:
    return None if graph.rows.is_given else replace(graph, rows=graph.rows.without_epsilon)


@without_epsilon.register
def _(graph: ColumnGradient) -> Graph | None:
    if graph.rows.is_given or not graph.weighted:
        return None
    return replace(graph, rows=graph.rows.without_epsilon)
