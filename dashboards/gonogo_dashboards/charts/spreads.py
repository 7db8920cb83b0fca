"""The spread of the errors of many seeds, from the sketches of the roll-ups.

It is used where there are too many seeds for a mark each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gonogo.flakiness.sketches import Sketch


@dataclass(frozen=True)
class Spread:
    """Minimum, the 10th, 50th and 90th percentile (within 2%), and maximum.

    None without any finite value.
    """

    low: float | None
    most_from: float | None
    middle: float | None
    most_to: float | None
    high: float | None
    unnumbered: int
    """Seeds without a finite value."""


def of(sketch: Sketch) -> Spread:
    """Return the spread of a sketch's values."""
    seen = sketch.count - sketch.inf
    low, most_from, middle, most_to = (
        finite(sketch.quantile(share)) if seen else None for share in (0.0, 0.1, 0.5, 0.9)
    )
    return Spread(
        low, most_from, middle, most_to, sketch.largest, sketch.inf + sketch.nan + sketch.missing
    )


def finite(value: float | None) -> float | None:
    """Return the value, or None instead of NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


def boxes(
    spread: Spread, left: float, right: float, floor: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Return the boxes and the median of a spread, from `left` to `right` on a log axis.

    The axis begins at `floor`. A box is [left, right, low, high, opacity]: one of all values, and a
    darker one from the 10th to the 90th percentile. The median is [left, right, at]. Nothing is
    returned where no value is above 0.
    """
    if not spread.high:
        return [], []
    ranges = [[left, right, max(floor, spread.low or floor), spread.high, 0.4]]
    if not (spread.most_to and spread.middle):
        return ranges, []
    ranges.append(
        [left, right, max(floor, spread.most_from or floor), max(floor, spread.most_to), 0.5]
    )
    return ranges, [[left, right, max(floor, spread.middle)]]
