"""A job's seeds by cell, grouped by the database: a cell is a (seed, repeat) or some neighbors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.results.model import BLOCK, WHOLE, JobBlockRow, ResultRow
from gonogo_service.results.seed_order import SeedOrder
from gonogo_service.results.seeds import SEED

MAX_ROWS = 32 * BLOCK
"""Rows that are read: in a job with more seeds, or without rows, the blocks are the cells."""


@dataclass
class Cell:
    """Neighbors in the order of seeds: the places from `start` to before `end`."""

    start: int
    end: int
    done: int = 0
    verdict: Verdict | None = None
    """The worst; None while none has finished."""
    first: int = 0
    """The place of the first (seed, repeat) with this verdict."""


@dataclass(frozen=True)
class Grid:
    """The cells of a job in order; `length` counts all its (seed, repeat)."""

    order: SeedOrder
    length: int
    width: int
    cells: tuple[Cell, ...]


def read(session: Session, job: JobRow, most: int) -> Grid:
    """Return a job's grid of at most `most` cells; of sequential seeds, up to its last result."""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    if job.done > MAX_ROWS or job.seeds_removed_at is not None:
        return _by_blocks(session, job, order)
    length = len(order)
    if job.sequential is not None:
        last = session.scalar(select(func.max(ResultRow.seed)).where(ResultRow.job_id == job.id))
        place = None if last is None else order.place(last, order.repeats - 1)
        length = max(1, 0 if place is None else place + 1)
    width = _width(length, most)
    starts = range(0, length, width)
    cells = [Cell(start, min(start + width, length)) for start in starts]
    placed = _grouped if _is_range(order) else _placed
    for place, verdict, number in placed(session, job.id, order, width):
        _count(cells[min(place // width, len(cells) - 1)], place, verdict, number)
    return Grid(order, length, width, tuple(cells))


def _width(length: int, most: int) -> int:
    """Return the number of (seed, repeat) per cell: 1, or a round number."""
    steps: Iterator[int] = (size * 10**power for power in range(9) for size in (1, 2, 5))
    return next(step for step in steps if length <= step * most)


def _is_range(order: SeedOrder) -> bool:
    """Return whether a place follows from its seed by arithmetic: all seeds are consecutive."""
    after = order.seeds[-1] + 1 if len(order.seeds) else 0
    is_range = isinstance(order.seeds, range) and order.seeds.step == 1
    return is_range and list(order.added) == list(range(after, after + len(order.added)))


def _grouped(
    session: Session, job_id: str, order: SeedOrder, width: int
) -> Iterable[tuple[int, str, int]]:
    """Yield (first place, verdict, number) by cell and verdict."""
    table = ResultRow
    place = (table.seed - order.seeds[0]) * order.repeats + table.repeat
    by = place // width, table.seed_verdict
    query = select(func.min(place), table.seed_verdict, func.count())
    return session.execute(query.where(table.job_id == job_id, SEED).group_by(*by)).all()


def _placed(
    session: Session, job_id: str, order: SeedOrder, width: int
) -> Iterable[tuple[int, str, int]]:
    table = ResultRow
    query = select(table.seed, table.repeat, table.seed_verdict)
    for seed, repeat, verdict in session.execute(query.where(table.job_id == job_id, SEED)):
        if (place := order.place(seed, repeat)) is not None:
            yield place, verdict, 1


def _by_blocks(session: Session, job: JobRow, order: SeedOrder) -> Grid:
    """Return the grid whose cells are blocks of seeds; added seeds are in the last."""
    table, repeats = JobBlockRow, order.repeats
    first = func.min(table.seed * repeats + table.repeat)
    query = select(table.block, table.verdict, func.sum(table.n), first)
    query = query.where(table.job_id == job.id, table.output == WHOLE)
    rows = session.execute(query.group_by(table.block, table.verdict).order_by(table.block)).all()
    blocks = _blocks(order)
    bounds = [bisect_left(order.seeds, block * BLOCK) * repeats for block in blocks]
    length = len(order)
    cells = [Cell(start, end) for start, end in zip(bounds, [*bounds[1:], length], strict=True)]
    number = {block: place for place, block in enumerate(blocks)}
    for block, verdict, count, pair in rows:
        place = order.place(*divmod(int(pair), repeats))
        if place is not None:
            _count(cells[number.get(block, len(cells) - 1)], place, verdict, int(count))
    return Grid(order, length, BLOCK * repeats, tuple(cells))


def _blocks(order: SeedOrder) -> list[int]:
    if isinstance(order.seeds, range):
        return list(range(order.seeds[0] // BLOCK, order.seeds[-1] // BLOCK + 1))
    return sorted({seed // BLOCK for seed in order.seeds})


def _count(cell: Cell, place: int, verdict: str, number: int) -> None:
    cell.done += number
    worst = Verdict(verdict)
    if cell.verdict is None or worst.rank < cell.verdict.rank:
        cell.verdict, cell.first = worst, place
    elif worst is cell.verdict:
        cell.first = min(cell.first, place)
