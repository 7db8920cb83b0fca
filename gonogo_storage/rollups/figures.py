"""Maxima and means over seeds, as a tally stores them.

A mean has the exact sum of its values, so that neither the order nor the grouping of adding
matters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_BITS, _HUGE = 300, 1e200
"""Sums are in units of 2^-300. Larger values would overflow when they are scaled."""


def figure(figures: Mapping[str, Any], name: str) -> float | None:
    """Return a maximum or a mean; None if no seed has the number."""
    value = figures.get(name)
    return _units(value) / (value[2] << _BITS) if isinstance(value, Sequence) else value


def mean(values: Sequence[float]) -> list[Any]:
    """Return the entry of a mean of finite values: `figure` returns it."""
    units = (
        int(math.ldexp(value, _BITS)) if abs(value) < _HUGE else int(value) << _BITS
        for value in values
    )
    return _entry(sum(units), len(values))


def total_figures(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of all parts together."""
    figures: dict[str, Any] = {}
    for name, value in (item for part in parts for item in part.items()):
        known = figures.get(name)
        if known is None:
            figures[name] = value
        elif isinstance(value, Sequence):
            figures[name] = _entry(_units(known) + _units(value), known[2] + value[2])
        else:
            figures[name] = max(known, value)
    return dict(sorted(figures.items()))


def _entry(units: int, number: int) -> list[Any]:
    """Return [hexadecimal digits, bits to shift them by, number of values]."""
    shift = (units & -units).bit_length() - 1 if units else 0
    return [f"{units >> shift:x}", shift, number]


def _units(entry: Sequence[Any]) -> int:
    return int(entry[0], 16) << int(entry[1])
