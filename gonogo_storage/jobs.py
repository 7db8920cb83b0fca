"""Jobs as the API sees them: create, get, list, cancel, resubmit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage import chunks, closing, events, outbox, sequential, test_specs
from gonogo_storage.encoding import timestamp, utcnow
from gonogo_storage.ids import is_id, new_id
from gonogo_storage.paging import BadCursor, Page
from gonogo_storage.states import OPEN_ATTEMPT, TOLD_KINDS, JobKind, JobState
from gonogo_storage.tables import AttemptRow, ChunkRow, JobLabelRow, JobRow, TestSpecRow


@dataclass(frozen=True)
class NewJob:
    """A checked request: everything that `create` needs, nothing left to decide."""

    test_key: str
    subject_key: str
    kernel: str
    canonical: Mapping[str, Any]
    elements: int
    build: str
    build_line: str
    build_sequence: int
    executor: str
    arch: str
    board: str
    seeds: tuple[int, ...]
    repeats: int = 1
    context: str | Mapping[str, Any] = "isolated"
    priority: int = 5
    queue_deadline_s: float = 86400.0
    labels: Mapping[str, str] = field(default_factory=dict)
    commit: Mapping[str, Any] | None = None
    owner: str = "local"
    request: Mapping[str, Any] = field(
        default_factory=dict
    )  # the body as it was posted, for display and for resubmission
    chunk_seconds: float = 20.0
    resubmit_of: str | None = None
    reference: str | None = None
    """The build that this one is compared with."""
    stop_on_finding: bool | None = None
    """Of sequential seeds, which follow each other without a gap and end when decided: whether one
    unexplained seed decides."""

    @property
    def queue(self) -> str:
        """The queue that serves the target."""
        return f"{self.executor}.{self.arch}.{self.board}"


@dataclass(frozen=True)
class Job:
    """A job as stored."""

    id: str
    kind: JobKind
    state: JobState
    verdict: str | None
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test_key: str
    subject_key: str
    kernel: str
    canonical: dict[str, Any]
    build: str
    build_line: str
    executor: str
    arch: str
    board: str
    queue: str
    context: Any
    priority: int
    request: dict[str, Any]
    labels: dict[str, Any]
    commit: dict[str, Any] | None
    resubmit_of: str | None
    reference: str | None
    sequential: dict[str, Any] | None
    """Of sequential seeds: what was asked, and how far the decision has read; below the decision
    (gonogo_storage/sequential.py)."""
    stop: dict[str, Any] | None
    suspects: dict[str, Any] | None
    """Of suspect seeds: which, what was added, and what all say together
    (gonogo_storage/suspects.py)."""
    total: int
    done: int
    chunks: int
    open_chunks: int
    counts: dict[str, int]
    outcomes: dict[str, int] | None
    """Of a selection: how many tests of all iterations were passed, failed, skipped, ..."""
    last_event: int
    diagnosis: dict[str, Any] | None
    created_at: datetime
    deadline_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        """The job as the API shows it (links are the API's)."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "state": self.state.value,
            "verdict": self.verdict,
            "error": self.error,
            "waiting_reason": self.waiting_reason,
            "version": self.version,
            "owner": self.owner,
            "test": self.canonical,
            "test_key": self.test_key,
            "subject_key": self.subject_key,
            "kernel": self.kernel,
            "build": self.build,
            "build_line": self.build_line,
            "target": {"executor": self.executor, "arch": self.arch, "board": self.board},
            "queue": self.queue,
            "seeds": self.request.get("seeds"),
            "repeats": self.request.get("repeats", 1),
            "import": self.request.get("import"),
            "context": self.context,
            "priority": self.priority,
            "labels": self.labels,
            "commit": self.commit,
            "resubmit_of": self.resubmit_of,
            "reference": None if self.reference is None else {"build": self.reference},
            "sequential": self.sequential,
            "stop": self.stop,
            "suspects": self.suspects,
            "total": self.total,
            "done": self.done,
            "counts": self.counts,
            "outcomes": self.outcomes,
            "chunks": {"total": self.chunks, "open": self.open_chunks},
            "diagnosis": self.diagnosis,
            "last_event": self.last_event,
            "created_at": timestamp(self.created_at),
            "deadline_at": timestamp(self.deadline_at),
            "started_at": timestamp(self.started_at),
            "finished_at": timestamp(self.finished_at),
        }


@dataclass(frozen=True)
class JobFilter:
    """What a list of jobs is narrowed to; `label` is "name" or "name=value"."""

    state: str | None = None
    test: str | None = None
    subject: str | None = None
    build: str | None = None
    label: str | None = None
    owner: str | None = None
    verdict: str | None = None
    kind: str | None = None


def create(session: Session, new: NewJob, *, now: datetime | None = None) -> Job:
    """Store the job, its chunks and its outbox row in the caller's transaction; ring the doorbell
    after the commit.

    Raises ValueError when there is no work, or a seed twice: the API checks both before.
    """
    if not new.seeds or new.repeats < 1 or len(set(new.seeds)) != len(new.seeds):
        raise ValueError("a job needs at least one seed and one repeat, and no seed twice")
    now = now or utcnow()
    test_specs.ensure(
        session,
        key=new.test_key,
        subject_key=new.subject_key,
        kernel=new.kernel,
        canonical=dict(new.canonical),
        now=now,
    )
    seconds = chunks.estimate_seed_s(session, new.subject_key, new.executor, new.elements)
    plan = None
    if new.stop_on_finding is None:
        parts = chunks.cut(
            new.seeds,
            new.repeats,
            seconds,
            new.chunk_seconds,
            most=chunks.most_seeds(new.elements, new.reference),
        )
    else:
        parts = chunks.grow(new.seeds, new.repeats, seconds, new.chunk_seconds)
        plan = sequential.begin(new.seeds[0], len(new.seeds), stop_on_finding=new.stop_on_finding)
    job_id = new_id()
    session.add(
        JobRow(
            id=job_id,
            state=JobState.queued,
            owner=new.owner,
            test_key=new.test_key,
            subject_key=new.subject_key,
            kernel=new.kernel,
            build=new.build,
            build_line=new.build_line,
            build_sequence=new.build_sequence,
            executor=new.executor,
            arch=new.arch,
            board=new.board,
            queue=new.queue,
            context=new.context if isinstance(new.context, str) else dict(new.context),
            priority=new.priority,
            request={
                **new.request,
                "seeds": new.request.get("seeds", list(new.seeds)),
                "repeats": new.repeats,
                "elements": new.elements,
            },
            labels=dict(new.labels),
            commit=None if new.commit is None else dict(new.commit),
            resubmit_of=new.resubmit_of,
            reference=new.reference,
            sequential=plan,
            total=len(new.seeds) * new.repeats,
            chunk_count=len(parts),
            open_chunks=len(parts),
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
    chunks.add(session, job_id, new.queue, parts, seconds)
    outbox.add(
        session,
        "job.created",
        f"job.created:{job_id}",
        {"job": job_id, "queue": new.queue},
        now=now,
    )
    job = session.get_one(JobRow, job_id)
    if plan is not None:
        session.flush()
        sequential.reach(session, job)
    events.add(session, job, "state", {"state": JobState.queued.value, "verdict": None}, now=now)
    session.flush()
    return _job(job, dict(new.canonical))


def get(session: Session, job_id: str) -> Job | None:
    """The job, or None when there is none of that id."""
    if not is_id(job_id):
        return None
    query = select(JobRow, TestSpecRow.canonical).join(
        TestSpecRow, JobRow.test_key == TestSpecRow.key
    )
    row = session.execute(
        query.where(JobRow.id == job_id, JobRow.kind.in_(TOLD_KINDS))
    ).one_or_none()
    return None if row is None else _job(row[0], row[1])


def many(session: Session, job_ids: Collection[str]) -> dict[str, Job]:
    """The same of several jobs, in one statement; those that there are."""
    query = select(JobRow, TestSpecRow.canonical).join(
        TestSpecRow, JobRow.test_key == TestSpecRow.key
    )
    rows = (
        session.execute(query.where(JobRow.id.in_(job_ids), JobRow.kind.in_(TOLD_KINDS)))
        if job_ids
        else ()
    )
    return {row.id: _job(row, canonical) for row, canonical in rows}


def list_(
    session: Session, wanted: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
) -> Page[Job]:
    """Jobs, newest first. Raises BadCursor."""
    wanted = wanted or JobFilter()
    query = select(JobRow, TestSpecRow.canonical).join(
        TestSpecRow, JobRow.test_key == TestSpecRow.key
    )
    query = query.where(JobRow.kind.in_(TOLD_KINDS))
    columns = {
        JobRow.state: wanted.state,
        JobRow.test_key: wanted.test,
        JobRow.subject_key: wanted.subject,
        JobRow.build: wanted.build,
        JobRow.owner: wanted.owner,
        JobRow.verdict: wanted.verdict,
        JobRow.kind: wanted.kind,
    }
    for column, value in columns.items():
        if value is not None:
            query = query.where(column == value)
    if wanted.label is not None:
        name, equals, value = wanted.label.partition("=")
        labelled = select(JobLabelRow.job_id).where(JobLabelRow.name == name)
        query = query.where(
            JobRow.id.in_(labelled.where(JobLabelRow.value == value) if equals else labelled)
        )
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(JobRow.id < cursor)
    found = session.execute(query.order_by(JobRow.id.desc()).limit(limit + 1)).all()
    return Page.cut([_job(row, canonical) for row, canonical in found], limit, lambda job: job.id)


def cancel(session: Session, job_id: str, *, now: datetime | None = None) -> Job | None:
    """Ask for the end of a job: what no worker has started ends here and now, running attempts are
    told through the outbox.

    So it ends cancelled, even when its seeds had decided before and its attempts were about to stop
    for that.

    A job in a final state stays as it is. None when there is no such job. Ring the doorbell after
    the commit.
    """
    now = now or utcnow()
    job = closing.lock(session, job_id) if is_id(job_id) else None
    if job is None:
        return None
    if not JobState(job.state).final and job.state != JobState.cancelling:
        job.state = JobState.cancelling
        job.waiting_reason = None
        job.version += 1
        closing.withdraw(session, job, now=now)
        if job.open_chunks == 0:
            closing.close(session, job, now=now)
        else:
            events.add(
                session,
                job,
                "state",
                {"state": JobState.cancelling.value, "verdict": None},
                now=now,
            )
        session.flush()
    return get(session, job_id)


def resubmit(
    session: Session,
    job_id: str,
    *,
    owner: str,
    chunk_seconds: float = 20.0,
    now: datetime | None = None,
) -> Job | None:
    """A new job that asks for the same; None when there is no such job, or none of seeds."""
    old = session.get(JobRow, job_id) if is_id(job_id) else None
    if old is None or old.kind != JobKind.seeds:
        return None
    parts = session.scalars(
        select(ChunkRow.work).where(ChunkRow.job_id == job_id).order_by(ChunkRow.number)
    )
    work = [pair for part in parts for pair in part]
    repeats = 1 + max(int(repeat) for _, repeat in work)
    added = set((old.suspects or {}).get("added", ()))
    seeds = tuple(dict.fromkeys(int(seed) for seed, _ in work if seed not in added))
    if old.sequential is not None:  # what was added may be seeds that the decision had spared
        seeds = tuple(
            range(old.sequential["start"], old.sequential["start"] + old.sequential["max"])
        )
    return create(
        session,
        NewJob(
            test_key=old.test_key,
            subject_key=old.subject_key,
            kernel=old.kernel,
            canonical=session.get_one(TestSpecRow, old.test_key).canonical,
            elements=int(old.request["elements"]),
            build=old.build,
            build_line=old.build_line,
            build_sequence=old.build_sequence,
            executor=old.executor,
            arch=old.arch,
            board=old.board,
            seeds=seeds,
            repeats=repeats,
            context=old.context,
            priority=old.priority,
            queue_deadline_s=(old.deadline_at - old.created_at).total_seconds(),
            labels=old.labels,
            commit=old.commit,
            owner=owner,
            request=old.request,
            chunk_seconds=chunk_seconds,
            resubmit_of=old.id,
            reference=old.reference,
            stop_on_finding=None
            if old.sequential is None
            else bool(old.sequential["stop_on_finding"]),
        ),
        now=now,
    )


def attempts_of(session: Session, job_id: str) -> list[dict[str, Any]]:
    """All attempts of a job in order: who ran it, since when, how far, what went wrong. Its page
    reads gonogo_storage.job_attempts, bounded."""
    if not is_id(job_id):
        return []
    query = select(AttemptRow, ChunkRow.number).join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
    rows = session.execute(query.where(AttemptRow.job_id == job_id).order_by(AttemptRow.id))
    return [
        {
            "id": row.id,
            "chunk": number,
            "number": row.number,
            "state": row.state,
            "open": row.state in OPEN_ATTEMPT,
            "worker": row.worker,
            "device": row.device,
            "host": row.host,
            "seed": row.seed,
            "stage": row.stage,
            "error": row.error,
            "log_tail": row.log_tail,
            "telemetry": row.telemetry,
            "created_at": timestamp(row.created_at),
            "started_at": timestamp(row.started_at),
            "heard_at": timestamp(row.heard_at),
            "finished_at": timestamp(row.finished_at),
        }
        for row, number in rows
    ]


_OWN = {"kind", "state", "canonical", "chunks", "sequential", "stop"}


def _job(row: JobRow, canonical: dict[str, Any]) -> Job:
    same = {name: getattr(row, name) for name in Job.__dataclass_fields__ if name not in _OWN}
    shown, stop = sequential.shown(row), sequential.told(row)
    own: dict[str, Any] = {
        "kind": JobKind(row.kind),
        "state": JobState(row.state),
        "canonical": canonical,
        "chunks": row.chunk_count,
    }
    return Job(sequential=shown, stop=stop, **own, **same)
