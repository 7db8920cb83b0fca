"""Why jobs wait for their queues, and when they have waited too long."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from gonogo_service.jobs import closing, events, queue_estimate
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.jobs.queue_estimate import OPEN, STARTED
from gonogo_service.kit.database.states import AttemptState, ChunkState, JobState

NAMED = 3
"""Maximum number of jobs that are named as those that another waits behind."""


def unexplained(session: Session, served: Collection[str]) -> list[str]:
    """Return the jobs whose `waiting_reason` is missing or no longer true."""
    waits = _waits(served)
    unexplained_wait = waits & JobRow.waiting_reason.is_(None)
    resolved_wait = JobRow.waiting_reason.is_not(None) & ~waits
    query = select(JobRow.id).where(
        JobRow.state.in_(closing.LIVE), unexplained_wait | resolved_wait
    )
    return list(session.scalars(query.order_by(JobRow.id)))


def _waits(served: Collection[str]) -> ColumnElement[bool]:
    """Return the condition of a job with a chunk whose queue no worker serves.

    A chunk's queue is its job's, except for builds that were passed to a gauge.
    """
    return JobRow.id.in_(select(OPEN.job_id).where(*_unserved(served)))


def _unserved(served: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return OPEN.state.in_((ChunkState.waiting, ChunkState.sent)), OPEN.queue.not_in(served)


def explain(session: Session, served: Collection[str], *, now: datetime) -> list[str]:
    """Set `waiting_reason` where no live worker serves a job's queue, and clear it elsewhere.

    Returns the jobs that changed.
    """
    changed = unexplained(session, served)
    for job_id in changed:
        job = closing.lock(session, job_id)
        if job is None or job.state not in closing.LIVE:
            continue
        first = select(OPEN.queue).where(OPEN.job_id == job_id, *_unserved(served))
        queue = session.scalar(first.order_by(OPEN.number).limit(1))
        job.waiting_reason = queue and queue_estimate.unserved_words(queue)
        data = StateChange(job.state, waiting_reason=job.waiting_reason)
        events.add(session, job, data, now=now)
    session.flush()
    return changed


def unserved(session: Session, job: JobRow, *, timeout_s: float, now: datetime) -> str | None:
    """Return in words that a job waits and no live worker serves its queue; None otherwise.

    The background stores it as the waiting reason, but later, and not while it is down.
    """
    waits = job.state is JobState.queued or (not job.state.final and job.waiting_reason is not None)
    return (
        queue_estimate.unserved(session, job.queue, timeout_s=timeout_s, now=now) if waits else None
    )


def waiting_reason(session: Session, job: JobRow, *, timeout_s: float, now: datetime) -> str | None:
    """Return in words why a job waits: nobody serves its queue, or what is there before it."""
    reason = unserved(session, job, timeout_s=timeout_s, now=now)
    if reason is None and job.waiting_reason != queue_estimate.unserved_words(job.queue):
        reason = job.waiting_reason  # about the queue of a build that was passed to a gauge
    return reason or behind(session, job)


def behind(session: Session, job: JobRow) -> str | None:
    """Return in words what runs on the queue of a job that no worker has started yet.

    None: it has started, or nothing else is in its queue.
    """
    if job.state is not JobState.queued:
        return None
    begun = (AttemptRow.id == OPEN.attempt_id) & OPEN.state.in_(STARTED)
    comes_first = (OPEN.job_id < job.id) | OPEN.state.in_((*STARTED, ChunkState.sent))
    running = func.count(AttemptRow.started_at)
    query = (
        select(JobRow, func.sum(OPEN.chunks), running, func.min(AttemptRow.started_at))
        .join(OPEN.job_id.table, OPEN.job_id == JobRow.id)
        .outerjoin(AttemptRow, begun)
        .where(OPEN.queue == job.queue, OPEN.job_id != job.id, comes_first)
        .group_by(JobRow.id)
        .order_by(running.desc(), JobRow.id)
    )
    rows = session.execute(query.limit(NAMED + 1)).all()
    parts = []
    for other, chunks, started, since in rows[:NAMED]:
        what = f"{kind_of(other).noun} {other.id} ({other.kernel} on {other.build})"
        at_work = f", {started} of them running since {since:%H:%M:%S} UTC" if started else ""
        parts.append(f"{chunks} chunk{'s' * (chunks != 1)} of {what}{at_work}")
    if not parts:
        return None
    more = "; and others" if len(rows) > NAMED else ""
    return f"in its queue, {job.queue}, are {'; '.join(parts)}{more}"


def expired(session: Session, served: Collection[str], *, now: datetime) -> list[str]:
    """Return jobs past their queue deadline.

    These never started, or stopped half way: no live worker is left and no attempt of theirs runs.
    """
    runs = exists().where(
        AttemptRow.job_id == JobRow.id,
        AttemptRow.state.in_((AttemptState.running, AttemptState.reported)),
    )
    stranded = (JobRow.state == JobState.running) & _waits(served) & ~runs
    query = select(JobRow.id).where(
        JobRow.state.in_(closing.LIVE),
        JobRow.deadline_at < now,
        (JobRow.state == JobState.queued) | stranded,
    )
    return list(session.scalars(query.order_by(JobRow.id)))


def expire(session: Session, job_id: str, *, now: datetime) -> bool:
    """Fail a job whose queue deadline passed: the machines are the cause, not the kernel."""
    job = closing.lock(session, job_id)
    if job is None or job.state not in closing.LIVE:
        return False
    seconds = (job.deadline_at - job.created_at).total_seconds()
    problem = (
        "no worker started it"
        if job.state == JobState.queued
        else "no worker was left to finish it"
    )
    closing.fail(
        session,
        job,
        f"{problem} within its queue deadline of {seconds:g} s (queue {job.queue})",
        now=now,
    )
    return True


def overdue_cancels(session: Session, *, before: datetime) -> list[str]:
    """Return the jobs whose workers were asked to stop before a moment and haven't yet.

    Someone canceled the job, or its seeds decided.
    """
    asked_to_stop = exists().where(
        ChunkRow.job_id == JobRow.id, ChunkRow.state == ChunkState.stopping
    )
    stopping = (JobRow.state == JobState.cancelling) | (
        (JobRow.state == JobState.running) & asked_to_stop
    )
    return list(session.scalars(select(JobRow.id).where(stopping, JobRow.cancel_at < before)))


def close_unresponsive(session: Session, job_id: str, *, now: datetime) -> bool:
    """Close the chunks of workers that were asked to stop and don't answer."""
    job = closing.lock(session, job_id)
    if job is None or job.state not in (JobState.running, JobState.cancelling):
        return False
    closing.close_unresponsive_chunks(session, job, now=now)
    return True
