"""Float edges: comparisons of order whose sides are measured numbers, and are never equal.

There `<` and `<=` do the same, and no test can tell them apart but by making up two equal floats.
Such a mutant is counted apart. The rule looks at what a comparison sees while all tests run on the
right code:

- both sides are floats, or arrays of them;
- no two numbers that are compared are equal;
- neither side is always 0 or infinite: that is a guard, whose edge is a case of its own;
- one side takes a value that is no ratio of small whole numbers: a share of counts may be equal to
  its limit, a rounding error is not.

A comparison that no test reaches, or only in another process, is no float edge.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np

Place = tuple[str, int, int]
"""A file, and the first byte of a comparison and the one after its last."""
EXACT, MEASURED, LEFT, RIGHT = 1, 2, 4, 8
"""Marks of a comparison: an edge that tests may reach; a measured number; a number on either side
that is neither 0 nor infinite."""
LARGEST_DENOMINATOR = 1000
"""Ratios of counts have smaller ones."""
LOOKED_AT = 64
"""Numbers of an array that are looked at for a measured one."""


class SeenComparisons:
    """The marks of comparisons, by their place."""

    def __init__(self) -> None:
        self.seen: dict[Place, int] = defaultdict(int)

    def compare(self, file: str, start: int, end: int, name: str, left: Any, right: Any) -> Any:
        """Compare as `name` of the module `operator` does, and note what is compared."""
        place = (file, start, end)
        if not self.seen[place] & EXACT:
            self.seen[place] |= _kind(left, right)
        return getattr(operator, name)(left, right)


def float_edges(seen: dict[Place, int]) -> set[Place]:
    """Return the places of the float edges among what was seen in all tests."""
    return {place for place, kinds in seen.items() if kinds == MEASURED | LEFT | RIGHT}


def _kind(left: object, right: object) -> int:
    if not (_is_float(left) and _is_float(right)):
        return EXACT
    one, other = np.broadcast_arrays(np.asarray(left), np.asarray(right))
    if (one == other).any():
        return EXACT
    kinds = MEASURED if _is_measured(one) or _is_measured(other) else 0
    return kinds | LEFT * _is_usual(one) | RIGHT * _is_usual(other)


def _is_float(side: object) -> bool:
    return isinstance(side, float) or (
        isinstance(side, np.ndarray | np.generic) and np.issubdtype(side.dtype, np.floating)
    )


def _is_usual(numbers: np.ndarray[Any, Any]) -> bool:
    return bool((np.isfinite(numbers) & (numbers != 0)).any())


def _is_measured(numbers: np.ndarray[Any, Any]) -> bool:
    if numbers.dtype != np.float64:  # the ratios lie too close to each other to be told apart
        return False
    finite = numbers[np.isfinite(numbers)].ravel()[:LOOKED_AT].tolist()
    return any(not _is_ratio(number) for number in finite)


def _is_ratio(number: float) -> bool:
    near = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    return abs(number - near) <= 1e-12 * abs(number)
