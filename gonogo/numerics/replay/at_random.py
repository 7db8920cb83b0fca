"""Outputs that are rounded at random: up with the probability of what is cut off.

Such an output lies within a step of its replay, which alone would hide an error of half a step. But
its rounding errors are independent, and their means are 0 and their variances known, whatever they
are added up over: rows, columns, or values that lie alike between two steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to, ulp
from gonogo.numerics.replay import spans
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import TIE, Quantity

MIN_INFORMATION = 64.0
"""The least sum of p (1 - p), p the probability of rounding up: some 400 elements. Fewer could be
those of a kernel that rounds to nearest and is a little off."""
MIN_SUMMED = 4.0
"""The same of a row or a column whose mean error is told from 0."""
MAX_SCORE = 6.0
"""The largest mean error, in its standard deviations."""
MIN_PROBABILITY = 1e-8
"""The least probability of the way that an element is rounded."""
BINS = 8
"""Classes of p, in each of which as many elements are rounded up as p says."""


@dataclass(frozen=True)
class _Errors:
    """The rounding errors of some rows (rows, N).

    Attributes:
        error: the output minus its replay.
        variance: that of the error.
        information: p (1 - p), p the probability of rounding away from zero; 0 where the kernel's
            own noise is as wide as a step.
        classes: which of BINS classes p is in.
        step: the format's, with the sign of the output.
        least_probability: that of the unlikeliest of the ways that the elements are rounded.
    """

    error: Array
    variance: Array
    information: Array
    classes: NDArray[np.intp]
    step: Array
    least_probability: float

    @classmethod
    def of(cls, output: NDArray[np.floating], replay: Quantity, form: str) -> _Errors:
        size = np.abs(replay.values)
        step = ulp(size, form)
        low = round_to(size, form, "zero").astype(np.float64)
        p = np.clip((size - low) / step, 0.0, 1.0)
        error = np.asarray(output, np.float64) - replay.values
        is_away = np.sign(replay.values) * error > 0.0
        reach = (TIE * np.sqrt(replay.variance) + replay.slack) / step
        way = np.where(is_away, p, 1.0 - p) + reach
        information = np.where(reach < 1.0, p * (1.0 - p), 0.0)
        variance = p * (1.0 - p) * step**2 + replay.variance + replay.slack**2 / 3
        return cls(
            error,
            variance,
            information,
            np.minimum((p * BINS).astype(np.intp), BINS - 1),
            np.copysign(step, replay.values),
            float(way.min()),
        )


@dataclass
class _Sums:
    """Sums of errors along patterns, and their variances."""

    along: Array
    variance: Array
    information: Array

    @classmethod
    def of(cls, count: int) -> _Sums:
        return cls(np.zeros(count), np.zeros(count), np.zeros(count))

    def add(
        self, errors: _Errors, pattern: Array, *, axis: int | None, place: int | slice = slice(None)
    ) -> None:
        """Add the errors of some rows along a pattern (rows, N); axis None: to one place."""
        self.along[place] += (errors.error * pattern).sum(axis=axis)
        self.variance[place] += (errors.variance * pattern**2).sum(axis=axis)
        used = np.where(pattern != 0.0, errors.information, 0.0)
        self.information[place] += used.sum(axis=axis)

    @property
    def largest(self) -> float:
        """Return the largest quotient of the sums that say something."""
        says = (self.information >= MIN_SUMMED) & (self.variance > 0.0)
        return float((np.abs(self.along[says]) / np.sqrt(self.variance[says])).max(initial=0.0))


def programs(graph: Graph, form: str) -> Iterator[Program]:
    """Yield the programs that round an output of a format at random, of those that are tried."""
    if form != "fp32":
        yield replace(graph.forms[0], output_rounding="random")


def score(
    graph: Graph,
    program: Program,
    output: NDArray[np.floating],
    form: str,
    least: float = MIN_INFORMATION,
) -> float:
    """Return the largest mean error of an output (rows, N), in its standard deviations.

    Infinite where an element is rounded as it should never be, or where too few are rounded at all.

    program: one that rounds at random. form: a narrow format. least: the information that is
    enough; 0 where another output of the kernel has shown that it rounds at random.
    """
    by_column, by_value = _Sums.of(output.shape[1]), _Sums.of(output.shape[1])
    by_class, whole = _Sums.of(BINS), _Sums.of(1)
    largest = 0.0
    for replay, part in _parts(graph, program, output):
        errors = _Errors.of(part, replay, form)
        if not errors.least_probability >= MIN_PROBABILITY:
            return math.inf
        evenly = np.ones_like(errors.error)
        by_column.add(errors, evenly, axis=0)
        by_value.add(errors, replay.values, axis=0)
        for pattern in (evenly, replay.values, *replay.shared.values()):
            of_rows = _Sums.of(len(part))
            of_rows.add(errors, np.broadcast_to(pattern, part.shape), axis=1)
            largest = max(largest, of_rows.largest)
        # relative to a step, so that large values don't decide alone
        whole.add(errors, replay.values / errors.step**2, axis=None)
        for place in range(BINS):
            of_class = (errors.classes == place) / errors.step
            by_class.add(errors, of_class, axis=None, place=place)
    if whole.information[0] < least:
        return math.inf
    return max(largest, *(sums.largest for sums in (by_column, by_value, by_class, whole)))


def _parts(
    graph: Graph, program: Program, output: NDArray[np.floating]
) -> Iterator[tuple[Quantity, NDArray[np.floating]]]:
    for start, stop in spans.even(*graph.shape):
        yield graph.some(np.arange(start, stop)).replay(program), output[start:stop]
