"""Attempts: publish, start, heartbeat, store results, report, lose.

Everything that a worker's message, or its silence, changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, aliased, defer

from gonogo.reports.forms import SenselessResult
from gonogo.spec.executors import EMULATOR
from gonogo_service.builds.model import BuildRow
from gonogo_service.devices import periods
from gonogo_service.gauges import gauge_work
from gonogo_service.hosts import refused_messages
from gonogo_service.hosts.senders import ConflictingContent, ForeignSender, Sender, bind
from gonogo_service.jobs import artifacts, closing, events
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.hang_limits import expected_seed_s
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.database.encoding import storable
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import (
    OPEN_ATTEMPT,
    AttemptState,
    ChunkState,
    JobKind,
    JobState,
)
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch
from gonogo_service.tests.model import TestSpecRow

MAX_BATCHES = 100_000
"""A worker sends two a second at the most, for two hours."""
MAX_UNPUBLISHED = 200
"""Attempts that the dispatcher publishes in one turn."""
WORST_ARTIFACTS = 3
"""The seeds of a chunk, besides its first ones, whose artifacts a worker sends."""
_OUTCOMES = {
    "done": AttemptState.done,
    "cancelled": AttemptState.cancelled,
    "handed_back": AttemptState.handed_back,
    "error": AttemptState.error,
}


@dataclass(frozen=True)
class Sendable:
    """An attempt to publish; `message` is the body of `run_chunk`, without its time limits."""

    attempt: str
    job: str
    queue: str
    message: dict[str, Any]
    seed_s: float | None
    """The seconds that a seed is expected to take; None if nobody knows."""

    @property
    def work(self) -> list[Any]:
        """Return its pairs [seed, repeat]."""
        work: list[Any] = self.message["work"]
        return work


def unpublished(session: Session, broker_generation: str) -> list[Sendable]:
    """Return the attempts, oldest first, that this broker generation hasn't received.

    Only attempts that no worker has started.
    """
    build, other = aliased(BuildRow), aliased(BuildRow)
    query = (
        select(AttemptRow, ChunkRow, JobRow, TestSpecRow.canonical, build, other)
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(TestSpecRow, JobRow.test_key == TestSpecRow.key)
        .outerjoin(build, (build.name == JobRow.build) & (build.executor == JobRow.executor))
        .outerjoin(other, (other.name == JobRow.reference) & (other.executor == JobRow.executor))
        .where(
            AttemptRow.state == AttemptState.sent,
            or_(AttemptRow.epoch.is_(None), AttemptRow.epoch != broker_generation),
        )
        .order_by(AttemptRow.id)
        .limit(MAX_UNPUBLISHED)
    )
    return [_sendable(session, *row) for row in session.execute(query)]


def _sendable(
    session: Session,
    attempt: AttemptRow,
    chunk: ChunkRow,
    job: JobRow,
    canonical: dict[str, Any],
    build: BuildRow | None,
    other: BuildRow | None,
) -> Sendable:
    """Return an attempt with the build's name, never how to run it."""
    message = {
        "attempt": attempt.id,
        "chunk": chunk.id,
        "job": job.id,
        "test": canonical,
        "work": attempt.work,
        "build": job.build,
        "target": {"executor": job.executor, "arch": job.arch, "board": job.board},
        "context": job.context,
        # the registered build's; null: the worker's host knows, or it is found
        **_declared(build),
        "reference": job.reference and {"build": job.reference, **_declared(other)},
        "artifacts": {"first": chunk.number == 0, "worst": WORST_ARTIFACTS},
        "gauge": None,
    }
    guess_s = chunk.estimate_s / len(chunk.work)
    seed_s = expected_seed_s(session, job.workload_key, job.executor, guess_s)
    if job.kind is JobKind.gauge:  # its `work` lists (seed, number of the part)
        fields = gauge_work.message_fields(session, job.id, canonical, attempt.work)
        executor = fields.pop("executor")
        # a gauge runs other builds, too, and of those only the emulator's are alike
        seed_s = seed_s if executor == EMULATOR else None
        message |= {"artifacts": {"first": False, "worst": 0}, **fields}
        message["target"]["executor"] = executor
    return Sendable(attempt.id, job.id, attempt.queue, message, seed_s)


def _declared(build: BuildRow | None) -> dict[str, Any]:
    return {name: build and getattr(build, name) for name in ("arithmetic", "outputs")}


def published(
    session: Session, attempt_ids: Sequence[str], broker_generation: str, *, now: datetime
) -> None:
    """Record that the broker accepted these attempts; from now on their workers' silence counts."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.id.in_(attempt_ids))
        .values(epoch=broker_generation, heard_at=now)
    )


def started(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None = None,
) -> str | None:
    """Record that a worker began the attempt: it, its chunk and its job run.

    Returns the job's id, or None when the attempt is over already. Raises ForeignSender for the
    attempt of another host (as `store` and `finished` do); without a sender nothing is checked.
    """
    locked = _locked(session, attempt_id)
    if locked is None:
        return None
    job, chunk, attempt = locked
    if attempt.state not in OPEN_ATTEMPT or (sender is None and attempt.worker is not None):
        return None
    was_bound = attempt.host_id is not None
    bind(attempt, body, sender)
    if was_bound:
        return None
    _begin(session, job, chunk, attempt, now=now)
    for name in ("worker", "device", "host_run"):
        setattr(attempt, name, body.get(name))
    if sender is None:  # else `bind` has named the host that sealed the message
        attempt.host = body.get("host")
    session.flush()
    return job.id


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


def is_unbound(session: Session, attempt_id: str) -> bool:
    """Return whether an attempt waits for the first message of a worker."""
    query = select(AttemptRow.id).where(
        AttemptRow.id == attempt_id,
        AttemptRow.host_id.is_(None),
        AttemptRow.state == AttemptState.sent,
    )
    return is_id(attempt_id) and session.scalar(query) is not None


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
    sender: Sender | None = None,
    digest: str = "",
) -> str | None:
    """Store one batch of results: each (seed, repeat) without a row yet, and the artifacts.

    Returns the job's id when something changed. `digest` is the message's: a batch that comes twice
    changes nothing, and one of the same number with another content raises ConflictingContent.

    Rows without numbers (hang, crash, error) count only from the chunk's current attempt while it
    is open. Rows with numbers count from a lost attempt too. Results that the attempt was not asked
    for are dropped, and so are those of seeds that a decision has canceled.
    """
    locked = _locked(session, attempt_id)
    if locked is None:
        return None
    job, chunk, attempt = locked
    bind(attempt, body, sender)
    number = _batch_number(body)
    if sender is not None and number is None:  # else nothing bounds what an attempt may send
        raise SenselessResult(f"the batch has the number {str(body.get('batch'))[:40]!r}")
    if digest and number is not None and number in attempt.batches:
        if attempt.batches[number] == digest:
            return None
        raise ConflictingContent(f"batch {number} of attempt {attempt.id} came with other content")
    if job.state.final or (job.sequential is not None and chunk.state == ChunkState.lost):
        return None
    current = chunk.attempt_id == attempt.id and attempt.state in OPEN_ATTEMPT
    _begin(session, job, chunk, attempt, now=now)
    whole = Batch.parse(body)
    whole.check()
    if sender is not None:
        _check_devices(attempt, whole)
    batch = _fresh(session, job, attempt, whole, current=current, sender=sender, now=now)
    closing.record(session, job, attempt.id, batch, now=now)
    evidence = _requested(body.get("artifacts") or (), attempt.work)
    left_out = artifacts.add(session, job.id, attempt.id, evidence, now=now)
    if left_out and sender is not None:
        words = f"{left_out} artifacts beyond {artifacts.MAX_BYTES} bytes of attempt {attempt.id}"
        refused_messages.record(session, sender.name, "size", words, now=now)
    if attempt.state in OPEN_ATTEMPT:
        attempt.heard_at = now
    if number is not None:
        attempt.batches = {**attempt.batches, number: digest}
    session.flush()
    closing.advance_sequential(session, job, now=now)
    if attempt.state == AttemptState.reported:
        _conclude(session, job, chunk, attempt, now=now)
    elif (
        not current
        and chunk.state == ChunkState.waiting
        and not _missing(session, job.id, chunk.work)
    ):
        closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
    session.flush()
    if batch.rows and kind_of(job).on_devices:
        device = attempt.device or batch.rows[0].get("device")
        periods.record_seeds(session, device, len(batch), now=now)
    return job.id


def _batch_number(body: Mapping[str, Any]) -> str | None:
    number = body.get("batch")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_BATCHES:
        return None
    return str(number)


def _unrequested(
    pairs: Collection[results.Pair], work: Sequence[list[int]]
) -> Collection[results.Pair]:
    """Return the pairs that aren't in the work, of which there may be a hundred thousand."""

    def is_found(pair: results.Pair) -> bool:  # at once where the work is in order, as it nearly is
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


def _check_devices(attempt: AttemptRow, batch: Batch) -> None:
    """Raise ForeignSender unless every row ran on the attempt's device."""
    others = {str(row.get("device")) for row in batch.rows} - {str(attempt.device)}
    if others:
        raise ForeignSender(
            f"rows of {sorted(others)[0][:200]!r} came for an attempt of {attempt.device}"
        )


def _fresh(
    session: Session,
    job: JobRow,
    attempt: AttemptRow,
    batch: Batch,
    *,
    current: bool,
    sender: Sender | None,
    now: datetime,
) -> Batch:
    """Return the rows that count and aren't stored yet.

    Others than those that are stored for the same seed are held against their sender.
    """
    with_outputs = set() if current else batch.with_outputs()
    places: dict[results.Pair, int] = {}
    for place, row in enumerate(batch.rows):
        if current or place in with_outputs:
            places.setdefault((int(row["seed"]), int(row["repeat"])), place)
    unrequested = _unrequested(places, attempt.work)
    stored = results.present(session, job.id, list(places))
    if sender is not None and stored:
        again = batch.take(sorted(places[pair] for pair in stored))
        for words in results.contradicted(session, job.id, again)[:1]:
            refused_messages.record(session, sender.name, "conflict", words, now=now)
    return batch.take(
        [place for pair, place in places.items() if pair not in stored and pair not in unrequested]
    )


def finished(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None = None,
) -> str | None:
    """Store the worker's final message on an attempt.

    Returns the job's id, or None when the attempt is over already.

    Batches may still be on their way in another ingest process. Then the attempt is `reported`; it
    is concluded with the last batch, or by the reaper when that never comes.
    """
    locked = _locked(session, attempt_id)
    if locked is None:
        return None
    job, chunk, attempt = locked
    bind(attempt, body, sender)
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
    periods.record_attempt(session, attempt, now=now)
    return job.id


def silent_attempts(session: Session, state: AttemptState, *, before: datetime) -> list[AttemptRow]:
    """Return the attempts in a state whose last heartbeat was before a moment, oldest first."""
    silent = (AttemptRow.state == state, AttemptRow.heard_at < before)
    return list(session.scalars(select(AttemptRow).where(*silent).order_by(AttemptRow.id)))


def mark_lost(
    session: Session, attempt_id: str, reason: str, *, before: datetime, now: datetime
) -> str | None:
    """Give up an attempt that is still silent since `before`; queue its chunk again.

    Returns the job's id if it was given up. The chunk waits for its missing results only.
    """
    locked = _locked(session, attempt_id)
    if locked is None:
        return None
    job, chunk, attempt = locked
    if attempt.state not in OPEN_ATTEMPT or attempt.heard_at is None or attempt.heard_at >= before:
        return None
    if attempt.state == AttemptState.reported:
        _conclude(session, job, chunk, attempt, now=now, forced=True)
    else:
        attempt.state, attempt.finished_at, attempt.error = AttemptState.lost, now, reason
        session.flush()
        if chunk.attempt_id == attempt.id:
            closing.resolve_chunk(session, job, chunk, reason, now=now)
        session.flush()
        periods.record_attempt(session, attempt, now=now)
    session.flush()
    return job.id


def to_cancel(session: Session) -> list[str]:
    """Return the running attempts that were asked to stop: their job is canceled or decided.

    Their keys must be in the broker even if the broker lost them.
    """
    asked_to_stop = (JobRow.state == JobState.cancelling) | (ChunkRow.state == ChunkState.stopping)
    query = (
        select(AttemptRow.id)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .where(AttemptRow.state == AttemptState.running, asked_to_stop)
    )
    return list(session.scalars(query))


def _locked(session: Session, attempt_id: str) -> tuple[JobRow, ChunkRow, AttemptRow] | None:
    """Lock an attempt's job, then read the chunk and the attempt after that."""
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
    # its work is as long as the attempt's, and few messages need it
    chunk = session.get_one(
        ChunkRow, home.chunk_id, populate_existing=True, options=[defer(ChunkRow.work)]
    )
    return job, chunk, session.get_one(AttemptRow, attempt_id, populate_existing=True)


def _begin(
    session: Session, job: JobRow, chunk: ChunkRow, attempt: AttemptRow, *, now: datetime
) -> None:
    """Start the attempt, its chunk and its job at the worker's first message.

    That isn't always "started", which travels in another queue.
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
        events.add(session, job, StateChange(JobState.running.value), now=now)
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
    """End a reported attempt once all its results are stored, or when `forced`."""
    expected = attempt.expected or {}
    batches = expected.get("batches")
    complete = not _missing(session, job.id, expected.get("sent") or []) and (
        batches is None or len(attempt.batches) >= batches
    )
    if not complete and not forced:
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
        reason = attempt.error or (
            "some results never arrived"
            if not complete
            else f"the worker ended it as {attempt.state}"
        )
        closing.resolve_chunk(session, job, chunk, reason, now=now)
