"""Epsilon as a term: whether an output could have shown that it is missing.

Under a large variance epsilon's share of rstd is below the rounding of rstd, or below what an
approximate rsqrt may be off. Then a kernel with another epsilon gives an output that a right one
may give, too.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import singledispatch
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits import rungs
from gonogo.judging.limits.earlier import earlier
from gonogo.judging.limits.rungs import is_explained
from gonogo.kernels.layernorm.narrowed import narrowed
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import half_ulp, round_to
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.common import MAX_ELEMENTS, MIN_SCORE, common_factor
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.ladder import MAX_COMMON
from gonogo.numerics.replay.program import Program

R = TypeVar("R", Rows, BackwardRows)
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


class WrongEpsilon(NamedTuple):
    """A wrong epsilon.

    Attributes:
        factor: the factor of the right one.
        is_outside: whether it is added to the root of the variance, outside of it. In the root that
            would be 2 std epsilon + epsilon^2, another one in each row.
    """

    factor: float
    is_outside: bool = False


MISSING = WrongEpsilon(0.0)
WRONG = (MISSING, WrongEpsilon(2.0), WrongEpsilon(1.0, is_outside=True))
"""The wrong epsilons that an earlier rung is tried with."""


class Sight(Enum):
    """The statement of an output about epsilon."""

    none = "the kernel adds none"
    unused = "it changes next to nothing"
    seen = "its absence would not be explained"
    faint = "its absence would be explained, and is smaller than the rounding"
    unseen = "its absence would be explained"


def sight(
    graph: Graph, output: NDArray[np.floating], program: Program, form: str, few: rungs.Others
) -> Sight:
    """Return what an output, explained by a program, says about epsilon.

    It is tried on more rows than other terms, since it shows in what all rows share: a part of
    MAX_ELEMENTS elements. The missing epsilon goes through the program, whose stored values may
    hide it, or move by a step; if that doesn't explain it, another rung of the ladder may. And a
    program from a later rung may stand in for another epsilon under an earlier one.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: (rows, N).
        program: a program that explains the output.
        form: the output's format.
        few: the other rungs on some rows of it, which are tried before more rows are.
    """
    other = without_epsilon(graph)
    if other is None:
        return Sight.none
    part, share, _ = _part(graph, output)
    wrong, _, _ = _part(other, output)
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
        if (
            not is_hidden
            and not (
                _is_hidden_elsewhere(few, form)
                and rungs.Others(part, program).explain(changed, form, measured.distance)
            )
            and not _is_epsilon_elsewhere(graph, output, program, form)
        ):
            return Sight.seen
        rounding = half_ulp(right, form) + np.sqrt(replay.variance)
    is_faint = np.abs(values - replay.values).max() < MIN_CAUSE * rounding.max()
    return Sight.faint if is_faint else Sight.unseen


def _is_epsilon_elsewhere(
    graph: Graph, output: NDArray[np.floating], program: Program, form: str
) -> bool:
    """Return whether an earlier rung with another epsilon explains what the program explains.

    Where the mean is large, a running E[x^2] - mean^2 is as far off as a small epsilon matters, and
    to the same side in all rows.
    """
    part, _, part_output = _part(graph, output)
    before = earlier(part, program)
    if not before:
        return False
    for wrong in WRONG:
        other = with_epsilon(graph, wrong)
        if other is not None and rungs.any_explains(
            before, _part(other, output)[0], part_output, form
        ):
            return True
    return False


def _is_hidden_elsewhere(few: rungs.Others, form: str) -> bool:
    """Return whether another rung of the ladder explains a few rows without epsilon."""
    graph, program = few.graph, few.program
    other = without_epsilon(graph)
    if other is None:  # sums of some columns are given the statistics of whole rows
        return False
    mode = program.output_rounding
    changed = round_to(other.replay(program, quick=True).values, form, mode)
    measured = cells(changed, graph.replay(program), form, mode)
    return few.explain(changed, form, measured.distance)


def _part(graph: Graph, output: NDArray[np.floating]) -> tuple[Graph, float, NDArray[np.floating]]:
    """Return some rows of a graph, or some columns of sums, their share, and their output."""
    if isinstance(graph, ColumnGradient):
        part, columns = narrowed(graph, MAX_ELEMENTS)
        return part, part.shape[1] / graph.shape[1], output[:, columns]
    rows, width = graph.shape
    if isinstance(graph, RowStatistic):  # what counts are the elements that it is computed from
        width = graph.rows.x.shape[1]
    count = max(1, min(rows, MAX_ELEMENTS // width))
    chosen = np.linspace(0, rows - 1, count).astype(np.intp)
    return graph.some(chosen), count / rows, output[chosen]


def without_epsilon(graph: Graph) -> Graph | None:
    """Return the graph of a kernel that adds no epsilon; None where none is added."""
    return with_epsilon(graph, MISSING)


@singledispatch
def with_epsilon(graph: object, wrong: WrongEpsilon) -> Graph | None:
    """Return the graph of a kernel that adds a wrong epsilon; None where none is added."""
    return None


@with_epsilon.register
def _(graph: NormalizedRows, wrong: WrongEpsilon) -> Graph | None:
    if not graph.rows.epsilon:
        return None
    return replace(graph, rows=_rows(graph.rows, wrong))


@with_epsilon.register
def _(graph: RowStatistic, wrong: WrongEpsilon) -> Graph | None:
    if not graph.rstd or not graph.rows.epsilon:
        return None
    return replace(graph, rows=_rows(graph.rows, wrong))


@with_epsilon.register
def _(graph: InputGradient, wrong: WrongEpsilon) -> Graph | None:
    if graph.rows.is_given or not graph.rows.epsilon:
        return None
    return replace(graph, rows=_rows(graph.rows, wrong))


@with_epsilon.register
def _(graph: ColumnGradient, wrong: WrongEpsilon) -> Graph | None:
    if graph.rows.is_given or not graph.weighted or not graph.rows.epsilon:
        return None
    return replace(graph, rows=_rows(graph.rows, wrong))


def _rows(rows: R, wrong: WrongEpsilon) -> R:
    """Return the rows of a kernel that adds a wrong epsilon."""
    return rows.with_epsilon(wrong.factor * rows.epsilon, is_outside=wrong.is_outside)
