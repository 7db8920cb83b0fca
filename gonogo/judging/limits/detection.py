"""Detection limits: the faults that an output, explained by a program, could not have shown.

Each term of the output is removed, and a common factor is put on it. If the changed output would
still be explained, the verdict says nothing about that term.
"""

from __future__ import annotations

from bisect import bisect_left as bisect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits import rungs
from gonogo.judging.limits.epsilon import EPSILON, Sight, sight
from gonogo.judging.limits.factor import stood_in_for
from gonogo.judging.limits.ties import FACTOR, hides_factor
from gonogo.kernels.layernorm.narrowed import narrowed
from gonogo.kernels.layernorm.replay import ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import walks
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program

MAX_ROWS = 8
"""Rows on which terms are removed. A fault that shows in few other rows counts as unseen."""
MAX_SUMMED = 2**17
"""Terms of the column sums from which a row is removed."""
IDLE = 2.0**-24
"""The largest effect of an unused term, relative to the row's largest element: epsilon as fp32
moves rstd by 2^-25."""
FACTORS = tuple(digit * 10.0**exponent for exponent in range(-8, 0) for digit in (1.0, 3.0))
"""Common factors 1 + f that are tried, the smallest first."""


@dataclass(frozen=True)
class DetectionLimits:
    """The faults of an output that would be explained, too.

    Attributes:
        terms: the terms whose removal changes the output and would not be seen.
        idle: the terms that these inputs don't use: removing them changes nothing.
        factor: the largest tried f for which a factor 1 + f would not be seen; 0 if none. It is
            one of the terms, too, where it may be what an output shows.
        faint: the terms whose removal would not be seen, and is smaller than the rounding: they
            are never why an output is red.
        sight: what the output says about epsilon; the limits list it by with_epsilon.
    """

    terms: tuple[str, ...]
    idle: tuple[str, ...]
    factor: float
    faint: tuple[str, ...] = ()
    sight: Sight = Sight.none

    def with_epsilon(self) -> DetectionLimits:
        """Return the limits with what the output says about epsilon."""
        if self.sight is Sight.unseen:
            return replace(self, terms=(*self.terms, EPSILON))
        if self.sight is Sight.unused:
            return replace(self, idle=(*self.idle, EPSILON))
        return replace(self, faint=(EPSILON,)) if self.sight is Sight.faint else self

    def phrases(self) -> list[str]:
        """Return the limits in words."""
        phrases = [term for term in (*self.terms, *self.faint) if term != FACTOR]
        phrases += (f"{term} (these inputs don't use it)" for term in self.idle)
        if self.factor:
            phrases.append(f"a common factor below {percent(self.factor)}")
        return phrases

    def statistics(self) -> dict[str, list[str]]:
        """Return the limits as statistics of the output."""
        return {"detection_limits": self.phrases(), "unseen_terms": list(self.terms)}


def percent(share: float) -> str:
    """Return a share as a percentage with one digit, such as "0.3 %"."""
    return f"{np.format_float_positional(100 * share, precision=2, fractional=False, trim='-')} %"


def detection_limits(
    graph: Graph, output: NDArray[np.floating], program: Program, form: str
) -> DetectionLimits:
    """Return what the output of this graph (rows, N), in its format, could not have shown."""
    rows = graph.shape[0]
    chosen = np.unique(np.linspace(0, rows - 1, min(rows, MAX_ROWS)).astype(np.intp))
    part = graph.some(chosen)
    if isinstance(part, ColumnGradient):
        part, columns = narrowed(part, MAX_SUMMED)
        part_output = output[:, columns]
    replay = part.replay(program)
    mode = program.output_rounding
    others = rungs.Others(part, program)

    def is_seen(values: Array, *, is_small: bool = False) -> bool:
        with np.errstate(all="ignore"):
            if walks.is_walk(program):  # its errors are told from a fault by their directions
                walked = part_output + (values - replay.values)
                walked = round_to(walked, form, mode).astype(np.float64)
                return walks.score(part, program, walked, form) > walks.MAX_SCORE
            changed = round_to(values, form, mode)
            measured = cells(changed, replay, form, mode)
            if rungs.is_explained(measured):
                return False
            return not (is_small and others.explain(changed, form, measured.distance))

    exact = part.replay(part.forms[0]).values
    terms, idle = [], []
    for term, changed in without_terms(part).items():
        # a stored quantity that is too small for its format takes a term with it: then the program
        # computes what a kernel without the term does, and explains that, too
        is_kept = not program.stored or is_seen(changed)
        if is_kept and is_seen(replay.values + (changed - exact)):
            continue
        if is_idle(changed, exact):
            idle.append(term)
        else:
            terms.append(term)
    # larger factors are easier to see; a small one may be what another order of the sums adds
    seen_from = bisect(
        FACTORS, True, key=lambda factor: is_seen(replay.values * (1.0 + factor), is_small=True)
    )
    factor = FACTORS[seen_from - 1] if seen_from else 0.0
    if not isinstance(part, ColumnGradient):
        other = stood_in_for(part, output[chosen], program, form)
        factor = max(factor, FACTORS[bisect(FACTORS, other)] if other else 0.0)
        if hides_factor(graph, output, program, form, factor):
            terms.append(FACTOR)
    return DetectionLimits(
        tuple(terms), tuple(idle), factor, sight=sight(graph, output, program, form, others)
    )


def is_idle(changed: Array, exact: Array) -> bool:
    """Return whether an output without a term is the same, but for the rounding of both.

    That rounding is relative to what is added up: where gamma x^ and beta nearly cancel, an element
    is far smaller. So it is compared with the row's largest one. The replay holds epsilon as fp32,
    and without_terms doesn't.
    """
    largest = np.abs(exact).max(axis=-1, keepdims=True)
    return bool((np.abs(changed - exact) <= IDLE * largest).all())


@singledispatch
def without_terms(graph: object) -> Mapping[str, Array]:
    """Return the exact output of a graph without each of its terms, by the term's name."""
    return {}


@without_terms.register
def _(graph: NormalizedRows) -> Mapping[str, Array]:
    rows = graph.rows
    mean = rows.x.mean(axis=1, keepdims=True) if rows.centered else np.zeros((len(rows.x), 1))
    centered = rows.x - mean
    rstd = 1.0 / np.sqrt((centered**2).mean(axis=1, keepdims=True) + rows.epsilon)
    gamma = np.ones((1, 1)) if rows.gamma is None else rows.gamma
    beta = np.zeros((1, 1)) if rows.beta is None else rows.beta
    changed = {"rstd": centered * gamma + beta}
    if rows.centered:
        changed["mean"] = rows.x * rstd * gamma + beta
    if rows.gamma is not None:
        changed["gamma"] = centered * rstd + beta
    if rows.beta is not None:
        changed["beta"] = centered * rstd * gamma + np.zeros_like(centered)
    return changed


@without_terms.register
def _(graph: InputGradient) -> Mapping[str, Array]:
    rows = graph.rows
    mean, rstd = statistics(graph)
    normalized = (rows.x - mean) * rstd
    product = rows.dy * rows.gamma
    centered = float(rows.centered)  # s1 is 0 where no mean is subtracted
    s1 = centered * product.mean(axis=1, keepdims=True)
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    plain = rows.dy - centered * rows.dy.mean(axis=1, keepdims=True)
    plain = plain - normalized * (rows.dy * normalized).mean(axis=1, keepdims=True)
    changed = {
        "gamma": rstd * plain,
        "s1": rstd * (product - normalized * s2),
        "s2": rstd * (product - s1),
        "rstd": product - s1 - normalized * s2,
    }
    return {term: values for term, values in changed.items() if rows.centered or term != "s1"}


@without_terms.register
def _(graph: ColumnGradient) -> Mapping[str, Array]:
    terms = graph.terms(graph.forms[0]).values
    total = terms.sum(axis=0, keepdims=True)
    # the row that matters least of those that matter: the median one
    weight = np.abs(terms).sum(axis=1)
    row = int(np.argsort(weight)[len(weight) // 2])
    changed = {"a row": total - terms[row]}
    if graph.weighted:
        mean, rstd = statistics(graph)
        if graph.rows.centered:
            changed["mean"] = (graph.rows.dy * (graph.rows.x * rstd)).sum(axis=0, keepdims=True)
        changed["rstd"] = (graph.rows.dy * (graph.rows.x - mean)).sum(axis=0, keepdims=True)
    return changed


def statistics(graph: InputGradient | ColumnGradient) -> tuple[Array, Array]:
    """Return mean and rstd of each row (rows, 1); the mean is 0 where none is subtracted."""
    mean, rstd = graph.rows.statistics(Program(), quick=True)
    return np.zeros((1, 1)) if mean is None else mean.values, rstd.values
