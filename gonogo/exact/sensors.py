"""Read the factor and the offset of a row from the cells of its outputs.

A row is y = gamma (f x^ + t) + beta, rounded. f is the factor on x^, t the offset of x^: a right
kernel has f = 1 and t = 0. An output's cell gives an interval for f or for t. The stretch that
most intervals contain is the reading. A few wild elements don't move it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MIN_SENSORS = 2
"""Zero sensors of a row that are needed to read its offset by themselves."""


@dataclass(frozen=True)
class Span:
    """A stretch for each row: its two ends, (rows,)."""

    low: Doubles
    high: Doubles

    @property
    def middle(self) -> Doubles:
        """The middle of each stretch."""
        return (self.low + self.high) / 2

    def away(self, value: Doubles | float) -> Doubles:
        """Return how far `value` lies outside of each stretch; 0 inside."""
        return np.maximum(np.maximum(self.low - value, value - self.high), 0.0)


@dataclass(frozen=True)
class Distance:
    """How far the readings of some rows are from those of a right kernel.

    Attributes:
        squares: the squared distance of each row, (rows,).
        wrong: the rows that count, (rows,): those whose readings differ.
        weights: their weights, (rows that count,): a huge distance counts as much as the typical
            one.
        total: the weighted sum of their squares.
    """

    squares: Doubles
    wrong: NDArray[np.bool_]
    weights: Doubles
    total: np.float64

    @classmethod
    def of(cls, squares: Doubles, chosen: NDArray[np.bool_] | None = None) -> Distance:
        """Return the distance with these squares; of the chosen rows only, where some are."""
        wrong = squares > 0 if chosen is None else chosen
        some = squares[wrong]
        if some.size == 0:
            return cls(squares, wrong, some, np.float64(0.0))
        weights = 1 / np.maximum(some, np.median(some))
        return cls(squares, wrong, weights, (some * weights).sum())


@dataclass(frozen=True)
class Readings:
    """The readings of some rows."""

    factor: Span
    offset: Span
    share: Doubles
    """(rows,): the share of a row's elements that agree with its factor and offset."""
    distances: dict[float, Distance] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The results of `distance`, by the factor of a right kernel."""

    def away(self, offset: Doubles | float, factor: Doubles | float) -> Doubles:
        """Return the square of how far an offset and a factor lie outside of each row's."""
        return np.asarray(self.factor.away(factor) ** 2 + self.offset.away(offset) ** 2)

    def distance(self, right: float) -> Distance:
        """Return how far the readings are from a right kernel's factor and from no offset."""
        if right not in self.distances:
            self.distances[right] = Distance.of(self.away(0.0, right))
        return self.distances[right]


def most_covered(low: Doubles, high: Doubles) -> tuple[float, float]:
    """Return the stretch that most of the intervals [low, high] contain.

    Empty input gives NaN.
    """
    if low.size == 0:
        return float("nan"), float("nan")
    ends = np.concatenate([low, high])
    steps = np.concatenate([np.ones(low.size), -np.ones(high.size)])
    order = np.lexsort((-steps, ends))  # at equal ends, intervals open before others close
    depth = np.cumsum(steps[order])
    best = int(np.argmax(depth))
    return float(ends[order[best]]), float(ends[order[min(best + 1, ends.size - 1)]])


AGREES = 0.9
"""Where so large a share of a row's elements agrees with a factor alone, the offset is 0."""


def read(low: Doubles, high: Doubles, gamma: Doubles, xhat: Doubles, beta: Doubles) -> Readings:
    """Return the readings of rows, from the ends of their outputs' cells; all (rows, N).

    The offset comes from the elements with x^ = 0 where there are at least MIN_SENSORS. Otherwise
    it is 0 if a factor alone explains the row, else it comes from the least squares of the cells'
    centers. An element whose gamma is 0 senses nothing.
    """
    rows = low.shape[0]
    factor, offset = np.ones((2, rows)), np.zeros((2, rows))
    share = np.zeros(rows)
    for row in range(rows):
        finite = np.isfinite(low[row]) & np.isfinite(high[row]) & (gamma[row] != 0)
        a, b = low[row, finite] - beta[row, finite], high[row, finite] - beta[row, finite]
        g, hat = gamma[row, finite], xhat[row, finite]
        zero = hat == 0
        line = np.zeros(2), np.ones(2), 0.0
        if zero.sum() >= MIN_SENSORS:
            shift = np.array(most_covered(*_divided(a[zero], b[zero], g[zero])))
            line = _with_offset(shift, a, b, g, hat)
        elif hat.size >= 2:
            line = _with_offset(np.zeros(2), a, b, g, hat)
            if line[2] < AGREES:
                table = np.stack([hat, np.ones_like(hat)], axis=1)
                slope = np.linalg.lstsq(table, (a + b) / 2 / g, rcond=None)[0]
                line = max(line, _with_offset(slope[[1, 1]], a, b, g, hat), key=lambda at: at[2])
        offset[:, row], factor[:, row] = line[0], line[1]
        share[row] = line[2] / low.shape[1] * hat.size
    return Readings(Span(*factor), Span(*offset), share)


def _with_offset(
    offset: Doubles, a: Doubles, b: Doubles, g: Doubles, hat: Doubles
) -> tuple[Doubles, Doubles, float]:
    """Return (offset, factor, share of the elements that agree) of one row, given its offset.

    An offset that may be 0 is 0: half of its stretch would otherwise go to the factor.
    """
    at = 0.0 if offset[0] <= 0 <= offset[1] else float(offset.mean())
    some = hat != 0
    factor = np.ones(2)
    if some.any():
        ends = _divided((a - at * g)[some], (b - at * g)[some], (g * hat)[some])
        factor = np.array(most_covered(*ends))
    value = g * (factor.mean() * hat + at)
    slack = 1e-9 * (np.abs(value) + np.abs(b - a))
    agree = (value >= a - slack) & (value <= b + slack)
    return offset, factor, float(agree.mean())


def _divided(low: Doubles, high: Doubles, by: Doubles) -> tuple[Doubles, Doubles]:
    first, second = low / by, high / by
    return np.minimum(first, second), np.maximum(first, second)
