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
    total: Counter[str] = Counter()
    drawn = []
    for place, (day, counts) in enumerate(counted):
        order = {verdict: counts[verdict] for verdict in words.ordered(counts) if counts[verdict]}
        total.update(order)
        text = f"{day:%d %b}: {_seeds(order) or 'no seeds'}"
        pieces = _pieces(order, most, (place + _GAP / 2) * step, (1 - _GAP) * step)
        drawn.append(Day(day.isoformat(), sum(order.values()), order, text, pieces))
    verdicts, seeds = words.ordered(total), total.total()
    active, period = sum(day.seeds > 0 for day in drawn), words.count(len(drawn), "day")
    summary = f"{words.count(seeds, 'seed')} in the last {period}, on {active} of them"
    if seeds:
        busiest = max(drawn, key=lambda day: day.seeds)
        summary += f"; most on {busiest.day}, {busiest.seeds:,}. "
        summary += _seeds({verdict: total[verdict] for verdict in verdicts})
    return Days(tuple(drawn), tuple(verdicts), seeds, most, summary + ".")


def _seeds(counts: Mapping[str, int]) -> str:
    """Return seeds by verdict: "4 hollow pass, 1 fail"."""
    labels = {verdict: words.inline(words.mark(verdict).label) for verdict in counts}
    return ", ".join(f"{number:,} {labels[verdict]}" for verdict, number in counts.items())


def _pieces(counts: Mapping[str, int], most: int, x: float, width: float) -> tuple[Piece, ...]:
    """Return the pieces of a day from the bottom up, the worst verdict lowest.

    A piece too small to see takes a little from the largest.
    """
    heights = {name: max(MIN_HEIGHT, HEIGHT * number / most) for name, number in counts.items()}
    if heights:
        largest = max(heights, key=lambda verdict: heights[verdict])
        beyond = max(0.0, sum(heights.values()) - HEIGHT)
        heights[largest] = max(MIN_HEIGHT, heights[largest] - beyond)
    pieces, y = [], HEIGHT
    for verdict, height in heights.items():
        y -= height
        box = (round(edge, 2) for edge in (x, max(y, 0.0), width, height))
        pieces.append(Piece(verdict, *box))
    return tuple(pieces)
