"""Chunks: a job cut into pieces of about 20 s.

They wait here until the dispatcher chooses them by fair share, priority and age. A chunk that was
never sent is no row yet (gonogo_service/jobs/work.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from gonogo.spec.executors import EXECUTORS
from gonogo_service.jobs import closing, work
from gonogo_service.jobs.hang_limits import measured_seed_s
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY, NewJob
from gonogo_service.jobs.queue_estimate import OPEN
from gonogo_service.jobs.work import MAX_WORK, Cut, Work
from gonogo_service.kit.database.states import AttemptState, ChunkState

REFERENCE_BYTES = 2**29  # a reference build's outputs that one attempt keeps in a worker's memory
# per element of the shape: y or dx in fp32, and the same again for a downstream output
OUTPUT_BYTES = 8
# a plug-in's seconds per seed, and per element, before its first job
UNKNOWN_SEED_S = (0.01, 1.4e-7)
Place = tuple[str, int]
"""A chunk's job and number: most chunks that wait are no rows."""


def estimate_seed_s(session: Session, workload_key: str, executor: str, elements: int) -> float:
    """Estimate the seconds of a seed: the mean of the workload's last job on this executor.

    Without one, a guess from the size.
    """
    measured = measured_seed_s(session, workload_key, executor)
    if measured is not None:
        return measured
    row = EXECUTORS.get(executor)
    fixed, per_element = UNKNOWN_SEED_S if row is None else (row.seed_s, row.element_s)
    return fixed + per_element * elements


def max_seeds(elements: int, reference: str | None) -> int:
    """Return how many seeds of a shape a chunk may have.

    A worker keeps a reference build's outputs of all of them.
    """
    return MAX_WORK if reference is None else max(1, REFERENCE_BYTES // (OUTPUT_BYTES * elements))


def cut(new: NewJob, seed_s: float) -> tuple[Work, Cut]:
    """Return a new job's work, and how it is cut into chunks."""
    whole = Work(new.seeds, range(new.repeats))
    if new.stop_on_finding is not None:
        return whole, work.growing(whole, seed_s, new.chunk_seconds)
    most = max_seeds(new.elements, new.reference)
    return whole, work.equal(whole, seed_s, new.chunk_seconds, most=most)


def waiting(session: Session) -> Counter[str]:
    """Count the chunks of live jobs that wait for each queue and may be sent."""
    query = (
        select(OPEN.queue, func.sum(OPEN.ready))
        .join(JobRow, OPEN.job_id == JobRow.id)
        .where(OPEN.state == ChunkState.waiting, JobRow.state.in_(closing.LIVE))
        .group_by(OPEN.queue)
    )
    return Counter({queue: int(count) for queue, count in session.execute(query) if count})


def unstarted(session: Session) -> Counter[str]:
    """Count the attempts of each queue that no worker has started yet."""
    sent = select(AttemptRow.queue, func.count()).where(AttemptRow.state == AttemptState.sent)
    return Counter(dict(session.execute(sent.group_by(AttemptRow.queue)).all()))


@dataclass(frozen=True)
class _Candidate:
    job_id: str
    number: int
    owner: str
    priority: int


def choose(session: Session, queue: str, count: int, background: int | None = None) -> list[Place]:
    """Choose the next chunks of a queue by fair share.

    Each owner's chunks are ordered by priority, then age. The owner with the fewest attempts in
    flight comes first. Chunks of a background priority (gauges and bisections have one) come after
    everyone's others, and at most `background` of them are chosen: what a worker has been sent
    can't be overtaken.
    """
    in_flight = (
        select(JobRow.owner, func.count())
        .select_from(AttemptRow)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .where(
            AttemptRow.state.in_((AttemptState.sent, AttemptState.running)),
            AttemptRow.queue == queue,
        )
        .group_by(JobRow.owner)
    )
    ranks: Counter[str] = Counter(dict(session.execute(in_flight).all()))
    candidates = sorted(
        (*_stored(session, queue, count), *_unmade(session, queue, count)),
        key=lambda chunk: (-chunk.priority, chunk.job_id, chunk.number),
    )
    ranked: list[tuple[int, _Candidate]] = []
    for chunk in candidates:
        ranks[chunk.owner] += 1
        ranked.append((ranks[chunk.owner], chunk))
    ranked.sort(  # stable: among equal ranks by priority, then age
        key=lambda item: (item[1].priority <= BACKGROUND_PRIORITY, item[0])
    )
    foreground = sum(chunk.priority > BACKGROUND_PRIORITY for chunk in candidates)
    most = count if background is None else min(count, foreground + background)
    return [(chunk.job_id, chunk.number) for _, chunk in ranked[:most]]


def _first_of_each_owner(
    session: Session, query: Select[*tuple[Any, ...]], job_id: Any, number: Any, count: int
) -> Iterator[Any]:
    """Yield the first `count` results of each owner, by priority, then age."""
    rank = func.row_number().over(
        partition_by=JobRow.owner, order_by=(JobRow.priority.desc(), job_id, number)
    )
    ranked = (
        query.add_columns(JobRow.owner, JobRow.priority, rank.label("rank"))
        .join(JobRow, job_id == JobRow.id)
        .where(JobRow.state.in_(closing.LIVE))
        .subquery()
    )
    yield from session.execute(select(ranked).where(ranked.c.rank <= count))


def _stored(session: Session, queue: str, count: int) -> Iterator[_Candidate]:
    """Yield each owner's first chunks that are rows and wait: their attempts were lost."""
    table = ChunkRow
    waits = select(table.job_id, table.number).where(
        table.state == ChunkState.waiting, table.queue == queue
    )
    for row in _first_of_each_owner(session, waits, table.job_id, table.number, count):
        yield _Candidate(row.job_id, row.number, row.owner, row.priority)


def _unmade(session: Session, queue: str, count: int) -> Iterator[_Candidate]:
    """Yield each owner's first chunks that are no rows yet; each range has at least one."""
    table = ChunkRangeRow
    waits = select(
        table.job_id,
        (table.first + table.chunks_cut).label("next"),
        work.READY.label("ready"),
    ).where(work.OPEN, work.READY > 0, table.queue == queue)
    for row in _first_of_each_owner(session, waits, table.job_id, table.first, count):
        for number in range(row.next, row.next + min(row.ready, count)):
            yield _Candidate(row.job_id, number, row.owner, row.priority)
