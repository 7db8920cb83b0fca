"""Jobs as the API sees them: create, get, list, cancel, resubmit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, defer

from gonogo_service.jobs import chunks, closing, events, queues, ranges, sequential
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.job import AnyJob, Job, JobSummary, NewJob, job_of
from gonogo_service.jobs.model import ChunkRangeRow, JobLabelRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import floor, is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import as_columns, from_object
from gonogo_service.kit.database.states import LISTED_KINDS, JobKind, JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests import test_specs
from gonogo_service.tests.model import TestSpecRow


@dataclass(frozen=True)
class JobFilter:
    """The filters of a list of jobs; `label` is "name" or "name=value"."""

    state: str | None = None
    test: str | None = None
    workload: str | None = None
    build: str | None = None
    label: str | None = None
    owner: str | None = None
    verdict: str | None = None
    kind: str | None = None
    since: datetime | None = None
    """Only jobs submitted since then."""


def create(session: Session, new: NewJob, *, now: datetime | None = None) -> Job:
    """Store the job, its work and its outbox row in the caller's transaction.

    Notify the dispatcher after the commit. Raises ValueError when there is no work, or a seed
    twice: the API checks both before.
    """
    distinct = isinstance(new.seeds, range) or len(set(new.seeds)) == len(new.seeds)
    if not new.seeds or new.repeats < 1 or not distinct:
        raise ValueError("a job needs at least one seed and one repeat, and no seed twice")
    now = now or utcnow()
    test_specs.ensure(session, new, now=now)
    seed_s = chunks.estimate_seed_s(session, new.workload_key, new.executor, new.elements)
    work, cut = chunks.cut(new, seed_s)
    plan = (
        None
        if new.stop_on_finding is None
        else sequential.begin(new.seeds[0], len(new.seeds), stop_on_finding=new.stop_on_finding)
    )
    job_id = new_id()
    columns = {
        **as_columns(JobRow, new),
        "context": new.context if isinstance(new.context, str) else dict(new.context),
        "request": {
            **new.request,
            "seeds": new.request.get("seeds", ranges.compact(new.seeds)),
            "repeats": new.repeats,
            "elements": new.elements,
        },
        "labels": dict(new.labels),
        "commit": None if new.commit is None else dict(new.commit),
    }
    session.add(
        JobRow(
            **columns,
            id=job_id,
            state=JobState.queued,
            queue=new.queue,
            sequential=plan,
            total=len(work),
            chunk_count=0,
            open_chunks=0,
            counts={},
            created_at=now,
            deadline_at=now + timedelta(seconds=new.queue_deadline_s),
        )
    )
    session.flush()
    session.add_all(
        JobLabelRow(job_id=job_id, name=name, value=str(value))
        for name, value in new.labels.items()
    )
    job = session.get_one(JobRow, job_id)
    ranges.add(session, job, work, cut, queue=new.queue, pair_s=seed_s, sequential=plan is not None)
    outbox.add(
        session,
        "job.created",
        f"job.created:{job_id}",
        {"job": job_id, "queue": new.queue},
        now=now,
    )
    if plan is not None:
        sequential.reach(session, job)
    events.add(session, job, StateChange(JobState.queued.value), now=now)
    session.flush()
    return job_of(Job, job, dict(new.canonical), None)


def get(session: Session, job_id: str) -> Job | None:
    """Return the job, or None when no job has that id.

    One that waits in a queue that workers serve says what is there before it.
    """
    query = _query(Job).where(JobRow.id == job_id)
    row = session.execute(query).one_or_none() if is_id(job_id) else None
    if row is None:
        return None
    job = job_of(Job, *row)
    if job.state is not JobState.queued or job.waiting_reason is not None:
        return job
    return replace(job, waiting_reason=queues.behind(session, row[0]))


def many(session: Session, job_ids: Collection[str]) -> dict[str, JobSummary]:
    """Return the jobs of these ids that exist, in one statement."""
    query = _query(JobSummary).where(JobRow.id.in_(job_ids))
    rows = session.execute(query) if job_ids else ()
    return {row[0].id: job_of(JobSummary, *row) for row in rows}


def _query(shape: type[AnyJob]) -> Select[JobRow, dict[str, Any], str]:
    """Return the query of the jobs' rows, tests and words of diagnoses.

    Summaries don't read the columns that only a whole job has: a diagnosis is up to 20 KB.
    """
    query = select(JobRow, TestSpecRow.canonical, JobRow.diagnosis["words"].as_string())
    if not issubclass(shape, Job):
        query = query.options(defer(JobRow.diagnosis), defer(JobRow.suspects))
    query = query.join(TestSpecRow, JobRow.test_key == TestSpecRow.key)
    return query.where(JobRow.kind.in_(LISTED_KINDS))


def diagnosis_words(session: Session, job_ids: Sequence[str]) -> str:
    """Return the diagnosis of the newest of some jobs that has one, in words; "" for none."""
    text = JobRow.diagnosis["words"].as_string()
    query = select(text).where(JobRow.id.in_(list(job_ids)), text.is_not(None))
    return session.scalar(query.order_by(JobRow.id.desc()).limit(1)) or ""


def list_(
    session: Session,
    filters: JobFilter | None = None,
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[JobSummary]:
    """Return jobs, newest first. Raises BadCursor."""
    filters = filters or JobFilter()
    columns = {
        JobRow.state: filters.state,
        JobRow.test_key: filters.test,
        JobRow.workload_key: filters.workload,
        JobRow.build: filters.build,
        JobRow.owner: filters.owner,
        JobRow.verdict: filters.verdict,
        JobRow.kind: filters.kind,
    }
    query = _query(JobSummary)
    if filters.since is not None:
        query = query.where(JobRow.id >= floor(filters.since))
    if filters.label is not None:
        name, equals, value = filters.label.partition("=")
        labeled = select(JobLabelRow.job_id).where(JobLabelRow.name == name)
        if equals:
            labeled = labeled.where(JobLabelRow.value == value)
        query = query.where(JobRow.id.in_(labeled))
    return newest_first(
        session,
        query,
        JobRow.id,
        partial(job_of, JobSummary),
        limit=limit,
        cursor=cursor,
        filters=columns,
    )


def cancel(session: Session, job_id: str, *, now: datetime | None = None) -> Job | None:
    """Cancel a job: close the chunks that no worker has started, and stop running attempts.

    Running attempts are asked through the outbox. The job ends canceled, even when its seeds had
    decided before and its attempts were about to stop for that.

    A job in a final state stays as it is. Returns None when there is no such job. Notify the
    dispatcher after the commit.
    """
    now = now or utcnow()
    job = closing.lock(session, job_id) if is_id(job_id) else None
    if job is None:
        return None
    if not JobState(job.state).final and job.state != JobState.cancelling:
        job.state = JobState.cancelling
        job.waiting_reason = None
        job.version += 1
        closing.cancel_open_chunks(session, job, now=now)
        if job.open_chunks == 0:
            closing.close(session, job, now=now)
        else:
            events.add(session, job, StateChange(JobState.cancelling.value), now=now)
        session.flush()
    return get(session, job_id)


def resubmit(
    session: Session,
    job_id: str,
    *,
    owner: str,
    chunk_seconds: float = 20.0,
) -> Job | None:
    """Create a new job with the same request.

    Returns None when there is no such job, or when it isn't a job of seeds.
    """
    old = session.get(JobRow, job_id) if is_id(job_id) else None
    if old is None or old.kind != JobKind.seeds:
        return None
    work = session.get_one(ChunkRangeRow, (job_id, 0))
    return create(
        session,
        from_object(
            NewJob,
            old,
            canonical=session.get_one(TestSpecRow, old.test_key).canonical,
            elements=int(old.request["elements"]),
            seeds=ranges.expand(work.seeds),  # without those that suspect seeds added
            repeats=len(work.members),
            queue_deadline_s=(old.deadline_at - old.created_at).total_seconds(),
            owner=owner,
            chunk_seconds=chunk_seconds,
            resubmit_of=old.id,
            stop_on_finding=None
            if old.sequential is None
            else bool(old.sequential["stop_on_finding"]),
        ),
    )
