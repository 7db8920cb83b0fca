"""The ends of a logarithmic axis that fits its data: 1, 2 or 5 times a power of ten."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)
_ROOM = 1.2
"""The free part beyond the outermost values, so that marks and labels are whole."""
_LEAST = 8.0
"""The smallest ratio of the ends: equal values don't look far apart."""
_FARTHEST = 1e-100
"""No axis goes beyond it, nor beyond its inverse: the top of the rail is a finite number."""
_RAIL = 0.14
"""The part of the axis above the numbers, for marks without a finite one."""


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
    low, high = _below(min(known) / room), _above(max(known) * room)
    while high / low < _LEAST * (1 - 1e-9):
        low, high = _below(low * 0.99), _above(high * 1.01)
    return LogAxis(low, high, high * (high / low) ** (_RAIL / (1 - _RAIL)))


def _below(value: float) -> float:
    power = math.floor(math.log10(value))
    return max(
        edge for step in _STEPS if (edge := _edge(step, power)) <= value or step == _STEPS[0]
    )


def _above(value: float) -> float:
    power = math.floor(math.log10(value))
    return min(
        edge for step in _STEPS if (edge := _edge(step, power)) >= value or step == _STEPS[-1]
    )


def _edge(step: float, power: int) -> float:
    """Return a rounded end, such as 2e-05 without the noise of a product."""
    return float(f"{step:g}e{power}")
