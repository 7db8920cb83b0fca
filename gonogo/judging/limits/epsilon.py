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

from gonogo.judging.limits import rungs
from gonogo.judging.limits.rungs import is_explained
from gonogo.kernels.layernorm.narrowed import narrowed
from gonogo.kernels.layernorm.replay import ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.numerics.formats import half_ulp, round_to
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.common import MAX_ELEMENTS, MIN_SCORE, common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.ladder import MAX_COMMON
from gonogo.numerics.replay.program import Program

EPSILON = "epsilon"
"""The name of the term."""
MIN_CHANGED = 3
"""The least elements of the whole output that epsilon must change: inputs that show it in fewer
don't use it."""
SURE = 2.0
"""The standard deviations beyond the usual score of a factor from which it is sure to be seen: an
output has noise of its own, which the replay hasn't."""
MIN_CAUSE = 1 / 4
"""The least change, relative to the output's rounding, that may be why an output is red. A kernel
with less of an error is as red as the right one."""


class Sight(Enum):
    """The statement of an output about epsilon."""

    none = "the kernel adds none"
    unused = "it changes next to nothing"
    seen = "its absence would not be explained"
    faint = "its absence would be explained, and is smaller than the rounding"
    unseen = "its absence would be explained"


def sight(graph: Graph, program: Program, form: str, few: Graph) -> Sight:
    """Return what an output, explained by a program, says about epsilon.

    It is tried on more rows than other terms, since it shows in what all rows share: a part of
    MAX_ELEMENTS elements. The missing epsilon goes through the program, whose stored values may
    hide it, or move by a step; if that doesn't explain it, another rung of the ladder may.

    Args:
        graph: the output's formula with the kernel's inputs.
        program: a program that explains the output.
        form: the output's format.
        few: some rows of it, on which the other rungs are tried before they are on more.
    """
    other = without_epsilon(graph)
    if other is None:
        return Sight.none
    part, share = _part(graph)
    wrong, _ = _part(other)
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
        is_hidden = is_explained(measured) and not (
            common_factor(part, program, changed, form, measured.shared, MIN_SCORE + SURE)
            > MAX_COMMON
        )
        if not is_hidden and not (
            _is_hidden_elsewhere(few, program, form)
            and rungs.explain(part, program, changed, form, measured.distance)
        ):
            return Sight.seen
        rounding = half_ulp(right, form) + np.sqrt(replay.variance)
    is_faint = np.abs(values - replay.values).max() < MIN_CAUSE * rounding.max()
    return Sight.faint if is_faint else Sight.unseen


def _is_hidden_elsewhere(few: Graph, program: Program, form: str) -> bool:
    """Return whether another rung of the ladder explains a few rows without epsilon."""
    other = without_epsilon(few)
    if other is None:  # sums of some columns are given the statistics of whole rows
        return False
    mode = program.output_rounding
    changed = round_to(other.replay(program, quick=True).values, form, mode)
    measured = cells(changed, few.replay(program), form, mode)
    return rungs.explain(few, program, changed, form, measured.distance)


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
    return replace(graph, rows=graph.rows.without_epsilon) if graph.rows.epsilon else None


@without_epsilon.register
def _(graph: RowStatistic) -> Graph | None:
    if not graph.rstd or not graph.rows.epsilon:
        return None
    return replace(graph, rows=graph.rows.without_epsilon)


@without_epsilon.register
def _(graph: InputGradient) -> Graph | None:
    if graph.rows.is_given or not graph.rows.epsilon:
        return None
    return replace(graph, rows=graph.rows.without_epsilon)


@without_epsilon.register
def _(graph: ColumnGradient) -> Graph | None:
    if graph.rows.is_given or not graph.weighted or not graph.rows.epsilon:
        return None
    return replace(graph, rows=graph.rows.without_epsilon)
