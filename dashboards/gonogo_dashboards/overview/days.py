"""Seeds and verdicts per day as small stacked bars in a box of 1000 x 100, and in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gonogo_dashboards.kit import words

WIDTH, HEIGHT = 1000.0, 100.0
MIN_HEIGHT = 3.0
"""The smallest height of a piece: one hollow pass among ten thousand must be visible."""
_GAP = 0.22
"""The free part of a day's width."""


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
    """All verdicts that occur, worst first: the columns of the table."""
    seeds: int
    most: int
    """The most seeds of one day."""
    words: str


def days(counted: Sequence[tuple[date, Mapping[str, int]]]) -> Days:
    """Return the chart of some days' seeds."""
    most = max((sum(counts.values()) for _, counts in counted), default=0)
    step = WIDTH / max(len(counted), 1)
    drawn = []
    for place, (day, counts) in enumerate(counted):
        order = [verdict for verdict in words.ordered(counts) if counts[verdict]]
        seeds_words = ", ".join(
            f"{counts[verdict]:,} {words.inline(words.mark(verdict).label)}" for verdict in order
        )
        pieces = _pieces(order, counts, most, (place + _GAP / 2) * step, (1 - _GAP) * step)
        day_counts = {verdict: counts[verdict] for verdict in order}
        drawn.append(
            Day(
                day.isoformat(),
                sum(day_counts.values()),
                day_counts,
                f"{day:%d %b}: {seeds_words or 'no seeds'}",
                pieces,
            )
        )
    total: Counter[str] = Counter()
    for bar in drawn:
        total.update(bar.counts)
    order = words.ordered(total)
    seeds = sum(total.values())
    active = sum(day.seeds > 0 for day in drawn)
    period = words.count(len(drawn), "day")
    summary = f"{words.count(seeds, 'seed')} in the last {period}, on {active} of them"
    if seeds:
        busiest_day = max(drawn, key=lambda day: day.seeds)
        summary += f"; most on {busiest_day.day}, {busiest_day.seeds:,}. " + ", ".join(
            f"{total[verdict]:,} {words.inline(words.mark(verdict).label)}" for verdict in order
        )
    return Days(tuple(drawn), tuple(order), seeds, most, summary + ".")


def _pieces(
    order: Sequence[str], counts: Mapping[str, int], most: int, x: float, width: float
) -> tuple[Piece, ...]:
    """Return the pieces of a day from the bottom up, the worst verdict lowest.

    A piece too small to see takes a little from the largest.
    """
    heights = {verdict: max(MIN_HEIGHT, HEIGHT * counts[verdict] / most) for verdict in order}
    if heights:
        largest = max(heights, key=lambda verdict: heights[verdict])
        heights[largest] = max(
            MIN_HEIGHT, heights[largest] - max(0.0, sum(heights.values()) - HEIGHT)
        )
    pieces, y = [], HEIGHT
    for verdict in order:
        y -= heights[verdict]
        pieces.append(
            Piece(
                verdict,
                round(x, 2),
                round(max(y, 0.0), 2),
                round(width, 2),
                round(heights[verdict], 2),
            )
        )
    return tuple(pieces)
