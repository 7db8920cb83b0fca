"""The small charts beside a number: bars in a row, drawn by the macro `spark`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEIGHT, STEP = 24.0, 5.0
"""A chart's height, and the width of a bar with its gap."""
_LEAST = 2.0
"""The smallest height of a bar that isn't 0."""


@dataclass(frozen=True)
class Bar:
    """A bar: its place from the top, its height, its words."""

    x: float
    y: float
    height: float
    words: str
    event: bool = False
    """Whether something changed there that can explain a step, as `words` says."""


def bars(points: Sequence[tuple[float, str, bool]]) -> tuple[Bar, ...]:
    """Return the bars of (value, words, whether something changed), the largest of full height."""
    most = max((value for value, _, _ in points), default=0.0) or 1.0
    heights = [max(round(HEIGHT * value / most, 1), _LEAST * (value > 0)) for value, _, _ in points]
    return tuple(
        Bar(place * STEP, round(HEIGHT - height, 1), height, words, event)
        for place, (height, (_, words, event)) in enumerate(zip(heights, points, strict=True))
    )
