"""The work of a job: how it is cut into chunks of about 20 s, and the chunks that aren't rows yet.

A chunk becomes a row when it is sent: until then it is part of a range with a cursor. So a job of a
million seeds is one row until it runs. Every function that writes runs under the job's lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gonogo.flakiness import sequential
from gonogo_service.jobs.model import ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import ChunkState

MAX_WORK = 2000  # a message stays below some 64 KiB, and a lost attempt costs no more than this
# Sequential seeds begin with small chunks, so that stopping saves something: a logic bug shows in
# one seed, and the chunk that shows it runs to its end for its artifacts.
FIRST_SEEDS = 2
USUAL_SEEDS = 8  # a decision needs at least 49 seeds: about six starts of a child process
# Later chunks are a quarter of the seeds before them, so that stopping wastes at most a fifth.
LATER_SHARE = 4

OPEN: ColumnElement[bool] = ChunkRangeRow.chunks_cut < ChunkRangeRow.until
"""The ranges with chunks that are still to be made; an index finds them."""
UNMADE: ColumnElement[int] = ChunkRangeRow.until - ChunkRangeRow.chunks_cut
"""The chunks of a range that are still to be made."""
READY: ColumnElement[int] = ChunkRangeRow.released - ChunkRangeRow.chunks_cut
"""The chunks that may be sent: of sequential seeds only those that the next decision needs."""
READY_S: ColumnElement[float] = ChunkRangeRow.pair_s * (
    ChunkRangeRow.released_pairs - ChunkRangeRow.position
)
"""The estimated time of the chunks that may be sent."""


@dataclass(frozen=True)
class Work:
    """The pairs (seed, member) of a job: seed by seed, the members of a seed together.

    The members are the repeats of a seed, or the parts of a gauge.
    """

    seeds: Sequence[int]
    members: Sequence[int]

    def __len__(self) -> int:
        return len(self.seeds) * len(self.members)

    def part(self, low: int, high: int) -> list[list[int]]:
        """Return the pairs from place `low` up to `high`, reading only the seeds of this part."""
        return [
            [self.seeds[seed], self.members[member]]
            for seed, member in (divmod(place, len(self.members)) for place in range(low, high))
        ]


@dataclass(frozen=True)
class Cut:
    """How work is cut: in nearly equal chunks, or in growing ones of sequential seeds."""

    pairs: int
    members: int
    chunks: int
    growth: int | None = None
    """The most seeds of a growing chunk; None: nearly equal chunks."""

    def end(self, number: int, start: int) -> int:
        """Return the place after the last pair of chunk `number`, which begins at `start`."""
        if self.growth is None:
            return self.pairs * (number + 1) // self.chunks
        seeds = _growing(self.pairs // self.members, start // self.members, self.growth)
        return start + seeds * self.members

    def ends(self) -> Iterator[int]:
        """Yield the ends of all chunks."""
        end = 0
        for number in range(self.chunks):
            end = self.end(number, end)
            yield end


def equal(work: Work, pair_s: float, chunk_s: float, *, most: int = MAX_WORK) -> Cut:
    """Return the cut into chunks of nearly equal size, at most `most` pairs each."""
    size = min(MAX_WORK, most, max(1, int(chunk_s / pair_s)))
    return Cut(len(work), len(work.members), math.ceil(len(work) / size))


def growing(work: Work, pair_s: float, chunk_s: float) -> Cut:
    """Return the cut of sequential seeds into chunks of 2, 2, 4, 8, 8, ... whole seeds.

    Later ones have a quarter of the seeds before them. One ends where the earliest decision without
    a failure falls.
    """
    count = len(work.seeds)
    growth = max(1, min(MAX_WORK, int(chunk_s / pair_s)) // len(work.members))
    chunks = planned = 0
    while planned < count:
        planned += _growing(count, planned, growth)
        chunks += 1
    return Cut(len(work), len(work.members), chunks, growth)


def _growing(count: int, planned: int, most: int) -> int:
    """Return the seeds of the chunk after `planned` of `count` seeds."""
    earliest = _earliest(count)
    usual = max(FIRST_SEEDS, min(planned, max(USUAL_SEEDS, planned // LATER_SHARE)))
    size = min(most, usual, count - planned)
    return earliest - planned if planned < earliest < planned + size else size


@lru_cache(maxsize=64)
def _earliest(count: int) -> int:
    return sequential.Progress().decide(count).needed


def expand(seeds: Mapping[str, Any] | Sequence[int]) -> Sequence[int]:
    """Return stored or requested seeds: a list, a `start` and `count`, or a `start` and `max`."""
    if not isinstance(seeds, Mapping):
        return seeds
    start = int(seeds.get("start", 0))
    return range(start, start + int(seeds.get("count", seeds.get("max", 1))))


def compact(seeds: Sequence[int]) -> dict[str, int] | list[int]:
    """Return seeds as they are stored: consecutive ones as a range."""
    if isinstance(seeds, range):
        return {"start": seeds.start, "count": len(seeds)}
    return list(seeds)


def add(session: Session, job: JobRow, work: Work, cut: Cut, *, queue: str, pair_s: float) -> None:
    """Add work to a job, and count its chunks; `release` lets those of sequential seeds be sent."""
    is_sequential = cut.growth is not None
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
            released=0 if is_sequential else cut.chunks,
            released_pairs=0 if is_sequential else cut.pairs,
        )
    )
    job.total += len(work)
    job.chunk_count += cut.chunks
    job.open_chunks += cut.chunks
    session.flush()


def make_chunk(session: Session, job_id: str, number: int | None = None) -> ChunkRow | None:
    """Make the next chunk of a job that may be sent; None when there is none.

    number: only if it is the next of its range, else None.
    """
    for row in _open(session, job_id):
        if row.chunks_cut < row.released and number in (None, row.first + row.chunks_cut):
            end = _cut_of(row).end(row.chunks_cut, row.position)
            chunk = ChunkRow(
                id=new_id(),
                job_id=row.job_id,
                number=row.first + row.chunks_cut,
                state=ChunkState.waiting,
                queue=row.queue,
                work=Work(expand(row.seeds), row.members).part(row.position, end),
                estimate_s=row.pair_s * (end - row.position),
                attempts=0,
                returns=0,
            )
            session.add(chunk)
            row.chunks_cut, row.position = row.chunks_cut + 1, end
            session.flush()
            return chunk
    return None


def release(session: Session, job_id: str, seeds: int) -> None:
    """Let the chunks of a job's first seeds be sent, up to the chunk with the last of them."""
    for row in _open(session, job_id):
        cut = _cut_of(row)
        while row.released < row.until and row.released_pairs < seeds * len(row.members):
            row.released_pairs = cut.end(row.released, row.released_pairs)
            row.released += 1


def drop(session: Session, job: JobRow, *, after_seed: int = -1) -> None:
    """Drop the chunks of a job that aren't rows yet, and count them as closed.

    after_seed: only those whose first seed is larger; the seeds then ascend.
    """
    for row in _open(session, job.id):
        number, place = row.chunks_cut, row.position
        seeds, cut, members = expand(row.seeds), _cut_of(row), len(row.members)
        while after_seed >= 0 and number < row.until and seeds[place // members] <= after_seed:
            place = cut.end(number, place)
            number += 1
        job.open_chunks -= row.until - number
        row.until = number
        if row.released > number:
            row.released, row.released_pairs = number, place
    session.flush()


def _open(session: Session, job_id: str) -> list[ChunkRangeRow]:
    query = select(ChunkRangeRow).where(ChunkRangeRow.job_id == job_id, OPEN)
    ordered = query.order_by(ChunkRangeRow.first).execution_options(populate_existing=True)
    return list(session.scalars(ordered))


def _cut_of(row: ChunkRangeRow) -> Cut:
    return Cut(row.pairs, len(row.members), row.chunks, row.growth)
