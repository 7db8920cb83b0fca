"""The faults of y = gamma (x - mean) rstd + beta."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.faults import groups, statistics, stored
from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults.fault import Fault, Residual, places
from gonogo.judging.faults.statistics import TILE
from gonogo.judging.faults.stored import StoredStatistics
from gonogo.judging.limits.detection import without_terms
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array

_SCALES = ("gamma", "beta")


def faults(graph: NormalizedRows, exact: Array, residual: Residual, form: str) -> Iterator[Fault]:
    """Yield the faults of y (rows, N) in a format, the fewer fitted numbers the earlier."""
    rows = graph.rows
    x = np.asarray(rows.x, np.float64)
    gamma = np.ones((1, 1)) if rows.gamma is None else rows.gamma
    beta = np.zeros((1, 1)) if rows.beta is None else rows.beta
    right = statistics.right(x, rows.epsilon, centered=rows.centered)
    normalized = (x - right.mean) * right.rstd
    terms = [
        Fault(f"{term} is missing", changed - exact)
        for term, changed in without_terms(graph).items()
    ]
    scaled = np.broadcast_to(gamma * normalized, exact.shape)
    of_mean = -gamma * right.rstd if rows.centered else None
    wholes = [*terms]
    for wrong in statistics.wrong(
        x,
        rows.epsilon,
        centered=rows.centered,
        **_tails(x, right, scaled, of_mean, residual),
    ):
        with np.errstate(invalid="ignore"):
            effect = (x - wrong.mean) * wrong.rstd * gamma + beta - exact
        wholes.append(Fault(wrong.words, effect))
    if rows.gamma is not None and rows.channel_width == 1 and x.shape[1] > TILE:
        for shift in (1, -1, TILE, -TILE):
            moved = normalized * (np.roll(gamma, shift, axis=1) - gamma)
            noun = "column" if abs(shift) == 1 else "columns"
            wholes.append(Fault(f"gamma is shifted by {shift} {noun}", moved))
    if rows.channel_width > 1:
        wholes += groups.faults(rows, gamma, beta, normalized, exact)
    yield from wholes
    if rows.beta is not None:
        added = np.broadcast_to(beta, exact.shape)
        yield Fault("beta is added twice", added)
        terms.append(Fault("beta is added twice", added))
    for fault in terms:
        yield from of_rows.in_rows(fault, residual)
    yield from of_rows.stale(exact, residual)
    factors = [*of_rows.common(exact, residual)]
    if rows.beta is not None:
        factors += of_rows.common(scaled, residual, "the rstd has a common factor")

    def of_epsilon(value: float) -> Array:
        other = statistics.right(x, value, centered=rows.centered)
        return np.asarray((other.rstd / right.rstd - 1.0) * scaled)

    fitted = statistics.fitted_epsilon(of_epsilon, rows.epsilon, residual)
    few = [*statistics.better_first(factors, fitted, residual)]
    yield from few
    pattern = None if of_mean is None else np.broadcast_to(of_mean, exact.shape)
    beside = StoredStatistics.of(right, scaled, pattern, form)
    likely = stored.likeliest([*wholes, *few], residual) if form != "fp32" else None
    if likely is not None and not likely.fitted:  # a factor needs no other fault beside it
        whole = likely
        yield beside.beside(lambda _: whole, residual)
    labels = rows.channels
    in_rows = _of_rows(exact, scaled, of_mean, residual)
    in_columns = _of_columns(rows, normalized, residual)
    # the fewer numbers are fitted, the more an equally good fit says
    if len(x) <= int(labels.max()) + 1:
        yield from chain(in_rows, in_columns)
    else:
        yield from chain(in_columns, in_rows)
    if rows.centered:
        both = residual.two_per_row(scaled, np.broadcast_to(gamma, exact.shape))
        yield Fault("the mean and the rstd of the rows are off", both, 2 * len(x))
    if rows.channel_width > 1:
        if form != "fp32":
            for name in _SCALES:
                yield beside.beside(partial(_of_scale, rows, normalized, name), residual)
        yield groups.recut(rows, gamma, normalized, residual)


def _tails(
    x: Array,
    right: statistics.Statistics,
    scaled: Array,
    of_mean: Array | None,
    residual: Residual,
) -> dict[str, tuple[int, ...]]:
    """Return how many last columns the mean and the variance seem to leave out, row by row."""
    count = x.shape[1]
    with np.errstate(divide="ignore"):
        had = (right.rstd * (1.0 + residual.per_row(scaled))) ** -2.0
    squares = (x - right.mean) ** 2 / count
    tails: dict[str, tuple[int, ...]]
    tails = {"of_squares": (statistics.tail(squares, right.rstd**-2.0 - had),)}
    if of_mean is not None:
        off = residual.per_row(np.broadcast_to(of_mean, x.shape))
        tails["of_mean"] = (statistics.tail(x / count, -off),)
    return tails


def _of_rows(
    exact: Array, scaled: Array, of_mean: Array | None, residual: Residual
) -> Iterator[Fault]:
    """Yield the faults with a number for each row.

    scaled: what an error of rstd adds. of_mean: the same of the mean, if one is subtracted.
    """
    yield from of_rows.factors(exact, residual)
    if of_mean is not None:
        pattern = np.broadcast_to(of_mean, exact.shape)
        off = residual.per_row(pattern)
        words = f"the mean is off in {places('row', off)}"
        yield Fault(words, off * pattern, len(exact), is_coherent=False)
    off = residual.per_row(scaled)
    words = f"the rstd is off in {places('row', off)}"
    yield Fault(words, off * scaled, len(exact), is_coherent=False)


def _of_columns(rows: Rows, normalized: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults with a number for each value of gamma or beta."""
    for name in _SCALES:
        yield _of_scale(rows, normalized, name, residual)


def _of_scale(rows: Rows, normalized: Array, name: str, residual: Residual) -> Fault:
    """Return the fault with a number for each value of gamma or of beta."""
    labels = rows.channels
    noun = "column" if rows.channel_width == 1 else "channel"
    pattern = normalized if name == "gamma" else np.ones((1, 1))
    off = residual.per_label(pattern, labels)
    words = f"{name} is off in {_of_labels(noun, off, labels)}"
    return Fault(words, off * pattern, int(labels.max()) + 1)


def _of_labels(noun: str, values: Array, labels: NDArray[np.intp]) -> str:
    by_label = np.zeros(int(labels.max()) + 1)
    by_label[np.broadcast_to(labels, values.shape).ravel()] = values.ravel()
    return places(noun, by_label)
