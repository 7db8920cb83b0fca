"""Maxima and means over seeds, as a tally stores them.

A mean has the exact sum of its values, so that neither the order nor the grouping of adding
matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BITS = 300
"""Sums are in units of 2^-300."""


def figure(figures: Mapping[str, Any], name: str) -> float | None:
    """Return a maximum or a mean; None if no seed has the number."""
    value = figures.get(name)
    return _units(value) / (value[2] << _BITS) if isinstance(value, Sequence) else value


def mean(values: NDArray[np.float64]) -> list[Any]:
    """Return the entry of a mean of finite values: `figure` returns it."""
    # Imported here because it loads NumPy, which pages don't need.
    import numpy as np

    # A value is `digits` times 2^(exponent-53). Digits of one exponent are added in two halves, so
    # that the sums of 2^36 values are exact.
    fractions, exponents = np.frexp(values)
    digits = np.ldexp(fractions, 53).astype(np.int64)
    units = 0
    for exponent in np.unique(exponents).tolist():
        alike = digits[exponents == exponent]
        shift = exponent - 53 + _BITS
        if shift >= 0:
            total = (int((alike >> 26).sum()) << 26) + int((alike & 0x3FFFFFF).sum())
            units += total << shift
        else:  # fractions of a unit are dropped, of each value
            units += sum(-(-n >> -shift) if n < 0 else n >> -shift for n in alike.tolist())
    return _entry(units, len(values))


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
