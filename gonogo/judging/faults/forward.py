"""The faults of y = gamma (x - mean) rstd + beta."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.faults import groups, other_rows, padding, scales, statistics, tails
from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults.fault import Fault, Residual, places
from gonogo.judging.faults.stored import SHOWS, StoredStatistics
from gonogo.judging.limits.detection import without_terms
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array

_SCALES = ("gamma", "beta")
ADDED = {"gamma": "a factor is applied", "beta": "an offset is added"}
"""The words where a kernel has no gamma or beta that could be off."""
ROUNDS = 4
"""Rounds in which a fitted fault and the statistics beside it are fitted in turn."""


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
    tried = [
        statistics.wrong(
            x,
            rows.epsilon,
            centered=rows.centered,
            **_tails(x, right, scaled, of_mean, residual),
        ),
        padding.of_statistics(x, rows.epsilon, centered=rows.centered),
    ]
    for wrong in chain(*tried):
        with np.errstate(invalid="ignore"):
            effect = (x - wrong.mean) * wrong.rstd * gamma + beta - exact
        if not wrong.is_padded or residual.relates(scaled, effect, near=np.inf).all():
            wholes.append(Fault(wrong.words, effect))
    wholes += scales.faults(rows, normalized, residual)
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
    yield from tails.unwritten(exact, residual)
    gammas, betas = np.broadcast_to(gamma, exact.shape), np.broadcast_to(beta, exact.shape)
    yield from other_rows.statistics(
        lambda row, mean, rstd: (x[row] - mean) * rstd * gammas[row] + betas[row],
        right.mean,
        right.rstd,
        exact,
        residual,
    )
    factors = [*of_rows.common(exact, residual)]
    if rows.beta is not None:
        factors += of_rows.common(scaled, residual, "the rstd has a common factor")

    def of_epsilon(value: float) -> Array:
        other = statistics.right(x, value, centered=rows.centered)
        return np.asarray((other.rstd / right.rstd - 1.0) * scaled)

    fitted = statistics.fitted_epsilon(of_epsilon, rows.epsilon, residual)
    pattern = None if of_mean is None else np.broadcast_to(of_mean, exact.shape)
    stored = StoredStatistics.of(right, scaled, pattern, form, residual)
    left = None if form == "fp32" else stored.energy
    few = statistics.likelier_of(factors, fitted, residual, left)
    yield from few
    if form != "fp32":
        wholes += of_rows.common(exact, stored)
        wholes += of_rows.common(scaled, stored, "the rstd has a common factor")
        wholes += _of_few_columns(rows, normalized, stored.rest())
        likeliest = stored.likeliest([*wholes, *few])
        if likeliest is not None:
            yield likeliest
    labels = rows.channels
    in_rows = _of_rows(exact, scaled, of_mean, residual)
    in_columns = _of_columns(rows, normalized, residual)
    # the fewer numbers are fitted, the more an equally good fit says
    if residual.rows <= int(labels.max()) + 1:
        yield from chain(in_rows, in_columns)
    else:
        yield from chain(in_columns, in_rows)
    if pattern is not None:
        both = _of_both(scaled, pattern, right, stored, residual)
        if residual.relates(scaled, both.effect).all():
            yield both
    if rows.channel_width > 1:
        if form != "fp32":
            for name in _SCALES:
                yield _of_scale_beside(rows, normalized, name, stored, residual)
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
        yield Fault(words, off * pattern, residual.rows, is_coherent=False)
    off = residual.per_row(scaled)
    off = np.where(residual.relates(scaled, off * scaled, 1), off, 0.0)
    words = f"the rstd is off in {places('row', off)}"
    yield Fault(words, off * scaled, residual.rows, is_coherent=False)


def _of_both(
    scaled: Array,
    of_mean: Array,
    right: statistics.Statistics,
    stored: StoredStatistics,
    residual: Residual,
) -> Fault:
    """Return the fault with a mean and an rstd for each row.

    The one that is further beyond what rounding it to the format adds is named first.
    """
    off_rstd, off_mean = residual.two_factors(scaled, of_mean)
    # a variance about a wrong mean is too large
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong_by = off_mean * right.rstd / (1.0 + off_rstd)
    about_mean = off_rstd + 1.0 - 1.0 / np.sqrt(1.0 + np.square(wrong_by))
    beyond_mean = np.where(np.abs(about_mean) < np.abs(off_rstd), about_mean, off_rstd)
    sizes = np.sqrt(np.square(stored.sizes(np.stack([beyond_mean, off_mean])[..., 0])).mean(axis=1))
    first, second = ("rstd", "mean") if sizes[0] > sizes[1] else ("mean", "rstd")
    effect = off_rstd * scaled + off_mean * of_mean
    words = f"the {first} and the {second} of the rows are off"
    return Fault(words, effect, 2 * residual.rows)


def _of_scale_beside(
    rows: Rows, normalized: Array, name: str, stored: StoredStatistics, residual: Residual
) -> Fault:
    """Return the fault of gamma's or beta's values, with errors of stored statistics beside it."""
    fault = _of_scale(rows, normalized, name, residual)
    for _ in range(ROUNDS):
        both = stored.beside(fault)
        fault = _of_scale(rows, normalized, name, residual.without(both.effect - fault.effect))
    return stored.beside(fault)


def _of_columns(rows: Rows, normalized: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults with a number for each value of gamma or beta, first those of few values."""
    yield from _of_few_columns(rows, normalized, residual)
    for name in _SCALES:
        yield _of_scale(rows, normalized, name, residual)


def _of_few_columns(rows: Rows, normalized: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults of the values of gamma or beta in which more shows than rounding adds."""
    labels = rows.channels
    energy = residual.per_label_energy(labels)
    chosen = energy > SHOWS * max(1.0, float(np.median(energy)))
    if not 0 < chosen.sum() <= len(chosen) / 2:
        return
    shape = residual.error.shape
    values = {"gamma": rows.gamma, "beta": rows.beta}
    for name, pattern in _patterns(normalized).items():
        if (value := values[name]) is not None:
            part = np.where(chosen[labels], value * pattern, 0.0)
            where = places(_noun(rows), chosen.astype(np.float64))
            yield from of_rows.common(
                np.broadcast_to(part, shape), residual, f"{name} is off in {where}, by a factor"
            )
    for name in _SCALES:
        if values[name] is not None:
            yield _of_scale(rows, normalized, name, residual, chosen)


def _patterns(normalized: Array) -> dict[str, Array]:
    """Return what an error of gamma and one of beta add to y, for each 1 of it."""
    return {"gamma": normalized, "beta": np.ones((1, 1))}


def _of_scale(
    rows: Rows,
    normalized: Array,
    name: str,
    residual: Residual,
    chosen: NDArray[np.bool_] | None = None,
) -> Fault:
    """Return the fault with a number for each value of gamma or of beta, or for some of them."""
    labels = rows.channels
    pattern = _patterns(normalized)[name]
    off = residual.per_label(pattern, labels)
    count = int(labels.max()) + 1
    if name == "gamma" and rows.gamma is not None and rows.channel_width == 1:
        off = np.where(residual.relates(rows.gamma * pattern, off * pattern, 0), off, 0.0)
    if chosen is not None:
        off = np.where(chosen[labels], off, 0.0)
        count = int(chosen.sum())
    value = rows.gamma if name == "gamma" else rows.beta
    words = f"{name} is off" if value is not None else ADDED[name]
    return Fault(f"{words} in {_of_labels(_noun(rows), off, labels)}", off * pattern, count)


def _noun(rows: Rows) -> str:
    return "column" if rows.channel_width == 1 else "channel"


def _of_labels(noun: str, values: Array, labels: NDArray[np.intp]) -> str:
    by_label = np.zeros(int(labels.max()) + 1)
    by_label[np.broadcast_to(labels, values.shape).ravel()] = values.ravel()
    return places(noun, by_label)
