"""How far the errors of many seeds spread, where there are too many for a mark each: from the
sketches of the roll-ups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gonogo.flakiness.sketches import Sketch


@dataclass(frozen=True)
class Spread:
    """Least value, the 10th, 50th and 90th percentile (within 2%), largest value; None without any
    finite value.
    """

    low: float | None
    most_from: float | None
    middle: float | None
    most_to: float | None
    high: float | None
    unnumbered: int
    """Seeds without a finite value."""


def of(sketch: Sketch) -> Spread:
    """The spread of a sketch's values."""
    seen = sketch.count - sketch.inf
    low, most_from, middle, most_to = (
        finite(sketch.quantile(share)) if seen else None for share in (0.0, 0.1, 0.5, 0.9)
    )
    return Spread(
        low, most_from, middle, most_to, sketch.largest, sketch.inf + sketch.nan + sketch.missing
    )


def finite(value: float | None) -> float | None:
    """The value, None in place of NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


def boxes(
    spread: Spread, left: float, right: float, floor: float
) -> tuple[list[list[float]], list[list[float]]]:
    """How it is drawn from `left` to `right` on a log axis that begins at `floor`: a box [left,
    right, low, high, opacity] of all and a darker one from the 10th to the 90th percentile, and the
    dash [left, right, at] of the median. Nothing where no value is above 0.
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
