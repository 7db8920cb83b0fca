"""Attempts: published, started, heard of, reported, lost. Everything that a worker's message or its
silence changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, aliased

from gonogo_storage.db.encoding import storable
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.states import OPEN_ATTEMPT, AttemptState, ChunkState, JobKind, JobState
from gonogo_storage.devices import periods
from gonogo_storage.gauges import gauge_work
from gonogo_storage.jobs import artifacts, closing
from gonogo_storage.messages import events
from gonogo_storage.seeds import results
from gonogo_storage.tables import AttemptRow, BuildRow, ChunkRow, GaugeRow, JobRow, TestSpecRow

_OUTCOMES = {
    "done": AttemptState.done,
    "cancelled": AttemptState.cancelled,
    "handed_back": AttemptState.handed_back,
    "error": AttemptState.error,
}


@dataclass(frozen=True)
class Sendable:
    """An attempt to publish, with all that its message says."""

    attempt: str
    chunk: str
    job: str
    queue: str
    test: dict[str, Any]
    work: list[Any]
    build: str
    target: dict[str, str]
    context: Any
    first: bool
    arithmetic: str | None
    """The arithmetic model of the registered build, and below the outputs that it declares; None: the
    worker's host knows, or the default."""
    outputs: list[str] | None
    reference: dict[str, Any] | None
    """The same of the build that this one is compared with: {"build", "arithmetic", "outputs"}."""
    gauge: dict[str, Any] | None = None
    """Of a gauge: {"parts": [...]}, and the work is of (seed, number of the part)."""


@dataclass(frozen=True)
class Silent:
    """An attempt that the reaper has to think about."""

    attempt: str
    job: str
    queue: str
    worker: str | None
    heard_at: datetime | None


def unpublished(session: Session, epoch: str, *, limit: int = 200) -> list[Sendable]:
    """Attempts that no worker has started and that this life of the broker (its epoch) has not got,
    oldest first.
    """
    other = aliased(BuildRow)
    query = (
        select(
            AttemptRow,
            ChunkRow.number,
            JobRow,
            TestSpecRow.canonical,
            BuildRow.arithmetic,
            BuildRow.outputs,
            other.arithmetic,
            other.outputs,
        )
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(TestSpecRow, JobRow.test_key == TestSpecRow.key)
        .outerjoin(
            BuildRow, (BuildRow.name == JobRow.build) & (BuildRow.executor == JobRow.executor)
        )
        .outerjoin(other, (other.name == JobRow.reference) & (other.executor == JobRow.executor))
        .where(
            AttemptRow.state == AttemptState.sent,
            or_(AttemptRow.epoch.is_(None), AttemptRow.epoch != epoch),
        )
        .order_by(AttemptRow.id)
        .limit(limit)
    )
    found = [
        Sendable(
            attempt=attempt.id,
            chunk=attempt.chunk_id,
            job=job.id,
            queue=attempt.queue,
            test=canonical,
            work=attempt.work,
            build=job.build,
            target={"executor": job.executor, "arch": job.arch, "board": job.board},
            context=job.context,
            first=number == 0,
            arithmetic=arithmetic,
            outputs=outputs,
            reference=None
            if job.reference is None
            else {"build": job.reference, "arithmetic": other_arithmetic, "outputs": other_outputs},
        )
        for attempt, number, job, canonical, arithmetic, outputs, other_arithmetic, other_outputs in session.execute(
            query
        )
    ]
    of_gauges = set(
        session.scalars(select(GaugeRow.id).where(GaugeRow.id.in_({item.job for item in found})))
    )
    return [_aimed(session, item) if item.job in of_gauges else item for item in found]


def _aimed(session: Session, item: Sendable) -> Sendable:
    """An attempt of a gauge, with the parts of its work in place of the job's build."""
    told = gauge_work.aim(session, item.job, item.test, item.work)
    return replace(
        item, first=False, target={**item.target, "executor": told.pop("executor")}, **told
    )


def published(session: Session, attempt_ids: Sequence[str], epoch: str, *, now: datetime) -> None:
    """The broker took these; from now on the silence of their workers counts."""
    session.execute(
        update(AttemptRow).where(AttemptRow.id.in_(attempt_ids)).values(epoch=epoch, heard_at=now)
    )


def started(
    session: Session, attempt_id: str, body: Mapping[str, Any], *, now: datetime
) -> str | None:
    """A worker began the attempt: it, its chunk and its job run. The job's id, or None when the
    attempt is over already.
    """
    found = _locked(session, attempt_id)
    if found is None:
        return None
    job, chunk, attempt = found
    if attempt.state not in OPEN_ATTEMPT or attempt.worker is not None:
        return None
    _begin(session, job, chunk, attempt, now=now)
    for name in ("worker", "device", "host", "host_run"):
        setattr(attempt, name, body.get(name))
    session.flush()
    return job.id


def heartbeat(
    session: Session, attempt_id: str, *, seed: int | None, stage: str | None, now: datetime
) -> None:
    """The attempt's worker lives. Takes no lock of the job: only the time of the last sign and the
    place are written.
    """
    if is_id(attempt_id):
        running = update(AttemptRow).where(
            AttemptRow.id == attempt_id, AttemptRow.state.in_(OPEN_ATTEMPT)
        )
        session.execute(running.values(heard_at=now, seed=seed, stage=stage))


def device_of(session: Session, attempt_id: str | None) -> str | None:
    """The device that an attempt runs on, as far as its worker has said so."""
    return (
        session.scalar(select(AttemptRow.device).where(AttemptRow.id == attempt_id))
        if attempt_id and is_id(attempt_id)
        else None
    )


def store(
    session: Session, attempt_id: str, body: Mapping[str, Any], *, now: datetime
) -> str | None:
    """One batch of results: each (seed, repeat) that has no row yet, and the artifacts. The job's
    id when something changed.

    Rows without numbers (hang, crash, error) count only from the chunk's current attempt while that
    is open; rows with numbers are taken from a lost one too. Whatever the attempt was not asked for
    is dropped, and what belongs to seeds that a decision has withdrawn.
    """
    found = _locked(session, attempt_id)
    if found is None:
        return None
    job, chunk, attempt = found
    if JobState(job.state).final or (job.sequential is not None and chunk.state == ChunkState.lost):
        return None
    current = chunk.attempt_id == attempt.id and attempt.state in OPEN_ATTEMPT
    _begin(session, job, chunk, attempt, now=now)
    asked = {(int(seed), int(repeat)) for seed, repeat in attempt.work}
    rows: dict[results.Pair, dict[str, Any]] = {}
    for row in body.get("rows") or ():
        pair = (int(row["seed"]), int(row["repeat"]))
        if pair in asked and (row.get("outputs") or current):
            rows.setdefault(pair, row)
    stored = results.present(session, job.id, list(rows))
    fresh = [row for pair, row in rows.items() if pair not in stored]
    closing.record(session, job, attempt.id, fresh, now=now)
    artifacts.add(session, job.id, attempt.id, body.get("artifacts") or (), now=now)
    if attempt.state in OPEN_ATTEMPT:
        attempt.heard_at = now
    batch = body.get("batch")
    if isinstance(batch, int) and batch not in attempt.batches:
        attempt.batches = [*attempt.batches, batch]
    session.flush()
    closing.look(session, job, now=now)
    if attempt.state == AttemptState.reported:
        _conclude(session, job, chunk, attempt, now=now)
    elif (
        not current
        and chunk.state == ChunkState.waiting
        and not _missing(session, job.id, chunk.work)
    ):
        closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
    session.flush()
    if fresh and job.kind == JobKind.seeds:
        periods.stored(session, attempt.device or fresh[0].get("device"), len(fresh), now=now)
    return job.id


def finished(
    session: Session, attempt_id: str, body: Mapping[str, Any], *, now: datetime
) -> str | None:
    """The worker's last word on an attempt. The job's id, or None when the attempt is over already.

    Batches may still be on their way (another ingest has them): then the attempt is `reported`, and
    is concluded with the last batch, or by the reaper when that never comes.
    """
    found = _locked(session, attempt_id)
    if found is None:
        return None
    job, chunk, attempt = found
    if attempt.state not in (AttemptState.sent, AttemptState.running):
        return None
    _begin(session, job, chunk, attempt, now=now)
    attempt.state = AttemptState.reported
    attempt.finished_at = attempt.heard_at = now
    attempt.log_tail, attempt.error = storable(body.get("log_tail")), storable(body.get("error"))
    attempt.telemetry = body.get("telemetry") or None
    attempt.expected = {
        "outcome": body.get("outcome"),
        "sent": body.get("sent") or [],
        "batches": body.get("batches"),
    }
    session.flush()
    _conclude(session, job, chunk, attempt, now=now)
    session.flush()
    periods.ran(session, attempt, now=now)
    return job.id


def overdue(session: Session, state: AttemptState, *, before: datetime) -> list[Silent]:
    """Attempts in a state that were last heard of before a moment, oldest first."""
    query = (
        select(AttemptRow)
        .where(AttemptRow.state == state, AttemptRow.heard_at < before)
        .order_by(AttemptRow.id)
    )
    return [
        Silent(row.id, row.job_id, row.queue, row.worker, row.heard_at)
        for row in session.scalars(query)
    ]


def lose(
    session: Session, attempt_id: str, why: str, *, before: datetime, now: datetime
) -> str | None:
    """Give an attempt up that is still silent since `before`; its chunk waits again for what it
    misses. The job's id if so.
    """
    found = _locked(session, attempt_id)
    if found is None:
        return None
    job, chunk, attempt = found
    if attempt.state not in OPEN_ATTEMPT or attempt.heard_at is None or attempt.heard_at >= before:
        return None
    if attempt.state == AttemptState.reported:
        _conclude(session, job, chunk, attempt, now=now, forced=True)
    else:
        attempt.state, attempt.finished_at, attempt.error = AttemptState.lost, now, why
        session.flush()
        if chunk.attempt_id == attempt.id:
            closing.settle(session, job, chunk, why, now=now)
        session.flush()
        periods.ran(session, attempt, now=now)
    session.flush()
    return job.id


def to_cancel(session: Session) -> list[str]:
    """Running attempts that were told to stop, as their job is cancelled or decided: their keys
    must be in the broker, come what may.
    """
    told = (JobRow.state == JobState.cancelling) | (ChunkRow.state == ChunkState.stopping)
    query = (
        select(AttemptRow.id)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .where(AttemptRow.state == AttemptState.running, told)
    )
    return list(session.scalars(query))


def _locked(session: Session, attempt_id: str) -> tuple[JobRow, ChunkRow, AttemptRow] | None:
    """The attempt with its chunk and job, the job locked first and the others read after that."""
    if not is_id(attempt_id):
        return None
    home = session.execute(
        select(AttemptRow.job_id, AttemptRow.chunk_id).where(AttemptRow.id == attempt_id)
    ).one_or_none()
    if home is None:
        return None
    job = closing.lock(session, home.job_id)
    if job is None:
        return None
    chunk = session.get_one(ChunkRow, home.chunk_id, populate_existing=True)
    return job, chunk, session.get_one(AttemptRow, attempt_id, populate_existing=True)


def _begin(
    session: Session, job: JobRow, chunk: ChunkRow, attempt: AttemptRow, *, now: datetime
) -> None:
    """A first sign that a worker has the attempt (not always "started", which travels in another
    queue): it, its chunk and its job run.
    """
    if (
        attempt.state != AttemptState.sent
        or chunk.attempt_id != attempt.id
        or chunk.state != ChunkState.sent
    ):
        return
    attempt.state, chunk.state = AttemptState.running, ChunkState.running
    attempt.started_at = attempt.heard_at = now
    if job.state == JobState.queued:
        job.state = JobState.running
        job.started_at = now
        job.waiting_reason = None
        job.version += 1
        events.add(
            session, job, "state", {"state": JobState.running.value, "verdict": None}, now=now
        )
    session.flush()


def _missing(session: Session, job_id: str, work: Sequence[Sequence[int]]) -> bool:
    return len(results.present(session, job_id, work)) < len(work)


def _conclude(
    session: Session,
    job: JobRow,
    chunk: ChunkRow,
    attempt: AttemptRow,
    *,
    now: datetime,
    forced: bool = False,
) -> None:
    """End a reported attempt once everything that it sent is stored (or nobody waits for it any
    longer).
    """
    expected = attempt.expected or {}
    batches = expected.get("batches")
    here = not _missing(session, job.id, expected.get("sent") or []) and (
        batches is None or len(attempt.batches) >= batches
    )
    if not here and not forced:
        return
    attempt.state = _OUTCOMES.get(str(expected.get("outcome")), AttemptState.error)
    current = chunk.attempt_id == attempt.id and chunk.state in (
        ChunkState.sent,
        ChunkState.running,
        ChunkState.stopping,
    )
    if current and attempt.state == AttemptState.handed_back:
        chunk.attempts, chunk.returns = chunk.attempts - 1, chunk.returns + 1
    session.flush()
    if current:
        why = attempt.error or (
            "some results never arrived" if not here else f"the worker ended it as {attempt.state}"
        )
        closing.settle(session, job, chunk, why, now=now)
