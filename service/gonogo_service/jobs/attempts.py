"""Attempts: what a worker's message, or its silence, changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session, defer

from gonogo.reports.forms import SenselessResult
from gonogo_service.devices import periods
from gonogo_service.hosts import refused_requests
from gonogo_service.hosts.senders import (
    AttemptOver,
    ConflictingContent,
    ForeignSender,
    Sender,
    claimed,
    owned,
)
from gonogo_service.jobs import artifacts, closing, events
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.database.encoding import storable
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import OPEN_ATTEMPT, AttemptState, ChunkState, JobState
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch

MAX_BATCHES = 100_000
"""A worker sends two a second at the most, for two hours."""
_OUTCOMES = {name: AttemptState(name) for name in ("done", "cancelled", "handed_back", "error")}
_RUNS = (ChunkState.sent, ChunkState.running, ChunkState.stopping)


@dataclass(frozen=True)
class _Message:
    """A message about an attempt, read under the lock of its job."""

    session: Session
    job: JobRow
    chunk: ChunkRow
    attempt: AttemptRow
    now: datetime
    sender: Sender | None
    """None: no host sent it, and nothing is checked."""

    @classmethod
    def locked(
        cls, session: Session, attempt_id: str, now: datetime, sender: Sender | None
    ) -> _Message | None:
        """Lock an attempt's job, then read the chunk and the attempt; None where it is unknown."""
        if not is_id(attempt_id):
            return None
        home = session.execute(
            select(AttemptRow.job_id, AttemptRow.chunk_id).where(AttemptRow.id == attempt_id)
        ).one_or_none()
        job = None if home is None else closing.lock(session, home.job_id)
        if home is None or job is None:
            return None
        # its work is as long as the attempt's, and few messages need it
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

    def fresh(self, batch: Batch) -> Batch:
        """Return the rows that count and aren't stored yet.

        Others than those that are stored for the same seed are held against their sender.
        """
        counts_all = self.is_current and self.attempt.state in OPEN_ATTEMPT
        with_outputs = set() if counts_all else batch.with_outputs()
        places: dict[results.Pair, int] = {}
        for place, row in enumerate(batch.rows):
            if counts_all or place in with_outputs:
                places.setdefault((int(row["seed"]), int(row["repeat"])), place)
        left_out = {*_unrequested(places, self.attempt.work)}
        stored = results.present(self.session, self.job.id, list(places))
        if self.sender is not None and stored:
            again = batch.take(sorted(places[pair] for pair in stored))
            for words in results.contradicted(self.session, self.job.id, again)[:1]:
                self.refuse("conflict", words)
        left_out |= stored
        return batch.take([place for pair, place in places.items() if pair not in left_out])

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
    message = _Message.locked(session, attempt_id, now, sender)
    if message is None:
        raise AttemptOver("there is no such attempt")
    attempt = message.attempt
    if attempt.state not in (AttemptState.sent, AttemptState.running) or message.is_canceled:
        raise AttemptOver(f"the attempt {attempt.id} is over or canceled")
    claimed(attempt, worker, device, sender)
    message.begin()
    session.flush()
    return attempt


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


def store(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None,
    digest: str = "",
) -> str | None:
    """Store one batch of results: each (seed, repeat) without a row yet, and the artifacts.

    Returns the job's id when something changed. `sender` None: no host sent it, and nothing is
    checked. `digest` is the message's: a batch that comes twice changes nothing, and one of the
    same number with another content raises ConflictingContent.

    Rows without numbers (hang, crash, error) count only from the chunk's current attempt while it
    is open. Rows with numbers count from a lost attempt too. Results that the attempt was not asked
    for are dropped, and so are those of seeds that a decision has canceled.
    """
    message = _Message.locked(session, attempt_id, now, sender)
    if message is None:
        _unknown(sender)
        return None
    job, chunk, attempt = message.job, message.chunk, message.attempt
    owned(attempt, sender)
    number = _batch_number(body)
    if sender is not None and number is None:  # else nothing bounds what an attempt may send
        raise SenselessResult(f"the batch has the number {str(body.get('batch'))[:40]!r}")
    if digest and number is not None and number in attempt.batches:
        if attempt.batches[number] == digest:
            return None
        raise ConflictingContent(f"batch {number} of attempt {attempt.id} came with other content")
    if job.state.final or (job.sequential is not None and chunk.state == ChunkState.lost):
        return None
    was_open = message.is_current and attempt.state in OPEN_ATTEMPT
    message.begin()
    whole = Batch.parse(body)
    whole.check()
    others = {str(row.get("device")) for row in whole.rows} - {str(attempt.device)}
    if sender is not None and others:
        what = f"rows of {sorted(others)[0][:200]!r}"
        raise ForeignSender(f"{what} came for an attempt of {attempt.device}")
    batch = message.fresh(whole)
    closing.record(session, job, attempt.id, batch, now=now)
    evidence = _requested(body.get("artifacts") or (), attempt.work)
    if left_out := artifacts.add(session, job.id, attempt.id, evidence, now=now):
        most = f"{artifacts.MAX_BYTES} bytes of attempt {attempt.id}"
        message.refuse("size", f"{left_out} artifacts beyond {most}")
    if attempt.state in OPEN_ATTEMPT:
        attempt.heard_at = now
    if number is not None:
        attempt.batches = {**attempt.batches, number: digest}
    session.flush()
    closing.advance_sequential(session, job, now=now)
    if attempt.state == AttemptState.reported:
        message.conclude()
    elif not was_open and chunk.state == ChunkState.waiting and not message.lacks(chunk.work):
        closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
    session.flush()
    if batch.rows and kind_of(job).on_devices:
        device = attempt.device or batch.rows[0].get("device")
        periods.record_seeds(session, device, len(batch), now=now)
    return job.id


def _unknown(sender: Sender | None) -> None:
    """Raise AttemptOver for a host's request about an attempt that doesn't exist."""
    if sender is not None:
        raise AttemptOver("there is no such attempt")


def _batch_number(body: Mapping[str, Any]) -> str | None:
    number = body.get("batch")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_BATCHES:
        return None
    return str(number)


def _unrequested(
    pairs: Collection[results.Pair], work: Sequence[list[int]]
) -> Collection[results.Pair]:
    """Return the pairs that aren't in the work, of which there may be a hundred thousand."""

    def is_found(pair: results.Pair) -> bool:  # bisection finds it in work that is in order
        place = bisect_left(work, [*pair])
        return place < len(work) and work[place] == [*pair]

    others = [pair for pair in pairs if not is_found(pair)]
    return set(others) - set(map(tuple, work)) if others else ()


def _requested(
    items: Sequence[Mapping[str, Any]], work: Sequence[list[int]]
) -> list[Mapping[str, Any]]:
    """Return the artifacts of the attempt's work."""
    pairs = [(int(item["seed"]), int(item.get("repeat") or 0)) for item in items]
    others = set(_unrequested(set(pairs), work))
    return [item for item, pair in zip(items, pairs, strict=True) if pair not in others]


def finished(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None,
) -> str | None:
    """Store the worker's final message on an attempt.

    Returns the job's id, or None when the attempt is over already. `sender` is as in `store`.

    Batches may come after it, by another process of the API. Then the attempt is `reported`; it is
    concluded with the last batch, or by the reaper when that never comes.
    """
    message = _Message.locked(session, attempt_id, now, sender)
    if message is None:
        _unknown(sender)
        return None
    attempt = message.attempt
    owned(attempt, sender)
    if attempt.state not in (AttemptState.sent, AttemptState.running):
        return None
    message.begin()
    attempt.state = AttemptState.reported
    attempt.finished_at = attempt.heard_at = now
    attempt.log_tail, attempt.error = storable(body.get("log_tail")), storable(body.get("error"))
    attempt.telemetry = body.get("telemetry") or None
    sent = body.get("sent") or []
    attempt.expected = {**{name: body.get(name) for name in ("outcome", "batches")}, "sent": sent}
    session.flush()
    message.conclude()
    periods.record_attempt(session, attempt, now=now)
    return message.job.id


def mark_lost(
    session: Session, attempt_id: str, reason: str, *, before: datetime, now: datetime
) -> str | None:
    """Give up an attempt that is still silent since `before`; queue its chunk again.

    Returns the job's id if it was given up. The chunk waits for its missing results only.
    """
    message = _Message.locked(session, attempt_id, now, sender=None)
    if message is None:
        return None
    attempt = message.attempt
    if attempt.state not in OPEN_ATTEMPT or attempt.heard_at is None or attempt.heard_at >= before:
        return None
    if attempt.state == AttemptState.reported:
        message.conclude(forced=True)
    else:
        attempt.state, attempt.finished_at, attempt.error = AttemptState.lost, now, reason
        session.flush()
        if message.is_current:
            closing.resolve_chunk(session, message.job, message.chunk, reason, now=now)
        session.flush()
        periods.record_attempt(session, attempt, now=now)
    return message.job.id


def silent_attempts(session: Session, state: AttemptState, *, before: datetime) -> list[AttemptRow]:
    """Return the attempts in a state whose last heartbeat was before a moment, oldest first."""
    silent = (AttemptRow.state == state, AttemptRow.heard_at < before)
    return list(session.scalars(select(AttemptRow).where(*silent).order_by(AttemptRow.id)))
