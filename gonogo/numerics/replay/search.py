"""The search for the program of a kernel whose arithmetic nobody named.

A program is earned, not assumed: rows that were not used to find it must be reproduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import ulp
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program

ROWS, COLUMNS = 8, 192
"""The part of an output on which a program is sought; as many rows again check it.

Some quantities have a value per row: few rows would not show whether they are stored.
"""
MAX_MISMATCH = 1e-3
"""The largest share of elements outside their cells under a program that reproduces an output."""
MIN_DECIDED = 0.25
"""The least share of elements that a program built by a search must decide.

Where stored values are near ties, the replay allows a step either way. A program that is allowed
that in nearly all elements reproduces nothing.
"""
LIMIT = 8.0
"""The distance from its cell, in standard deviations, up to which an element is reproduced."""
ALLOWED = 1 / 16
"""The largest allowance for near ties, in steps of the output, of an element that is decided.

A factor of .1 % moves bf16 outputs by an eighth to a quarter of a step.
"""
BEAM = 3
MAX_STORED = 8
PROGRESS = 0.9
"""The factor by which a further stored quantity must lower the loss for the search to go on."""


@dataclass(frozen=True)
class Fit:
    """How well a program reproduces a sample."""

    program: Program
    mismatch: float
    """The share of elements outside their cells."""
    decided: float
    """The share of elements in which near ties allow next to nothing."""
    loss: float
    """The mean distance from the cells, in steps of the output's format, at most 1 each."""


@dataclass(frozen=True)
class Sample:
    """A part of an output with its graph."""

    graph: Graph
    output: Array
    columns: NDArray[np.intp]
    form: str

    def fit(self, program: Program) -> Fit:
        """Return how well a program reproduces the sample."""
        with np.errstate(over="ignore", invalid="ignore"):  # fp16 squares overflow
            replay = self.graph.replay(program, self.columns, quick=True)
        distance = cells(self.output, replay, self.form).distance
        step = ulp(self.output, self.form)
        outside = ~(distance <= LIMIT)
        steps = np.abs(self.output - replay.values) / step
        loss = np.where(outside, np.fmin(steps, 1.0), 0.0).mean()
        decided = np.broadcast_to(replay.slack <= ALLOWED * step, outside.shape).mean()
        return Fit(program, float(outside.mean()), float(decided), float(loss))


def samples(graph: Graph, output: NDArray[np.floating], form: str) -> tuple[Sample, Sample]:
    """Return the sample to search and the one to check; both the same where there is one row."""
    rows, count = graph.shape
    spread = np.linspace(0, rows - 1, min(rows, 2 * ROWS)).astype(np.intp)
    columns = np.unique(np.linspace(0, count - 1, min(count, COLUMNS)).astype(np.intp))

    def sample(chosen: NDArray[np.intp]) -> Sample:
        part = np.asarray(output, np.float64)[np.ix_(chosen, columns)]
        return Sample(graph.some(chosen), part, columns, form)

    searched = spread[::2]
    return sample(searched), sample(spread[1::2] if len(spread) > 1 else searched)


def candidates(
    graph: Graph, output: NDArray[np.floating], form: str, formats: Sequence[str]
) -> Iterator[Program]:
    """Yield the storing programs that reproduce the samples, those of known libraries first.

    formats: the formats in which a kernel may store, those of its tensors.
    """
    searched, checked = samples(graph, output, form)
    for format_ in formats:
        for base, quantities in graph.known:
            program = replace(base, stored=dict.fromkeys(quantities, format_))
            if _reproduced(searched, program) and _reproduced(checked, program):
                yield program
        for base in graph.forms:
            built = _search(searched, base, format_)
            if built is not None and _earned(checked.fit(built)):
                yield built


def _reproduced(sample: Sample, program: Program) -> bool:
    return sample.fit(program).mismatch <= MAX_MISMATCH


def _earned(fit: Fit) -> bool:
    """Return whether a program that a search built reproduces a sample: by its values, not ties."""
    return fit.mismatch <= MAX_MISMATCH and fit.decided >= MIN_DECIDED


def _search(sample: Sample, base: Program, form: str) -> Program | None:
    """Return a program of this form that reproduces the sample, found one quantity at a time."""
    beam = [sample.fit(base)]
    for _ in range(MAX_STORED):
        best = beam[0]
        if _earned(best):
            return best.program
        grown: dict[frozenset[str], Fit] = {}
        for fit in beam:
            for name in sample.graph.storable(base):
                stored = {**fit.program.stored, name: form}
                key = frozenset(stored)
                if name not in fit.program.stored and key not in grown:
                    grown[key] = sample.fit(replace(base, stored=stored))
        ranked = sorted(grown.values(), key=lambda fit: (fit.loss, fit.mismatch))
        if not ranked or ranked[0].loss > PROGRESS * best.loss:
            return None
        beam = ranked[:BEAM]
    return beam[0].program if _earned(beam[0]) else None
