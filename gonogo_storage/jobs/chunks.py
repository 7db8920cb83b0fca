"""Chunks: a job cut into pieces of about 20 s.

They wait here until the dispatcher chooses them by fair share, priority and age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from gonogo.spec.executors import EXECUTORS
from gonogo_storage.db.ids import new_id
from gonogo_storage.db.states import AttemptState, ChunkState, JobState
from gonogo_storage.jobs import closing
from gonogo_storage.jobs.chunking import MAX_WORK as MAX_WORK
from gonogo_storage.jobs.chunking import add as add
from gonogo_storage.jobs.chunking import cut as cut
from gonogo_storage.jobs.chunking import grow as grow
from gonogo_storage.jobs.hang_limits import measured_seed_s
from gonogo_storage.jobs.job import BACKGROUND_PRIORITY
from gonogo_storage.seeds import results
from gonogo_storage.tables import AttemptRow, ChunkRow, JobRow

REFERENCE_BYTES = 2**29  # a reference build's outputs that one attempt keeps in a worker's memory
# per element of the shape: y or dx in fp32, and the same again for a downstream output
OUTPUT_BYTES = 8
ACTIVE = (JobState.queued, JobState.running)

UNKNOWN_SEED_S = (
    0.01,
    1.4e-7,
)  # a plug-in's seconds per seed, and per element, before its first job


def estimate_seed_s(session: Session, workload_key: str, executor: str, elements: int) -> float:
    """Estimate the seconds that one seed takes.

    Returns the mean of the workload's last job on this executor; without one, a guess from the
    size.
    """
    measured = measured_seed_s(session, workload_key, executor)
    if measured is not None:
        return measured
    row = EXECUTORS.get(executor)
    fixed, per_element = UNKNOWN_SEED_S if row is None else (row.seed_s, row.element_s)
    return fixed + per_element * elements


def max_seeds(elements: int, reference: str | None) -> int:
    """Return how many seeds of a shape a chunk may have.

    With a reference build it is limited, because a worker keeps that build's outputs of all of
    them.
    """
    return MAX_WORK if reference is None else max(1, REFERENCE_BYTES // (OUTPUT_BYTES * elements))


def free() -> ColumnElement[bool]:
    """Select the chunks that may be dispatched.

    Of sequential seeds these are only the ones that the next decision can need.
    """
    return or_(JobRow.reach.is_(None), ChunkRow.number <= JobRow.reach)


def waiting(session: Session) -> Counter[str]:
    """Count the chunks of live jobs that wait for each queue."""
    query = (
        select(ChunkRow.queue, func.count())
        .join(JobRow, ChunkRow.job_id == JobRow.id)
        .where(ChunkRow.state == ChunkState.waiting, JobRow.state.in_(ACTIVE), free())
        .group_by(ChunkRow.queue)
    )
    return Counter(dict(session.execute(query).all()))


def unstarted(session: Session) -> Counter[str]:
    """Count the attempts of each queue that no worker has started yet."""
    query = (
        select(AttemptRow.queue, func.count())
        .where(AttemptRow.state == AttemptState.sent)
        .group_by(AttemptRow.queue)
    )
    return Counter(dict(session.execute(query).all()))


def choose(session: Session, queue: str, count: int, background: int | None = None) -> list[str]:
    """Choose the next chunks of a queue by fair share.

    Each owner's chunks are ordered by priority, then age. The owner with the fewest attempts in
    flight comes first. Chunks of a background priority (gauges and bisections have one) come after
    everyone's others, and at most `background` of them are chosen: what a worker has been sent
    can't be overtaken.
    """
    best = func.row_number().over(
        partition_by=JobRow.owner,
        order_by=(JobRow.priority.desc(), ChunkRow.job_id, ChunkRow.number),
    )
    ranked = (
        select(
            ChunkRow.id,
            ChunkRow.job_id,
            ChunkRow.number,
            JobRow.owner,
            JobRow.priority,
            best.label("rank"),
        )
        .join(JobRow, ChunkRow.job_id == JobRow.id)
        .where(
            ChunkRow.state == ChunkState.waiting,
            ChunkRow.queue == queue,
            JobRow.state.in_(ACTIVE),
            free(),
        )
        .subquery()
    )
    in_flight_query = (
        select(JobRow.owner, func.count())
        .select_from(AttemptRow)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .where(
            AttemptRow.state.in_((AttemptState.sent, AttemptState.running)),
            AttemptRow.queue == queue,
        )
        .group_by(JobRow.owner)
    )
    in_flight = dict(session.execute(in_flight_query).all())
    rows = list(session.execute(select(ranked).where(ranked.c.rank <= count)))
    rows.sort(
        key=lambda row: (
            row.priority <= BACKGROUND_PRIORITY,
            in_flight.get(row.owner, 0) + row.rank,
            -row.priority,
            row.job_id,
            row.number,
        )
    )
    foreground = sum(row.priority > BACKGROUND_PRIORITY for row in rows)
    most = count if background is None else min(count, foreground + background)
    return [row.id for row in rows[:most]]


def dispatch(session: Session, chunk_ids: Sequence[str], *, now: datetime) -> list[str]:
    """Give each chosen chunk an attempt for its missing results; return the attempts' ids.

    `attempts.unpublished` then returns these attempts. A chunk that is no longer waiting, or whose
    job was canceled meanwhile, is skipped. One whose results have all arrived late is closed.
    """
    attempt_ids: list[str] = []
    chunk_jobs = (
        select(ChunkRow.id, ChunkRow.job_id)
        .where(ChunkRow.id.in_(chunk_ids))
        .order_by(ChunkRow.job_id, ChunkRow.number)
    )
    for chunk_id, job_id in session.execute(chunk_jobs).all():
        job = closing.lock(session, job_id)
        chunk = session.get_one(ChunkRow, chunk_id, populate_existing=True)
        if job is None or job.state not in ACTIVE or chunk.state != ChunkState.waiting:
            continue
        stored = (
            results.present(session, job_id, chunk.work)
            if chunk.attempts or chunk.returns
            else set()
        )
        missing = [pair for pair in chunk.work if (pair[0], pair[1]) not in stored]
        if not missing:
            closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
            continue
        chunk.attempts += 1
        attempt = AttemptRow(
            id=new_id(),
            chunk_id=chunk.id,
            job_id=job_id,
            number=chunk.attempts + chunk.returns,
            state=AttemptState.sent,
            queue=chunk.queue,
            work=missing,
            batches={},
            created_at=now,
        )
        session.add(attempt)
        chunk.state, chunk.attempt_id = ChunkState.sent, attempt.id
        session.flush()
        attempt_ids.append(attempt.id)
    return attempt_ids
