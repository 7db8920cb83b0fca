"""Ranges: the chunks of a job that aren't rows yet, as one row with a cursor.

A chunk becomes a row when it is sent. So a job of a million seeds is one row until it runs. Every
function that writes runs under the job's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo_service.jobs.chunking import Cut, Work
from gonogo_service.jobs.model import ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import ChunkState

OPEN: ColumnElement[bool] = ChunkRangeRow.chunks_cut < ChunkRangeRow.until
"""The ranges with chunks that are still to be made; an index finds them."""
UNMADE: ColumnElement[int] = ChunkRangeRow.until - ChunkRangeRow.chunks_cut
"""The chunks of a range that are still to be made."""
READY: ColumnElement[int] = ChunkRangeRow.released - ChunkRangeRow.chunks_cut
"""The chunks of a range that may be sent.

Of sequential seeds these are only the ones that the next decision can need.
"""
READY_S: ColumnElement[float] = ChunkRangeRow.pair_s * (
    ChunkRangeRow.released_pairs - ChunkRangeRow.position
)
"""The estimated time of the chunks that may be sent."""


def add(
    session: Session,
    job: JobRow,
    work: Work,
    cut: Cut,
    *,
    queue: str,
    pair_s: float,
    sequential: bool = False,
) -> None:
    """Add work to a job, and count its chunks; `release` lets those of sequential seeds be sent."""
    session.add(
        ChunkRangeRow(
            job_id=job.id,
            first=job.chunk_count,
            queue=queue,
            seeds=compact(work.seeds),
            members=list(work.members),
            pairs=cut.pairs,
            pair_s=pair_s,
            growth=cut.growth,
            chunks=cut.chunks,
            until=cut.chunks,
            chunks_cut=0,
            position=0,
            released=0 if sequential else cut.chunks,
            released_pairs=0 if sequential else cut.pairs,
        )
    )
    job.chunk_count += cut.chunks
    job.open_chunks += cut.chunks
    session.flush()


def compact(seeds: Sequence[int]) -> dict[str, int] | list[int]:
    """Return seeds as they are stored: consecutive ones as a range."""
    if isinstance(seeds, range):
        return {"start": seeds.start, "count": len(seeds)}
    return list(seeds)


def expand(seeds: Mapping[str, Any] | Sequence[int]) -> Sequence[int]:
    """Return stored or requested seeds: a list, a `start` and `count`, or a `start` and `max`."""
    if not isinstance(seeds, Mapping):
        return seeds
    start = int(seeds.get("start", 0))
    return range(start, start + int(seeds.get("count", seeds.get("max", 1))))


def cut(session: Session, job_id: str, number: int | None = None) -> ChunkRow | None:
    """Make the next chunk of a job that may be sent; None when there is none.

    number: only if it is the next of its range, else None.
    """
    for row in _open(session, job_id):
        if row.chunks_cut < row.released and number in (None, row.first + row.chunks_cut):
            return _cut(session, row)
    return None


def _cut(session: Session, row: ChunkRangeRow) -> ChunkRow:
    work = Work(expand(row.seeds), row.members)
    end = _cut_of(row).end(row.chunks_cut, row.position)
    chunk = ChunkRow(
        id=new_id(),
        job_id=row.job_id,
        number=row.first + row.chunks_cut,
        state=ChunkState.waiting,
        queue=row.queue,
        work=work.part(row.position, end),
        estimate_s=row.pair_s * (end - row.position),
        attempts=0,
        returns=0,
    )
    session.add(chunk)
    row.chunks_cut, row.position = row.chunks_cut + 1, end
    session.flush()
    return chunk


def release(session: Session, job_id: str, seeds: int) -> None:
    """Let the chunks of a job's first seeds be sent, up to the chunk with the last of them."""
    for row in _open(session, job_id):
        cut_of_row = _cut_of(row)
        while row.released < row.until and row.released_pairs < seeds * len(row.members):
            row.released_pairs = cut_of_row.end(row.released, row.released_pairs)
            row.released += 1


def close(session: Session, job: JobRow, *, after_seed: int = -1) -> None:
    """Drop the chunks of a job that aren't rows yet, and count them as closed.

    after_seed: only those whose first seed is larger; the seeds then ascend.
    """
    for row in _open(session, job.id):
        number, place = row.chunks_cut, row.position
        seeds, cut_of_row = expand(row.seeds), _cut_of(row)
        while (
            after_seed >= 0
            and number < row.until
            and seeds[place // len(row.members)] <= after_seed
        ):
            place = cut_of_row.end(number, place)
            number += 1
        job.open_chunks -= row.until - number
        row.until = number
        if row.released > number:
            row.released, row.released_pairs = number, place
    session.flush()


def ready(session: Session) -> dict[str, int]:
    """Return the number of chunks of each queue that may be sent and aren't rows yet."""
    query = select(ChunkRangeRow.queue, func.sum(READY)).where(OPEN)
    return {
        queue: int(count)
        for queue, count in session.execute(query.group_by(ChunkRangeRow.queue))
        if count
    }


def _open(session: Session, job_id: str) -> list[ChunkRangeRow]:
    query = select(ChunkRangeRow).where(ChunkRangeRow.job_id == job_id, OPEN)
    ordered = query.order_by(ChunkRangeRow.first).execution_options(populate_existing=True)
    return list(session.scalars(ordered))


def _cut_of(row: ChunkRangeRow) -> Cut:
    return Cut(row.pairs, len(row.members), row.chunks, row.growth)
