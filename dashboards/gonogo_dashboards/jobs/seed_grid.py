"""The seeds of a job as a dense grid that fills in, with at most 5,000 cells.

A cell shows one (seed, repeat), or several neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec.verdicts import WORST_FIRST
from gonogo_dashboards.kit import words
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import grid as reads
from gonogo_service.results.grid import Cell, Grid

MAX_CELLS = 5_000
MAX_ROWS = 50
"""Lines of the table of cells that are not green."""
LETTERS = dict(zip(map(str, WORST_FIRST), "echftrsoukap", strict=True))
"""The letter of each verdict in `cells`."""
NONE_YET = "."


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


def read(session: Session, job: JobRow, noun: str) -> GridView:
    """Return the grid of a job."""
    return view(job, reads.read(session, job, MAX_CELLS), noun)


def view(job: JobRow, grid: Grid, noun: str) -> GridView:
    """Return the grid from its cells."""
    order, cells = grid.order, grid.cells
    single = grid.width == 1
    shown = {str(cell.verdict) for cell in cells if cell.verdict is not None}
    consecutive = single and order.repeats == 1 and isinstance(order.seeds, range)
    consecutive = consecutive and grid.length <= len(order.seeds)
    return GridView(
        noun=noun,
        total=grid.length,
        finished=job.done,
        width=grid.width,
        repeats=order.repeats,
        cells="".join(LETTERS[str(c.verdict)] if c.verdict else NONE_YET for c in cells),
        seeds=() if consecutive else tuple(order.at(cell.start)[0] for cell in cells),
        start=order.at(0)[0],
        worst=() if single else tuple(order.at(c.first if c.verdict else c.start) for c in cells),
        verdicts={LETTERS[str(name)]: str(name) for name in WORST_FIRST if str(name) in shown},
        waiting="never ran" if job.state.final else "queued",
        summary=_summary(job, grid, noun),
        table=tuple(_table(grid)),
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


def _table(grid: Grid) -> list[GridCell]:
    """Return the cells that are not green, worst first."""
    fine = WORST_FIRST[-1]
    bad = [cell for cell in grid.cells if cell.verdict is not None and cell.verdict is not fine]
    bad.sort(key=lambda cell: (cell.verdict.rank if cell.verdict else 0, cell.start))
    return [_line(grid, cell) for cell in bad[:MAX_ROWS]]


def _line(grid: Grid, cell: Cell) -> GridCell:
    order = grid.order
    first, last = order.at(cell.start)[0], order.at(max(cell.start, cell.end - 1))[0]
    size = max(cell.done, cell.end - cell.start)
    return GridCell(first, last, cell.done, size, str(cell.verdict), *order.at(cell.first))


def _summary(job: JobRow, grid: Grid, noun: str) -> str:
    """Return the grid in words, for readers who don't see it."""
    if not job.done:
        not_yet = f"No {noun} has finished yet. A mark fills in for each that does."
        return f"No {noun} ever ran." if job.state.final else not_yet
    counts = ", ".join(
        f"{job.counts[name]:,} {words.inline(words.mark(str(name)).label)}"
        for name in WORST_FIRST
        if job.counts.get(name)
    )
    missing = max(0, grid.length - job.done)
    of = f"{job.done:,} of " if missing else ""
    text = f"{of}{words.count(grid.length, noun)}: {counts}."
    if missing:
        text += f" {missing:,} {'never ran' if job.state.final else 'unfinished'}."
    if grid.width > 1:
        text += f" Each mark shows the worst of {grid.width:,} consecutive {noun}s."
    return text
