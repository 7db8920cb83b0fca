"""Attempts: what a worker's message, or its silence, changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session, defer

from gonogo_service.devices import periods
from gonogo_service.hosts import refused_requests
from gonogo_service.hosts.senders import AttemptOver, Sender, claimed, owned
from gonogo_service.jobs import closing, events
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.database.encoding import storable
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import OPEN_ATTEMPT, AttemptState, ChunkState, JobState
from gonogo_service.results import store as results

_OUTCOMES = {name: AttemptState(name) for name in ("done", "cancelled", "handed_back", "error")}
_RUNS = (ChunkState.sent, ChunkState.running, ChunkState.stopping)


@dataclass(frozen=True)
class Locked:
    """An attempt with its chunk and its job, under the job's lock."""

    session: Session
    job: JobRow
    chunk: ChunkRow
    attempt: AttemptRow
    now: datetime
    sender: Sender | None
    """The host that asks; None: none does, and nothing is checked."""

    @classmethod
    def read(
        cls, session: Session, attempt_id: str, now: datetime, sender: Sender | None = None
    ) -> Locked | None:
        """Lock an attempt's job, then read its chunk and itself.

        None where it doesn't exist; a host is told so by AttemptOver.
        """
        columns = AttemptRow.job_id, AttemptRow.chunk_id
        home = (
            is_id(attempt_id)
            and session.execute(select(*columns).where(AttemptRow.id == attempt_id)).one_or_none()
        )
        job = closing.lock(session, home.job_id) if home else None
        if not home or job is None:
            if sender is not None:
                raise AttemptOver("there is no such attempt")
            return None
        # its work is as long as the attempt's, and few requests need it
        chunk = session.get_one(
            ChunkRow, home.chunk_id, populate_existing=True, options=[defer(ChunkRow.work)]
        )
        attempt = session.get_one(AttemptRow, attempt_id, populate_existing=True)
        return cls(session, job, chunk, attempt, now, sender)

    @property
    def is_canceled(self) -> bool:
        """Return whether the worker should stop."""
        return _is_canceled(self.attempt.state, self.job.state, self.chunk.state)

    @property
    def is_current(self) -> bool:
        """Return whether the attempt is its chunk's, not an earlier one."""
        return self.chunk.attempt_id == self.attempt.id

    def begin(self) -> None:
        """Start the attempt, its chunk and its job."""
        job, chunk, attempt = self.job, self.chunk, self.attempt
        is_sent = attempt.state == AttemptState.sent and chunk.state == ChunkState.sent
        if not (is_sent and self.is_current):
            return
        attempt.state, chunk.state = AttemptState.running, ChunkState.running
        attempt.started_at = attempt.heard_at = self.now
        if job.state is JobState.queued:
            job.state, job.started_at, job.waiting_reason = JobState.running, self.now, None
            job.version += 1
            events.add(self.session, job, StateChange(JobState.running.value), now=self.now)
        self.session.flush()

    def lacks(self, work: Sequence[list[int]]) -> bool:
        """Return whether a result of the work isn't stored."""
        return bool(results.missing(self.session, self.job.id, work))

    def conclude(self, *, forced: bool = False) -> None:
        """End a reported attempt once all its results are stored, or when `forced`."""
        chunk, attempt, expected = self.chunk, self.attempt, self.attempt.expected or {}
        batches = expected.get("batches")
        complete = batches is None or len(attempt.batches) >= batches
        complete = complete and not self.lacks(expected.get("sent") or [])
        if not complete and not forced:
            return
        attempt.state = _OUTCOMES.get(str(expected.get("outcome")), AttemptState.error)
        if self.is_current and chunk.state in _RUNS:
            if attempt.state == AttemptState.handed_back:
                chunk.attempts, chunk.returns = chunk.attempts - 1, chunk.returns + 1
            lacking = f"the worker ended it as {attempt.state}"
            reason = attempt.error or (lacking if complete else "some results never arrived")
            self.session.flush()
            closing.resolve_chunk(self.session, self.job, chunk, reason, now=self.now)
        self.session.flush()

    def refuse(self, reason: str, words: str) -> None:
        """Hold something against the sender."""
        if self.sender is not None:
            refused_requests.record(self.session, self.sender.name, reason, words, now=self.now)


def claim(
    session: Session, attempt_id: str, worker: str, device: str, *, sender: Sender, now: datetime
) -> AttemptRow:
    """Give an attempt to a worker: it, its chunk and its job run.

    Raises AttemptOver for one that is over, canceled or unknown; OthersAttempt and ForeignSender as
    gonogo_service.hosts.senders.claimed.
    """
    locked = Locked.read(session, attempt_id, now, sender)
    unclaimed = (AttemptState.sent, AttemptState.running)
    if locked is None or locked.attempt.state not in unclaimed or locked.is_canceled:
        raise AttemptOver(f"the attempt {attempt_id} is over or canceled")
    claimed(locked.attempt, worker, device, sender)
    locked.begin()
    session.flush()
    return locked.attempt


def is_canceled(session: Session, attempt_id: str | None) -> bool:
    """Return whether a worker should stop an attempt: its job or its chunk is canceled or over."""
    if not attempt_id or not is_id(attempt_id):
        return False
    query = (
        select(AttemptRow.state, JobRow.state, ChunkRow.state)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .where(AttemptRow.id == attempt_id)
    )
    row = session.execute(query).one_or_none()
    return row is None or _is_canceled(*row)


def _is_canceled(attempt: str, job: JobState, chunk: str) -> bool:
    stops = job is JobState.cancelling or job.final or chunk == ChunkState.stopping
    return stops or attempt not in OPEN_ATTEMPT


def heartbeat(
    session: Session,
    attempt_id: str,
    *,
    seed: int | None,
    stage: str | None,
    now: datetime,
    worker: str | None = None,
) -> None:
    """Record that the attempt's worker is alive, and where it is.

    Takes no lock of the job: only the time of the heartbeat, the seed and the stage are written.
    With `worker`, only an attempt of this worker is alive.
    """
    if is_id(attempt_id):
        running = update(AttemptRow).where(
            AttemptRow.id == attempt_id, AttemptRow.state.in_(OPEN_ATTEMPT)
        )
        if worker is not None:
            running = running.where(AttemptRow.worker == worker)
        session.execute(running.values(heard_at=now, seed=seed, stage=stage))


def device_of(session: Session, attempt_id: str | None) -> str | None:
    """Return the device that an attempt runs on; None until its worker has reported it."""
    return (
        session.scalar(select(AttemptRow.device).where(AttemptRow.id == attempt_id))
        if attempt_id and is_id(attempt_id)
        else None
    )


def finished(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None,
) -> str | None:
    """Store the worker's final message on an attempt.

    Returns the job's id, or None when the attempt is over already. `sender` is as in batches.store.

    Batches may come after it, by another process of the API. Then the attempt is `reported`; it is
    concluded with the last batch, or by the reaper when that never comes.
    """
    locked = Locked.read(session, attempt_id, now, sender)
    if locked is None:
        return None
    attempt = locked.attempt
    owned(attempt, sender)
    if attempt.state not in (AttemptState.sent, AttemptState.running):
        return None
    locked.begin()
    attempt.state = AttemptState.reported
    attempt.finished_at = attempt.heard_at = now
    attempt.log_tail, attempt.error = storable(body.get("log_tail")), storable(body.get("error"))
    attempt.telemetry = body.get("telemetry") or None
    sent = body.get("sent") or []
    attempt.expected = {**{name: body.get(name) for name in ("outcome", "batches")}, "sent": sent}
    session.flush()
    locked.conclude()
    periods.record_attempt(session, attempt, now=now)
    return locked.job.id


def mark_lost(
    session: Session, attempt_id: str, reason: str, *, before: datetime, now: datetime
) -> str | None:
    """Give up an attempt that is still silent since `before`; queue its chunk again.

    Returns the job's id if it was given up. The chunk waits for its missing results only.
    """
    locked = Locked.read(session, attempt_id, now)
    if locked is None:
        return None
    attempt = locked.attempt
    if attempt.state not in OPEN_ATTEMPT or attempt.heard_at is None or attempt.heard_at >= before:
        return None
    if attempt.state == AttemptState.reported:
        locked.conclude(forced=True)
    else:
        attempt.state, attempt.finished_at, attempt.error = AttemptState.lost, now, reason
        session.flush()
        if locked.is_current:
            closing.resolve_chunk(session, locked.job, locked.chunk, reason, now=now)
        session.flush()
        periods.record_attempt(session, attempt, now=now)
    return locked.job.id


def silent_attempts(session: Session, state: AttemptState, *, before: datetime) -> list[AttemptRow]:
    """Return the attempts in a state whose last heartbeat was before a moment, oldest first."""
    silent = (AttemptRow.state == state, AttemptRow.heard_at < before)
    return list(session.scalars(select(AttemptRow).where(*silent).order_by(AttemptRow.id)))
