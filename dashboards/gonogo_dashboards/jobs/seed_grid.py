"""The seeds of a job as a dense grid that fills in, with at most 5,000 cells.

A cell shows one (seed, repeat), or several neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec.verdicts import WORST_FIRST
from gonogo_dashboards.kit import words
from gonogo_service.jobs.job import Job
from gonogo_service.results import seed_grids
from gonogo_service.results.seed_order import SeedOrder

MAX_CELLS = 5_000
MAX_ROWS = 50
"""Lines of the table of cells that are not green."""
_VERDICTS = {letter: str(verdict) for verdict, letter in seed_grids.LETTERS.items()}
_WORST_FIRST = "".join(seed_grids.LETTERS[verdict] for verdict in WORST_FIRST)


@dataclass(frozen=True)
class GridCell:
    """A cell in the table below the grid.

    It has its seeds, the number of those that finished, the worst verdict, and the first seed with
    this verdict.
    """

    first: int
    last: int
    finished: int
    of: int
    verdict: str
    seed: int
    repeat: int


@dataclass(frozen=True)
class GridView:
    """The grid; `cells` has the letter of each cell's worst verdict, as in `verdicts`, in order.

    "." marks a cell in which nothing has finished.
    """

    noun: str
    total: int
    finished: int
    width: int
    """Number of (seed, repeat) in a cell."""
    repeats: int
    cells: str
    seeds: tuple[int, ...]
    """The first seed of each cell; empty where they are `start`, `start` + 1, ..."""
    start: int
    worst: tuple[tuple[int, int], ...]
    """The first (seed, repeat) of each cell that has its verdict; empty for cells of one."""
    verdicts: dict[str, str]
    """Letter -> verdict, worst first."""
    waiting: str
    """The state of a cell in which nothing has finished: queued, or never ran."""
    summary: str
    table: tuple[GridCell, ...]


def read(session: Session, job: Job, noun: str) -> GridView:
    """Return the grid of a job."""
    return view(job, seed_grids.read(session, job), noun)


def view(job: Job, letters: str, noun: str) -> GridView:
    """Return the grid from the stored letters."""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    length = len(letters) if job.sequential is not None else max(len(letters), len(order))
    length = min(max(length, 1), len(order))
    width = _width(length)
    line = letters.ljust(length, seed_grids.NONE_YET)
    cells, places = (line, ()) if width == 1 else _worst_of_each(line, width)
    firsts = _firsts(order, length, width)
    worst = tuple(_at(order, places))
    finished = len(letters) - letters.count(seed_grids.NONE_YET)
    waiting = _waiting(job)
    return GridView(
        noun=noun,
        total=length,
        finished=finished,
        width=width,
        repeats=order.repeats,
        cells=cells,
        seeds=firsts,
        start=order.at(0)[0],
        worst=worst,
        verdicts={
            letter: _VERDICTS[letter]
            for letter in sorted(set(cells) - {seed_grids.NONE_YET}, key=_WORST_FIRST.index)
        },
        waiting=waiting,
        summary=_summary(job, letters, length, width, finished, noun),
        table=tuple(_table(order, line, cells, width)),
    )


def drawn(grid: GridView, page: str, chosen: tuple[int, int] | None) -> dict[str, Any]:
    """Return the data from which web/src/grid.js draws the grid.

    page: the address to add a seed to; chosen: the seed that is shown.
    """
    marks = {
        letter: (verdict, words.mark(verdict).label, words.mark(verdict).path)
        for letter, verdict in grid.verdicts.items()
    }
    names = ("noun", "cells", "width", "repeats", "seeds", "start", "worst", "waiting")
    return {
        **{name: getattr(grid, name) for name in names},
        "marks": marks,
        "page": page,
        "chosen": chosen,
    }


def _width(length: int) -> int:
    """Return the number of (seed, repeat) per cell: 1, or a round number."""
    steps: Iterator[int] = (size * 10**power for power in range(9) for size in (1, 2, 5))
    return next(step for step in steps if length <= step * MAX_CELLS)


@lru_cache(maxsize=16)  # a page is read repeatedly, and most letters stay
def _worst_of_each(line: str, width: int) -> tuple[str, tuple[int, ...]]:
    """Return the worst letter of each `width` neighbors, and the first place that has it."""
    count = -(-len(line) // width)
    cells, places = [""] * count, [0] * count
    for letter in _WORST_FIRST + seed_grids.NONE_YET:
        place = line.find(letter)
        while place >= 0:  # from cell to cell, because str.find is fast
            cell = place // width
            if not cells[cell]:
                cells[cell], places[cell] = letter, place
            place = line.find(letter, (cell + 1) * width)
    return "".join(cells), tuple(places)


def _firsts(order: SeedOrder, length: int, width: int) -> tuple[int, ...]:
    """Return the first seed of each cell; none where the cells are consecutive seeds."""
    if (
        width == 1
        and order.repeats == 1
        and isinstance(order.seeds, range)
        and length <= len(order.seeds)
    ):
        return ()
    return tuple(seed for seed, _ in _at(order, range(0, length, width)))


def _at(order: SeedOrder, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the (seed, repeat) of each place; nearly every large job takes the first branch."""
    if order.repeats == 1 and not order.added:
        return ((order.seeds[place], 0) for place in places)
    return map(order.at, places)


def _waiting(job: Job) -> str:
    return "never ran" if job.state.final else "queued"


def _table(order: SeedOrder, line: str, cells: str, width: int) -> list[GridCell]:
    """Return the cells that are not green, worst first."""
    fine = _WORST_FIRST[-1] + seed_grids.NONE_YET
    bad = (
        number
        for letter in _WORST_FIRST
        if letter not in fine
        for number, cell in enumerate(cells)
        if cell == letter
    )
    lines = []
    for number in islice(bad, MAX_ROWS):
        start, end = number * width, min((number + 1) * width, len(line))
        seed, repeat = order.at(line.index(cells[number], start))
        finished = end - start - line.count(seed_grids.NONE_YET, start, end)
        lines.append(
            GridCell(
                order.at(start)[0],
                order.at(end - 1)[0],
                finished,
                end - start,
                _VERDICTS[cells[number]],
                seed,
                repeat,
            )
        )
    return lines


def _summary(job: Job, letters: str, length: int, width: int, finished: int, noun: str) -> str:
    """Return the grid in words, for readers who don't see it."""
    if not finished:
        if job.state.final:
            return f"No {noun} ever ran."
        return f"No {noun} has finished yet. A mark fills in for each that does."
    counts = {letter: letters.count(letter) for letter in _WORST_FIRST}
    counts_text = ", ".join(
        f"{counts[letter]:,} {words.inline(words.mark(_VERDICTS[letter]).label)}"
        for letter in _WORST_FIRST
        if counts[letter]
    )
    missing = length - finished
    text = (
        f"{words.count(length, noun)}: {counts_text}."
        if not missing
        else f"{finished:,} of {words.count(length, noun)}: {counts_text}."
    )
    if missing:
        text += f" {missing:,} never ran." if job.state.final else f" {missing:,} unfinished."
    if width > 1:
        text += f" Each mark shows the worst of {width} consecutive {noun}s."
    return text
