"""Jobs as people see them: create, get, list, cancel, request again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, defer, joinedload, undefer

from gonogo_service.jobs import chunks, closing, events, sequential, work
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.model import ChunkRangeRow, JobLabelRow, JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.jobs.values import JobCommit, SeedProgress
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import LISTED_KINDS, JobState
from gonogo_service.tests import test_specs

WITHOUT_DETAILS = (
    joinedload(JobRow.spec),
    undefer(JobRow.diagnosis_words),
    defer(JobRow.diagnosis),
    defer(JobRow.suspects),
)
"""Leaves out what only the page of one job shows: a diagnosis is up to 20 KB."""


def create(session: Session, new: NewJob, *, now: datetime | None = None) -> JobRow:
    """Store the job and its work in the caller's transaction.

    Notify the dispatcher after the commit. Raises ValueError when there is no work, or a seed
    twice: the API checks both before.
    """
    distinct = isinstance(new.seeds, range) or len(set(new.seeds)) == len(new.seeds)
    if not new.seeds or new.repeats < 1 or not distinct:
        raise ValueError("a job needs at least one seed and one repeat, and no seed twice")
    now = now or utcnow()
    seed_s = chunks.estimate_seed_s(session, new.workload_key, new.executor, new.elements)
    whole, cut = chunks.cut(new, seed_s)
    request = {
        "seeds": work.compact(new.seeds),
        **new.request,
        "repeats": new.repeats,
        "elements": new.elements,
    }
    plan = None
    if new.stop_on_finding is not None:
        plan = SeedProgress(
            start=new.seeds[0], max=len(new.seeds), stop_on_finding=new.stop_on_finding
        )
    job = add_row(
        session,
        new,
        now=now,
        state=JobState.queued,
        request=request,
        sequential=plan,
        deadline_at=now + timedelta(seconds=new.queue_deadline_s),
    )
    work.add(session, job, whole, cut, queue=new.queue, pair_s=seed_s)
    if plan is not None:
        sequential.reach(session, job)
    events.add(session, job, StateChange(JobState.queued.value), now=now)
    session.flush()
    return job


def add_row(session: Session, new: NewJob, *, now: datetime, **columns: Any) -> JobRow:
    """Store the row of a new job with its test and its labels; it has no work yet.

    The fields of `new` that are columns are taken; `columns` come on top.
    """
    test_specs.add(session, new.test_key, new.workload_key, new.kernel, new.canonical, now=now)
    known = JobRow.__table__.columns.keys() & vars(new).keys()
    values = {name: getattr(new, name) for name in known} | {"queue": new.queue} | columns
    if not isinstance(values["context"], str):
        values["context"] = dict(values["context"])
    if values.get("commit") is not None:
        values["commit"] = JobCommit(**values["commit"])
    labels = {name: str(value) for name, value in new.labels.items()}
    job = JobRow(
        **{**values, "labels": labels},
        id=new_id(),
        total=0,
        done=0,
        chunk_count=0,
        open_chunks=0,
        counts={},
        red=0,
        hollow=0,
        version=1,
        last_event=0,
        created_at=now,
    )
    session.add(job)
    session.flush()
    session.add_all(
        JobLabelRow(job_id=job.id, name=name, value=value) for name, value in labels.items()
    )
    return job


def get(session: Session, job_id: str) -> JobRow | None:
    """Return the job, or None when no job has that id."""
    shown = joinedload(JobRow.spec), undefer(JobRow.diagnosis_words)
    query = select(JobRow).options(*shown).where(JobRow.id == job_id)
    return session.scalar(query.where(JobRow.kind.in_(LISTED_KINDS))) if is_id(job_id) else None


def many(session: Session, job_ids: Collection[str]) -> dict[str, JobRow]:
    """Return the jobs of these ids that exist, in one statement."""
    query = in_lists().where(JobRow.id.in_(job_ids))
    return {job.id: job for job in session.scalars(query)} if job_ids else {}


def in_lists() -> Select[JobRow]:
    """Return the query of jobs without what only the page of one shows."""
    return select(JobRow).options(*WITHOUT_DETAILS).where(JobRow.kind.in_(LISTED_KINDS))


def diagnosis_words(session: Session, job_ids: Sequence[str]) -> str:
    """Return the diagnosis of the newest of some jobs that has one, in words; "" for none."""
    text = JobRow.diagnosis["words"].as_string()
    query = select(text).where(JobRow.id.in_(list(job_ids)), text.is_not(None))
    return session.scalar(query.order_by(JobRow.id.desc()).limit(1)) or ""


def cancel(session: Session, job_id: str, *, now: datetime | None = None) -> JobRow | None:
    """Cancel a job: close the chunks that no worker has started, and stop running attempts.

    Running attempts are asked through the outbox. The job ends canceled, even when its seeds had
    decided before and its attempts were about to stop for that.

    A job in a final state stays as it is. Returns None when there is no such job. Notify the
    dispatcher after the commit.
    """
    now = now or utcnow()
    job = closing.lock(session, job_id)
    if job is not None and not job.state.final and job.state is not JobState.cancelling:
        job.state, job.waiting_reason = JobState.cancelling, None
        job.version += 1
        closing.cancel_open_chunks(session, job, now=now)
        if job.open_chunks == 0:
            closing.close(session, job, now=now)
        else:
            events.add(session, job, StateChange(JobState.cancelling.value), now=now)
        session.flush()
    return job


def again(session: Session, old: JobRow, *, owner: str, chunk_seconds: float = 20.0) -> NewJob:
    """Return the new job with the request of a job of seeds."""
    first = session.get_one(ChunkRangeRow, (old.id, 0))
    return from_object(
        NewJob,
        old,
        canonical=old.test,
        elements=int(old.request["elements"]),
        seeds=work.expand(first.seeds),  # without those that suspect seeds added
        repeats=len(first.members),
        queue_deadline_s=(old.deadline_at - old.created_at).total_seconds(),
        owner=owner,
        chunk_seconds=chunk_seconds,
        resubmit_of=old.id,
        commit=old.commit and vars(old.commit),
        stop_on_finding=None if old.sequential is None else old.sequential.stop_on_finding,
    )
