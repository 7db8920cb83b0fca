"""The spread of the errors of many seeds, where there are too many for a mark each."""

from __future__ import annotations

import math

from gonogo_service.results.worst import Spread


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
