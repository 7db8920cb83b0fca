"""The diagnosis by replay: which fault explains the largest share of an output's error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits import statistics, without_terms
from gonogo.kernels.layernorm.replay import ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import half_ulp
from gonogo.numerics.replay.graph import Graph

CHANCE = 5.0
"""Standard deviations by which a fault must lower the error's energy to be preferred."""
MIN_SHARE = 0.5
"""The least share of the error that a fault must explain to be named."""
SAME_FACTOR = 0.05
"""The spread of the rows' factors, relative to the common one, up to which they are one factor."""
TILE = 32
MAX_ELEMENTS, MIN_ROWS = 2**20, 8
"""The part of a large output that is diagnosed: neighboring rows about its worst one."""


@dataclass(frozen=True)
class TermShare:
    """A fault, with the share of the error's energy that it explains.

    Attributes:
        words: the fault in words, such as "gamma is missing".
        share: the part of sum(e^2), beyond the output's own rounding, that the fault explains.
        is_coherent: False for rows with factors of their own, which a stored rstd makes, too.
    """

    words: str
    share: float
    is_coherent: bool = True

    @property
    def sentence(self) -> str:
        """Return the fault with its share."""
        share = np.floor(1000 * self.share) / 10
        return f"{self.words}: explains {share:g} % of the error"


def diagnose(graph: Graph, output: NDArray[np.floating], form: str) -> TermShare | None:
    """Return the fault that explains most of an output's error (rows, N), or None.

    Faults are whole ones, such as a missing term, whose effect the inputs give, and then factors,
    which are fitted. A later one is preferred where it explains more than chance would.
    """
    rows, features = graph.shape
    if rows > 1 and rows * features > MAX_ELEMENTS:
        window = _window(graph, output, max(MIN_ROWS, MAX_ELEMENTS // features))
        graph, output = graph.some(window), output[window]
    exact = graph.replay(graph.forms[0]).values
    error = np.asarray(output, np.float64) - exact
    # what the last rounding makes by itself, uniform over a step, and that sum's own deviation
    squares = half_ulp(output, form) ** 2
    rounding = float(squares.sum()) / 3
    chance = CHANCE * float(np.sqrt((squares**2).sum() * 4 / 45))
    energy = float((error**2).sum())
    if not np.isfinite(energy) or energy <= rounding + chance:
        return None
    best: TermShare | None = None
    least = energy
    for words, effect, is_coherent in _faults(graph, exact, error):
        left = float(((error - effect) ** 2).sum())
        # a fault must halve what the one before leaves, which more numbers alone wouldn't
        if left < least - chance and left - rounding < (least - rounding) / 2:
            share = 1.0 - max(left - rounding, 0.0) / (energy - rounding)
            least, best = left, TermShare(words, share, is_coherent)
    return best if best is not None and best.share >= MIN_SHARE else None


def _window(graph: Graph, output: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Return neighboring rows about the one with the largest error."""
    rows = graph.shape[0]
    step = max(1, rows // (4 * count))
    probed = np.arange(0, rows, step)
    error = np.abs(output[probed] - graph.some(probed).replay(graph.forms[0]).values).max(axis=1)
    start = int(np.clip(probed[int(np.argmax(error))] - count // 2, 0, max(0, rows - count)))
    return np.arange(start, min(rows, start + count))


def _faults(graph: Graph, exact: Array, error: Array) -> Iterator[tuple[str, Array, bool]]:
    """Yield (words, effect on the output, whether it is coherent) of each fault."""
    for term, changed in without_terms(graph).items():
        yield f"{term} is missing", changed - exact, True
    yield from _sums(graph, exact)
    if exact.shape[0] > 1:
        yield from _rows(exact, error)
    norm = float((exact**2).sum())
    if norm > 0:
        factor = float((error * exact).sum()) / norm
        yield f"a common factor of {1 + factor:.6g}", factor * exact, True
        by_row = (error * exact).sum(axis=1, keepdims=True) / np.maximum(
            (exact**2).sum(axis=1, keepdims=True), 1e-300
        )
        if np.std(by_row) > SAME_FACTOR * abs(factor):
            yield _row_factor_words(by_row[:, 0]), by_row * exact, False


def _rows(exact: Array, error: Array) -> Iterator[tuple[str, Array, bool]]:
    """Yield the rows that hold another row's values."""
    size = (error**2).sum(axis=1)
    for row in np.argsort(size)[::-1][:4]:
        for other in (row - 1, row + 1):
            if 0 <= other < len(exact):
                effect = np.zeros_like(exact)
                effect[row] = exact[other] - exact[row]
                yield f"row {row} holds the values of row {other}", effect, True


def _row_factor_words(factors: Array) -> str:
    wrong = np.abs(factors) > 0.5 * np.abs(factors).max()
    rows = np.flatnonzero(wrong)
    if len(rows) == 1:
        return f"row {rows[0]} has a factor of {1 + factors[rows[0]]:.6g}"
    low, high = 1 + factors[wrong].min(), 1 + factors[wrong].max()
    return f"{len(rows)} rows have factors of their own, from {low:.6g} to {high:.6g}"


@singledispatch
def _sums(graph: object, exact: Array) -> Iterator[tuple[str, Array, bool]]:
    """Yield the faults of the sums in a graph's formula."""
    yield from ()


@_sums.register
def _(graph: NormalizedRows, exact: Array) -> Iterator[tuple[str, Array, bool]]:
    rows = graph.rows
    x, features = rows.x, rows.x.shape[1]
    gamma = np.ones((1, 1)) if rows.gamma is None else rows.gamma
    beta = np.zeros((1, 1)) if rows.beta is None else rows.beta
    zero = np.zeros((len(x), 1))
    mean = x.mean(axis=1, keepdims=True) if rows.centered else zero
    noun = "variance" if rows.centered else "mean square"

    def output(mean: Array, variance: Array, epsilon: float = rows.epsilon) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta

    squares = (x - mean) ** 2
    variance = squares.mean(axis=1, keepdims=True)
    changed = {}
    if features > 1:
        changed[f"the {noun} divides by N - 1"] = output(mean, variance * features / (features - 1))
    if rows.centered:
        uncentered = (x**2).mean(axis=1, keepdims=True)
        changed["the variance is taken about 0"] = output(mean, uncentered)
        changed["the mean is subtracted twice"] = output(2 * mean, variance)
    for width in {TILE, features % TILE or TILE, 3}:
        if width < features:
            count, last = features, slice(features - width, None)
            shorter = squares.sum(axis=1, keepdims=True) - squares[:, last].sum(
                axis=1, keepdims=True
            )
            name = f"the last {width} columns"
            changed[f"the {noun} leaves out {name}"] = output(mean, shorter / count)
            if rows.centered:
                part = (
                    x.sum(axis=1, keepdims=True) - x[:, last].sum(axis=1, keepdims=True)
                ) / count
                about = ((x - part) ** 2).mean(axis=1, keepdims=True)
                changed[f"the mean leaves out {name}"] = output(part, about)
    if rows.gamma is not None and features > TILE:
        for shift in (1, -1, TILE, -TILE):
            rolled = np.roll(gamma, shift, axis=1)
            normalized = (x - mean) / np.sqrt(variance + rows.epsilon)
            changed[f"gamma is shifted by {shift} columns"] = normalized * rolled + beta
    changed[f"the {noun} leaves epsilon out"] = output(mean, variance, 0.0)
    for epsilon in (1e-12, 1e-8, 1e-6, 1e-5, 1e-3):
        if epsilon != rows.epsilon:
            changed[f"epsilon is {epsilon:g}"] = output(mean, variance, epsilon)
    for words, values in changed.items():
        if np.isfinite(values).all():
            yield words, values - exact, True


@_sums.register
def _(graph: InputGradient, exact: Array) -> Iterator[tuple[str, Array, bool]]:
    rows = graph.rows
    features = rows.x.shape[1]
    mean, rstd = statistics(graph)
    normalized = (rows.x - mean) * rstd
    product = rows.dy * rows.gamma
    terms = {"s1": (product, np.ones_like(product)), "s2": (product * normalized, normalized)}
    if not rows.centered:
        del terms["s1"]
    for name, (summed, pattern) in terms.items():
        total = summed.mean(axis=1, keepdims=True)
        yield f"{name} is subtracted twice", -rstd * total * pattern, True
        if features > 1:
            yield f"{name} divides by N - 1", -rstd * total / (features - 1) * pattern, True
        for width in {TILE, features % TILE or TILE, 3}:
            if width < features:
                left_out = summed[:, features - width :].sum(axis=1, keepdims=True) / features
                words = f"{name} leaves out the last {width} columns"
                yield words, rstd * left_out * pattern, True


@_sums.register
def _(graph: ColumnGradient, exact: Array) -> Iterator[tuple[str, Array, bool]]:
    terms = graph.terms(graph.forms[0]).values
    count = len(terms)
    for row in {0, count - 1}:
        yield f"row {row} is missing from the sum", -terms[row : row + 1], True
    for start in range(0, count, TILE):
        if count > TILE:
            tile = terms[start : start + TILE].sum(axis=0, keepdims=True)
            yield f"row tile {start // TILE} is missing from the sum", -tile, True
            yield f"row tile {start // TILE} is added twice", tile, True
