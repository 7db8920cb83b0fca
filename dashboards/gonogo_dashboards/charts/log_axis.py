"""The ends of a logarithmic axis that fits its data: 1, 2 or 5 times a power of ten."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

_ROOM = 1.2
"""The free part beyond the outermost values, so that marks and labels are whole."""
_LEAST = 8.0
"""The smallest ratio of the ends: equal values don't look far apart."""
_FARTHEST = 1e-100
"""No value is farther out, nor beyond its inverse: the top of the rail is a finite number."""
_RAIL = 0.14
"""The part of the axis above the numbers, for marks without a finite one."""
_ENDS = [float(f"{step}e{power}") for power in range(-103, 104) for step in (1, 2, 5)]


@dataclass(frozen=True)
class LogAxis:
    """The ends of the numbers, and the top of the rail above them."""

    low: float
    high: float
    off: float

    @property
    def rail(self) -> float:
        """Return the height of the marks on the rail."""
        return math.sqrt(self.high * self.off)


def fitted(values: Iterable[float], room: float = _ROOM) -> LogAxis:
    """Return the axis of these values; those that are not positive have no place on it.

    room: the factor by which it reaches beyond them.
    """
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    known = [min(max(value, _FARTHEST), 1 / _FARTHEST) for value in positive] or [1.0]
    below, above = bisect_right(_ENDS, min(known) / room) - 1, bisect_left(_ENDS, max(known) * room)
    while _ENDS[above] / _ENDS[below] < _LEAST * (1 - 1e-9):
        below, above = below - 1, above + 1
    low, high = _ENDS[below], _ENDS[above]
    return LogAxis(low, high, high * (high / low) ** (_RAIL / (1 - _RAIL)))
