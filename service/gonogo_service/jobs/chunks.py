"""Chunks: a job cut into pieces of about 20 s.

They wait here until the dispatcher chooses them by fair share, priority and age. A chunk that was
never sent is no row yet (gonogo_service/jobs/work.py).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.spec.executors import EXECUTORS
from gonogo_service.jobs import closing, work
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY, NewJob
from gonogo_service.jobs.queue_estimate import OPEN
from gonogo_service.jobs.work import MAX_WORK, Cut, Work
from gonogo_service.kit.database.states import AttemptState, ChunkState
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.tests.variants import OVER

REFERENCE_BYTES = 2**29  # a reference build's outputs that one attempt keeps in a worker's memory
# per element of the shape: y or dx in fp32, and the same again for a downstream output
OUTPUT_BYTES = 8
# a plug-in's seconds per seed, and per element, before its first job
UNKNOWN_SEED_S = (0.01, 1.4e-7)
Place = tuple[str, int]
"""A chunk's job and number: most chunks that wait are no rows."""


def measured_seed_s(session: Session, workload_key: str, executor: str) -> float | None:
    """Return the mean seconds per seed of a workload's last job on an executor, if there is one."""
    table = JobBlockRow
    timed = table.job_id == JobRow.id, table.output == WHOLE, table.timed > 0
    mean_ms = select(func.sum(table.timed_ms) / func.sum(table.timed)).where(*timed)
    query = select(mean_ms.correlate(JobRow).scalar_subquery()).where(
        JobRow.workload_key == workload_key,
        JobRow.executor == executor,
        OVER,
        select(table.job_id).where(*timed).correlate(JobRow).exists(),
    )
    mean = session.scalar(query.order_by(JobRow.id.desc()).limit(1))
    return max(float(mean) / 1000, 1e-4) if mean else None


def estimate_seed_s(session: Session, workload_key: str, executor: str, elements: int) -> float:
    """Return the measured seconds of a seed; without any, a guess from the size."""
    row = EXECUTORS.get(executor)
    fixed, per_element = UNKNOWN_SEED_S if row is None else (row.seed_s, row.element_s)
    measured = measured_seed_s(session, workload_key, executor)
    return fixed + per_element * elements if measured is None else measured


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
    candidates = _waiting(session, queue, count)
    ranked: list[tuple[int, Any]] = []
    for chunk in candidates:
        ranks[chunk.owner] += 1
        ranked.append((ranks[chunk.owner], chunk))
    ranked.sort(  # stable: among equal ranks by priority, then age
        key=lambda item: (item[1].priority <= BACKGROUND_PRIORITY, item[0])
    )
    foreground = sum(chunk.priority > BACKGROUND_PRIORITY for chunk in candidates)
    most = count if background is None else min(count, foreground + background)
    return [chunk.place for _, chunk in ranked[:most]]


class _Candidate(NamedTuple):
    place: Place
    owner: str
    priority: int


def _waiting(session: Session, queue: str, count: int) -> list[_Candidate]:
    """Return the first `count` chunks of each owner that may be sent, by priority, then age.

    They are rows whose attempts were lost, and those of a range from its cursor on.
    """
    age = OPEN.job_id, OPEN.number
    order = JobRow.priority.desc(), *age
    rank = func.row_number().over(partition_by=JobRow.owner, order_by=order).label("rank")
    columns = *age, OPEN.ready, JobRow.owner, JobRow.priority, rank
    waits = OPEN.queue == queue, OPEN.state == ChunkState.waiting, OPEN.ready > 0
    ranked = (
        select(*columns)
        .join(JobRow, OPEN.job_id == JobRow.id)
        .where(*waits, JobRow.state.in_(closing.LIVE))
        .subquery()
    )
    first = select(ranked).where(ranked.c.rank <= count)
    return [
        _Candidate((job_id, number), owner, priority)
        for job_id, cursor, ready, owner, priority, _ in session.execute(
            first.order_by(ranked.c.priority.desc(), ranked.c.job_id, ranked.c.number)
        )
        for number in range(cursor, cursor + min(ready, count))
    ]
