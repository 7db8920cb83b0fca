"""Seeds and verdicts a day as small stacked bars: where each piece lies in a box of 1000 x 100, and
the same in words. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gonogo_dashboards.kit import words

WIDTH, HEIGHT = 1000.0, 100.0
LEAST = 3.0
"""A piece is drawn at least so tall: one hollow pass among ten thousand must be seen."""
_GAP = 0.22
"""Of a day's width that is left free."""


@dataclass(frozen=True)
class Piece:
    """A rectangle: the seeds of one verdict on one day."""

    verdict: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Day:
    """One UTC day: its seeds by verdict, worst first, in numbers, words and rectangles."""

    day: str
    seeds: int
    counts: Mapping[str, int]
    words: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Days:
    """Days in order, today last."""

    days: tuple[Day, ...]
    verdicts: tuple[str, ...]
    """All that occur, worst first: the columns of the table."""
    seeds: int
    most: int
    """Of one day."""
    words: str


def days(counted: Sequence[tuple[date, Mapping[str, int]]]) -> Days:
    """The picture of some days' seeds."""
    most = max((sum(counts.values()) for _, counts in counted), default=0)
    step = WIDTH / max(len(counted), 1)
    found = []
    for place, (day, counts) in enumerate(counted):
        order = [verdict for verdict in words.ordered(counts) if counts[verdict]]
        told = ", ".join(f"{counts[verdict]:,} {words.mark(verdict).label}" for verdict in order)
        pieces = _pieces(order, counts, most, (place + _GAP / 2) * step, (1 - _GAP) * step)
        kept = {verdict: counts[verdict] for verdict in order}
        found.append(
            Day(
                day.isoformat(),
                sum(kept.values()),
                kept,
                f"{day:%d %b}: {told or 'no seeds'}",
                pieces,
            )
        )
    total: Counter[str] = Counter()
    for each in found:
        total.update(each.counts)
    order = words.ordered(total)
    seeds = sum(total.values())
    active = sum(each.seeds > 0 for each in found)
    said = f"{words.count(seeds, 'seed')} in the last {words.count(len(found), 'day')}, on {active} of them"
    if seeds:
        busiest = max(found, key=lambda each: each.seeds)
        said += f"; most on {busiest.day}, {busiest.seeds:,}. " + ", ".join(
            f"{total[each]:,} {words.mark(each).label}" for each in order
        )
    return Days(tuple(found), tuple(order), seeds, most, said + ".")


def _pieces(
    order: Sequence[str], counts: Mapping[str, int], most: int, x: float, width: float
) -> tuple[Piece, ...]:
    """From the ground up, the worst lowest; what is too small to be seen takes a little from the
    largest.
    """
    heights = {verdict: max(LEAST, HEIGHT * counts[verdict] / most) for verdict in order}
    if heights:
        largest = max(heights, key=lambda verdict: heights[verdict])
        heights[largest] = max(LEAST, heights[largest] - max(0.0, sum(heights.values()) - HEIGHT))
    found, y = [], HEIGHT
    for verdict in order:
        y -= heights[verdict]
        found.append(
            Piece(
                verdict,
                round(x, 2),
                round(max(y, 0.0), 2),
                round(width, 2),
                round(heights[verdict], 2),
            )
        )
    return tuple(found)
