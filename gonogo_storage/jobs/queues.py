"""Queues seen from the jobs that wait for them: why a job waits, and when it has waited too
long.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session

from gonogo_storage.db.states import AttemptState, ChunkState, JobState
from gonogo_storage.jobs import closing
from gonogo_storage.messages import events
from gonogo_storage.tables import AttemptRow, ChunkRow, JobRow

_LIVE = (JobState.queued, JobState.running)


def unexplained(session: Session, served: Collection[str]) -> list[str]:
    """Jobs whose `waiting_reason` is missing or no longer true."""
    waits = exists().where(*_stuck(served), ChunkRow.job_id == JobRow.id)
    stuck = waits & JobRow.waiting_reason.is_(None)
    freed = JobRow.waiting_reason.is_not(None) & ~waits
    return list(
        session.scalars(
            select(JobRow.id).where(JobRow.state.in_(_LIVE), stuck | freed).order_by(JobRow.id)
        )
    )


def _stuck(served: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    """Of a chunk: no worker serves its queue, which is its job's but for the builds that a gauge
    was given.
    """
    return ChunkRow.state.in_((ChunkState.waiting, ChunkState.sent)), ChunkRow.queue.not_in(served)


def explain(session: Session, served: Collection[str], *, now: datetime) -> list[str]:
    """Give every job whose queue no live worker serves its `waiting_reason`, take it from the
    others; the jobs that changed.
    """
    found = unexplained(session, served)
    for job_id in found:
        job = closing.lock(session, job_id)
        if job is None or job.state not in _LIVE:
            continue
        first = (
            select(ChunkRow.queue)
            .where(*_stuck(served), ChunkRow.job_id == job_id)
            .order_by(ChunkRow.number)
            .limit(1)
        )
        queue = session.scalar(first)
        job.waiting_reason = None if queue is None else f"no live worker serves the queue {queue}"
        data = {"state": job.state, "verdict": None, "waiting_reason": job.waiting_reason}
        events.add(session, job, "state", data, now=now)
    session.flush()
    return found


def expired(session: Session, served: Collection[str], *, now: datetime) -> list[str]:
    """Jobs past their queue deadline: never started, or stopped half way because no live worker is
    left and none of their attempts runs.
    """
    runs = exists().where(
        AttemptRow.job_id == JobRow.id,
        AttemptRow.state.in_((AttemptState.running, AttemptState.reported)),
    )
    waits = exists().where(*_stuck(served), ChunkRow.job_id == JobRow.id)
    deserted = (JobRow.state == JobState.running) & waits & ~runs
    query = select(JobRow.id).where(
        JobRow.state.in_(_LIVE),
        JobRow.deadline_at < now,
        (JobRow.state == JobState.queued) | deserted,
    )
    return list(session.scalars(query.order_by(JobRow.id)))


def expire(session: Session, job_id: str, *, now: datetime) -> bool:
    """Fail a job whose queue deadline passed: a matter of the machines, not of the kernel."""
    job = closing.lock(session, job_id)
    if job is None or job.state not in _LIVE:
        return False
    seconds = (job.deadline_at - job.created_at).total_seconds()
    what = (
        "no worker started it"
        if job.state == JobState.queued
        else "no worker was left to finish it"
    )
    closing.fail(
        session,
        job,
        f"{what} within its queue deadline of {seconds:g} s (queue {job.queue})",
        now=now,
    )
    return True


def overdue_cancels(session: Session, *, before: datetime) -> list[str]:
    """Jobs whose workers were told to stop before a moment (someone cancelled, or the seeds
    decided), and haven't yet.
    """
    told = exists().where(ChunkRow.job_id == JobRow.id, ChunkRow.state == ChunkState.stopping)
    stopping = (JobRow.state == JobState.cancelling) | ((JobRow.state == JobState.running) & told)
    return list(session.scalars(select(JobRow.id).where(stopping, JobRow.cancel_at < before)))


def abandon(session: Session, job_id: str, *, now: datetime) -> bool:
    """Don't wait any longer for workers that were told to stop."""
    job = closing.lock(session, job_id)
    if job is None or job.state not in (JobState.running, JobState.cancelling):
        return False
    closing.abandon(session, job, now=now)
    return True
