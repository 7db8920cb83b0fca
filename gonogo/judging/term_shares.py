"""The diagnosis by replay: which fault explains the largest share of an output's error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.faults import columns, forward, gradient, row_statistics
from gonogo.judging.faults.fault import MIN_EVIDENCE, SMALL, Fault, Residual
from gonogo.kernels.layernorm.narrowed import narrowed
from gonogo.kernels.layernorm.replay import ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.ladder import LIMIT
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Quantity

CHANCE = 5.0
"""Standard deviations by which a fault must lower the error's energy to be preferred."""
COMPLETE = 0.02
"""The share of the error that a fault may leave without a fitted one taking its place."""
GOOD = 0.9
"""The share from which one with many fitted numbers must leave a tenth instead of a half."""
MOST = 0.9995
"""The largest share that is written: what is below rounding can't be told from an exact fit."""
MIN_SHARE = 0.5
"""The least share of the error that a fault must explain to be named."""
MIN_FLIPS = 8
"""The least elements outside their cells by which a fault is named that explains no more."""
MAX_ELEMENTS, MIN_ROWS = 2**18, 8
"""The part of a large output that is diagnosed: neighboring rows about its worst one."""


@dataclass(frozen=True)
class TermShare:
    """A fault, with the share of the error's energy that it explains.

    Attributes:
        words: the fault in words, such as "gamma is missing".
        share: the part of sum(e^2), beyond the output's own rounding, that the fault explains.
        is_coherent: False for rows with means or factors of their own: a stored mean or rstd
            makes them, too.
    """

    words: str
    share: float
    is_coherent: bool = True

    @property
    def sentence(self) -> str:
        """Return the fault with its share, which is never called the whole error."""
        share = np.floor(1000 * min(self.share, MOST)) / 10
        return f"{self.words}: explains {share:g} % of the error"


def diagnose(
    graph: Graph, output: NDArray[np.floating], form: str, program: Program
) -> TermShare | None:
    """Return the fault that explains most of an output's error (rows, N), or None.

    Faults are whole ones, such as a missing term, whose effect the inputs give, and then those
    whose size is fitted. A later one is preferred where it explains more than chance would.

    program: the nearest one. The error is taken from what it computes, rounded where it stores, or
    from the exact function: first from the one that leaves the smaller error. A program whose worst
    element is nearest may store what this kernel doesn't, and its own error isn't the kernel's.
    """
    whole = graph
    graph, output = _part(graph, output)
    best = None
    exact = graph.replay(graph.forms[0]).values
    replays = [graph.replay(base) for base in (program, graph.forms[0])]
    step = np.maximum(np.median(half_ulp(output, form), axis=1, keepdims=True), SMALL)
    replays.sort(key=lambda replay: float(np.square((output - replay.values) / step).sum()))
    for replay in replays:
        residual = _residual(replay, output, form)
        if isinstance(graph, RowStatistic):  # one row whose elements differ
            residual = Residual.of(residual.error.T, residual.variance.T)
        share = _largest(_faults(graph, exact, residual, whole, form), residual)
        if share is not None and (best is None or share.share > best.share):
            best = share
        if best is not None and best.share >= GOOD:
            break
    if best is not None and isinstance(graph, RowStatistic) and best.share < 1.0 - COMPLETE:
        return None  # a value for each row is too little to say what explains half of it
    if best is None and form != "fp32" and not isinstance(graph, RowStatistic):
        replay = replays[0]
        listed = _faults(graph, exact, _residual(replay, output, form), whole, form)
        best = _of_flips(listed, replay, output, form)
    return best


def _residual(replay: Quantity, output: NDArray[np.floating], form: str) -> Residual:
    """Return the error of an output beside its replay, weighted by what a right one's would be."""
    error = np.asarray(output, np.float64) - replay.values
    # the last rounding is uniform over a step, and what near ties allow as wide as that
    variance = half_ulp(output, form) ** 2 / 3 + replay.variance + replay.slack**2 / 3
    return Residual.of(error, np.broadcast_to(variance, error.shape))


def _largest(faults: Iterable[Fault], residual: Residual) -> TermShare | None:
    """Return the fault that explains most of what rounding leaves to explain."""
    energy, rounding = residual.energy, residual.expected
    chance = CHANCE * residual.deviation
    if not np.isfinite(energy) or energy <= rounding + chance:
        return None
    best: TermShare | None = None
    least, fewest = energy, np.inf
    distinct = residual.distinct
    chance *= np.sqrt(residual.size / distinct)
    for fault in faults:
        free = 1.0 - fault.fitted / distinct
        if not np.isfinite(fault.effect).all() or free <= 0.0:  # as many numbers fit anything
            continue
        # fitted numbers take a part of the rounding, too, and of what the fault doesn't explain
        left = residual.without(fault.effect).energy + fault.cost
        left = max(left / free, rounding)
        # a fault must halve what the one before leaves, which more numbers alone wouldn't; the
        # noise of the kernel's own fp32 operations is left for no fitted one
        floor = rounding + (COMPLETE * (energy - rounding) if fault.fitted else 0.0)
        is_detail = fault.fitted > 1 and best is not None and best.share >= GOOD
        most = (least - floor) / (10 if is_detail else 2)
        is_better = left < least - chance and max(left - floor, 0.0) < most
        if best is not None and fault.fitted <= fewest:  # no more is fitted: the likelier one
            is_better = residual.evidence(least, left) > MIN_EVIDENCE
        if is_better:
            share = 1.0 - max(left - rounding, 0.0) / (energy - rounding)
            least, best = left, TermShare(fault.words, share, fault.is_coherent)
            fewest = fault.fitted
    return best if best is not None and best.share >= MIN_SHARE else None


def _of_flips(
    faults: Iterable[Fault], replay: Quantity, output: NDArray[np.floating], form: str
) -> TermShare | None:
    """Return the fault that puts nearly all elements back into their cells.

    One that is smaller than the output's rounding moves few elements to another value, and what it
    explains of the error is less than chance. But no rounding moves those.
    """

    def outside(effect: Array) -> int:
        moved = replace(replay, values=replay.values + effect)
        return int(np.count_nonzero(cells(output, moved, form).distance > LIMIT))

    flipped = outside(np.zeros((1, 1)))
    if flipped < MIN_FLIPS:
        return None
    left = [
        (outside(fault.effect) / flipped, fault)
        for fault in faults
        if fault.fitted <= 1 and np.isfinite(fault.effect).all()
    ]
    least, fault = min(left, key=lambda pair: pair[0], default=(1.0, None))
    if fault is None or least > 1.0 - GOOD:
        return None
    return TermShare(fault.words, 1.0 - least, fault.is_coherent)


def _faults(
    graph: Graph, exact: Array, residual: Residual, whole: Graph, form: str
) -> Iterator[Fault]:
    if isinstance(graph, NormalizedRows):
        yield from forward.faults(graph, exact, residual, form)
    elif isinstance(graph, InputGradient):
        yield from gradient.faults(graph, exact, residual)
    elif isinstance(graph, ColumnGradient) and isinstance(whole, ColumnGradient):
        yield from columns.faults(graph, exact, residual, whole.rows)
    elif isinstance(graph, RowStatistic):
        yield from row_statistics.faults(graph, exact, residual, form)


def _part(graph: Graph, output: NDArray[np.floating]) -> tuple[Graph, NDArray[np.floating]]:
    """Return the part of a large output that is diagnosed, and its graph."""
    if isinstance(graph, ColumnGradient):
        part, chosen = narrowed(graph, MAX_ELEMENTS)
        return part, output[:, chosen]
    rows, features = graph.shape
    if isinstance(graph, RowStatistic):
        features = graph.rows.x.shape[1]
    if rows == 1 or rows * features <= MAX_ELEMENTS:
        return graph, output
    window = _window(graph, output, max(MIN_ROWS, MAX_ELEMENTS // features))
    return graph.some(window), output[window]


def _window(graph: Graph, output: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Return neighboring rows about the one with the largest error."""
    rows = graph.shape[0]
    step = max(1, rows // (4 * count))
    probed = np.arange(0, rows, step)
    error = np.abs(output[probed] - graph.some(probed).replay(graph.forms[0]).values).max(axis=1)
    start = int(np.clip(probed[int(np.argmax(error))] - count // 2, 0, max(0, rows - count)))
    return np.arange(start, min(rows, start + count))
