"""The faults of y = gamma (x - mean) rstd + beta."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults import statistics
from gonogo.judging.faults.fault import Fault, per_label, per_row, places, two_per_row
from gonogo.judging.faults.statistics import TILE
from gonogo.judging.limits import without_terms
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.expectation import Array


def faults(graph: NormalizedRows, exact: Array, error: Array) -> Iterator[Fault]:
    """Yield the faults of y (rows, N), those without a fitted number first."""
    rows = graph.rows
    x = np.asarray(rows.x, np.float64)
    gamma = np.ones((1, 1)) if rows.gamma is None else rows.gamma
    beta = np.zeros((1, 1)) if rows.beta is None else rows.beta
    right = statistics.right(x, rows.epsilon, centered=rows.centered)
    normalized = (x - right.mean) * right.rstd
    for term, changed in without_terms(graph).items():
        yield Fault(f"{term} is missing", changed - exact)
    for wrong in statistics.wrong(x, rows.epsilon, centered=rows.centered):
        with np.errstate(invalid="ignore"):
            yield Fault(wrong.words, (x - wrong.mean) * wrong.rstd * gamma + beta - exact)
    if rows.gamma is not None and x.shape[1] > TILE:
        for shift in (1, -1, TILE, -TILE):
            moved = normalized * (np.roll(gamma, shift, axis=1) - gamma)
            noun = "column" if abs(shift) == 1 else "columns"
            yield Fault(f"gamma is shifted by {shift} {noun}", moved)
    yield from of_rows.stale(exact, error)
    yield from of_rows.common(exact, error)
    scaled = gamma * normalized
    if rows.beta is not None:
        yield from of_rows.common(scaled, error, "the rstd has a common factor")
    labels = rows.channels
    noun = "column" if rows.channel_width == 1 else "channel"
    count = int(labels.max()) + 1
    of_gamma = per_label(error, normalized, labels)
    yield Fault(
        f"gamma is off in {_of_labels(noun, of_gamma, labels)}", of_gamma * normalized, count
    )
    of_beta = per_label(error, np.ones((1, 1)), labels)
    yield Fault(f"beta is off in {_of_labels(noun, of_beta, labels)}", of_beta, count)
    yield from of_rows.factors(exact, error)
    if rows.centered:
        pattern = np.broadcast_to(-gamma * right.rstd, exact.shape)
        off = per_row(error, pattern)
        yield Fault(f"the mean is off in {places('row', off)}", off * pattern, len(x))
    off = per_row(error, scaled)
    words = f"the rstd is off in {places('row', off)}"
    yield Fault(words, off * scaled, len(x), is_coherent=False)
    both = two_per_row(error, scaled, np.broadcast_to(gamma, exact.shape))
    yield Fault("the mean and the rstd of the rows are off", both, 2 * len(x))
    if rows.channel_width > 1:
        yield _regrouped(graph, gamma, normalized, error)


def _of_labels(noun: str, values: Array, labels: NDArray[np.intp]) -> str:
    by_label = np.zeros(int(labels.max()) + 1)
    by_label[np.broadcast_to(labels, values.shape).ravel()] = values.ravel()
    return places(noun, by_label)


def _regrouped(graph: NormalizedRows, gamma: Array, normalized: Array, error: Array) -> Fault:
    """Return the fault of groups that are cut elsewhere: statistics that change within a row."""
    rows = graph.rows
    count, features = error.shape
    width = rows.channel_width
    cut = (count * features // width, width)
    shape = error.shape
    scaled = (gamma * normalized).reshape(cut)
    effect = two_per_row(error.reshape(cut), scaled, np.broadcast_to(gamma, shape).reshape(cut))
    words = "the groups are cut elsewhere: mean and rstd change within a group"
    return Fault(words, effect.reshape(shape), 2 * cut[0])
