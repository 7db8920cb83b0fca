"""The seeds of a job as a dense grid that fills in: a cell for each (seed, repeat), or for several
neighbours, at most 5,000 cells.
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
from gonogo_storage.jobs import seed_grids
from gonogo_storage.jobs.job import Job
from gonogo_storage.seeds.seed_order import SeedOrder

MAX_CELLS = 5_000
MAX_ROWS = 50
"""Lines of the table of cells that are not green."""
_VERDICTS = {letter: str(verdict) for verdict, letter in seed_grids.LETTERS.items()}
_WORST_FIRST = "".join(seed_grids.LETTERS[verdict] for verdict in WORST_FIRST)


@dataclass(frozen=True)
class GridCell:
    """A cell in the table below the grid: which seeds, how many have come, the worst verdict and
    the first seed that has it.
    """

    first: int
    last: int
    come: int
    of: int
    verdict: str
    seed: int
    repeat: int


@dataclass(frozen=True)
class GridView:
    """`cells` has a letter for each cell in order, its worst verdict as in `verdicts`, "." where
    nothing has come.
    """

    noun: str
    total: int
    come: int
    width: int
    """(seed, repeat) in a cell."""
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
    """What a cell is in which nothing has come: it waits, or never ran."""
    summary: str
    table: tuple[GridCell, ...]


def read(session: Session, job: Job, noun: str) -> GridView:
    """The grid of a job."""
    return view(job, seed_grids.read(session, job), noun)


def view(job: Job, letters: str, noun: str) -> GridView:
    """From the letters that are stored."""
    order = SeedOrder.of(job.request, job.suspects)
    length = len(letters) if job.sequential is not None else max(len(letters), len(order))
    length = min(max(length, 1), len(order))
    width = _width(length)
    line = letters.ljust(length, seed_grids.NONE_YET)
    cells, places = (line, ()) if width == 1 else _worst_of_each(line, width)
    firsts = _firsts(order, length, width)
    worst = tuple(_at(order, places))
    come = len(letters) - letters.count(seed_grids.NONE_YET)
    waiting = _waiting(job)
    return GridView(
        noun=noun,
        total=length,
        come=come,
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
        summary=_summary(job, letters, length, width, come, noun),
        table=tuple(_table(order, line, cells, width)),
    )


def drawn(grid: GridView, page: str, chosen: tuple[int, int] | None) -> dict[str, Any]:
    """What the browser draws the grid from (web/src/grid.js). page: the address to add a seed to;
    chosen: the one shown.
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
    """How many (seed, repeat) share a cell: 1, or a round number."""
    steps: Iterator[int] = (size * 10**power for power in range(9) for size in (1, 2, 5))
    return next(step for step in steps if length <= step * MAX_CELLS)


@lru_cache(maxsize=16)  # a page is read again and again, and most of its letters, if not all, stay
def _worst_of_each(line: str, width: int) -> tuple[str, tuple[int, ...]]:
    """The worst letter of each `width` neighbours, and the first place that has it."""
    count = -(-len(line) // width)
    cells, places = [""] * count, [0] * count
    for letter in _WORST_FIRST + seed_grids.NONE_YET:
        place = line.find(letter)
        while place >= 0:  # from cell to cell: every letter is looked at by the string's own search
            cell = place // width
            if not cells[cell]:
                cells[cell], places[cell] = letter, place
            place = line.find(letter, (cell + 1) * width)
    return "".join(cells), tuple(places)


def _firsts(order: SeedOrder, length: int, width: int) -> tuple[int, ...]:
    """The first seed of each cell; none where the cells are the seeds from the first on."""
    if (
        width == 1
        and order.repeats == 1
        and isinstance(order.seeds, range)
        and length <= len(order.seeds)
    ):
        return ()
    return tuple(seed for seed, _ in _at(order, range(0, length, width)))


def _at(order: SeedOrder, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The (seed, repeat) of each place; nearly every large job is the plain case."""
    if order.repeats == 1 and not order.added:
        return ((order.seeds[place], 0) for place in places)
    return map(order.at, places)


def _waiting(job: Job) -> str:
    return "never ran" if job.state.final else "waits"


def _table(order: SeedOrder, line: str, cells: str, width: int) -> list[GridCell]:
    """The cells that are not green, worst first."""
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
        come = end - start - line.count(seed_grids.NONE_YET, start, end)
        lines.append(
            GridCell(
                order.at(start)[0],
                order.at(end - 1)[0],
                come,
                end - start,
                _VERDICTS[cells[number]],
                seed,
                repeat,
            )
        )
    return lines


def _summary(job: Job, letters: str, length: int, width: int, come: int, noun: str) -> str:
    """The grid in words, for readers who don't see it."""
    if not come:
        if job.state.final:
            return f"No {noun} ever ran."
        return f"No {noun} has come back yet: a mark fills in as each one does."
    counts = {letter: letters.count(letter) for letter in _WORST_FIRST}
    told = ", ".join(
        f"{counts[letter]:,} {words.mark(_VERDICTS[letter]).label}"
        for letter in _WORST_FIRST
        if counts[letter]
    )
    missing = length - come
    text = (
        f"{words.count(length, noun)}: {told}."
        if not missing
        else f"{come:,} of {words.count(length, noun)}: {told}."
    )
    if missing:
        text += f" {missing:,} never ran." if job.state.final else f" {missing:,} still to come."
    if width > 1:
        text += f" Each mark is {width} {noun}s in a row and shows the worst of them."
    return text
