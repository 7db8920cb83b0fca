"""Wrong statistics of rows: the mean that a kernel subtracts and the rstd that it multiplies by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gonogo.numerics.expectation import Array

TILE = 32
EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
"""The usual epsilons, one of which a kernel may have instead of its own."""


@dataclass(frozen=True)
class Statistics:
    """The mean that is subtracted from rows, and rstd, (rows, 1); `words` is the fault."""

    words: str
    mean: Array
    rstd: Array


def left_out(features: int) -> list[int]:
    """Return the numbers of last columns that a loop over tiles may leave out of a sum."""
    return sorted({TILE, features % TILE or TILE, 3} & set(range(1, features)))


def right(x: Array, epsilon: float, *, centered: bool = True) -> Statistics:
    """Return the right statistics of x (rows, N)."""
    mean = x.mean(axis=1, keepdims=True) if centered else np.zeros((len(x), 1))
    return Statistics("", mean, _rstd(((x - mean) ** 2).mean(axis=1, keepdims=True), epsilon))


def wrong(x: Array, epsilon: float, *, centered: bool = True) -> Iterator[Statistics]:
    """Yield the faults of the statistics of x (rows, N)."""
    noun = "variance" if centered else "mean square"
    features = x.shape[1]
    of_rows = right(x, epsilon, centered=centered)
    mean, rstd = of_rows.mean, of_rows.rstd
    squares = (x - mean) ** 2
    variance = squares.mean(axis=1, keepdims=True)
    if features > 1:
        short = variance * features / (features - 1)
        yield Statistics(f"the {noun} divides by N - 1", mean, _rstd(short, epsilon))
    if centered:
        about_0 = (x**2).mean(axis=1, keepdims=True)
        yield Statistics("the variance is taken about 0", mean, _rstd(about_0, epsilon))
        yield Statistics("the mean is missing", 0 * mean, rstd)
        yield Statistics("the mean is subtracted twice", 2 * mean, rstd)
        if features > 1:
            yield _about("the mean divides by N - 1", x, mean * features / (features - 1), epsilon)
    else:
        centers = x.mean(axis=1, keepdims=True)
        yield _about("the mean is subtracted", x, centers, epsilon)
    for width in left_out(features):
        columns = slice(features - width, None)
        without = variance - squares[:, columns].sum(axis=1, keepdims=True) / features
        name = f"the last {width} columns"
        yield Statistics(f"the {noun} leaves out {name}", mean, _rstd(without, epsilon))
        if centered:
            part = mean - x[:, columns].sum(axis=1, keepdims=True) / features
            yield _about(f"the mean leaves out {name}", x, part, epsilon)
    for shift, place in ((1, "before"), (-1, "after")):
        if len(x) > 1:
            words = f"each row has the rstd of the row {place} it"
            yield Statistics(words, mean, np.roll(rstd, shift, axis=0))
            if centered:
                words = f"each row has the mean of the row {place} it"
                yield Statistics(words, np.roll(mean, shift, axis=0), rstd)
    yield Statistics(f"the {noun} leaves epsilon out", mean, _rstd(variance, 0.0))
    for other in EPSILONS:
        if other != epsilon:
            yield Statistics(f"epsilon is {other:g}", mean, _rstd(variance, other))


def _about(words: str, x: Array, mean: Array, epsilon: float) -> Statistics:
    """Return the statistics with a wrong mean, about which the variance is taken."""
    return Statistics(words, mean, _rstd(((x - mean) ** 2).mean(axis=1, keepdims=True), epsilon))


def _rstd(variance: Array, epsilon: float) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1.0 / np.sqrt(variance + epsilon))
