"""End chunks and jobs: done, lost, failed or canceled.

Every function here runs under the job's lock. Lock the job first (`lock`), then chunks, attempts
and results. So two "last" chunks can't each believe that the other one is still open.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs import events, sequential, work
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import CLOSED_CHUNK, AttemptState, ChunkState, JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch

MAX_ATTEMPTS = 3
# hand-backs don't count as attempts, but endless hand-backs must not keep a job alive
MAX_RETURNS = 20
LIVE = (JobState.queued, JobState.running)


def lock(session: Session, job_id: str) -> JobRow | None:
    """Lock a job's row until the transaction ends, and return it freshly read.

    The lock is FOR UPDATE; on SQLite it is the write transaction.
    """
    if not is_id(job_id):
        return None
    return session.get(JobRow, job_id, with_for_update=True, populate_existing=True)


def record(session: Session, job: JobRow, attempt_id: str, batch: Batch, *, now: datetime) -> None:
    """Store new results and count them; the caller has removed what is stored already."""
    if batch.rows and job.seeds_removed_at is None:  # else the sums are final
        kind_of(job).record(session, job, attempt_id, batch, now=now)


def resolve_chunk(
    session: Session, job: JobRow, chunk: ChunkRow, reason: str, *, now: datetime
) -> None:
    """Close a chunk without a live attempt, or queue it again for its missing results.

    After MAX_ATTEMPTS attempts (or MAX_RETURNS hand-backs), each missing result becomes an error
    row with `reason`, and the chunk is lost.
    """
    missing = results.missing(session, job.id, chunk.work)
    if not missing:
        end_chunk(session, job, chunk, ChunkState.done, now=now)
    elif job.state not in LIVE or not _still_needed(job, chunk):
        end_chunk(session, job, chunk, ChunkState.lost, now=now)
    elif chunk.attempts < MAX_ATTEMPTS and chunk.returns < MAX_RETURNS:
        chunk.state = ChunkState.waiting
    else:
        message = f"no result after {chunk.attempts} attempts; the last one: {reason}"
        rows = [
            {"seed": seed, "repeat": repeat, "verdict": Verdict.error.value, "message": message}
            for seed, repeat in missing
        ]
        record(session, job, chunk.attempt_id or chunk.id, Batch.of(rows), now=now)
        advance_sequential(session, job, now=now)
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def _still_needed(job: JobRow, chunk: ChunkRow) -> bool:
    """Return whether the job still needs the missing results of a chunk.

    It doesn't once its seeds have decided, or once it knows that they will before the chunk's first
    seed.
    """
    decided = job.stop is not None and chunk.attempt_id == (
        job.sequential and job.sequential.finder
    )
    return chunk.state != ChunkState.stopping and not decided


def end_chunk(
    session: Session, job: JobRow, chunk: ChunkRow, state: ChunkState, *, now: datetime
) -> None:
    """Close a chunk, and with the last one the job."""
    if chunk.state in CLOSED_CHUNK:
        return
    chunk.state = state
    job.open_chunks -= 1
    session.flush()
    if job.open_chunks == 0:
        close(session, job, now=now)


def advance_sequential(session: Session, job: JobRow, *, now: datetime) -> None:
    """Check whether the stored results of sequential seeds decide, and cancel unneeded chunks.

    The job is finished when the running attempts have ended. Rows that they send until then count,
    later ones don't. The attempt that found a kernel wrong runs to the end of its chunk, because
    its artifacts come last.
    """
    step = sequential.advance(session, job) if job.state in LIVE else None
    if step is None:
        return
    if job.stop is None:
        if step.beyond is not None:
            cancel_open_chunks(session, job, now=now, after_seed=step.beyond)
        return
    change = StateChange(job.state, reason=job.stop.words, stop=job.stop)
    events.add(session, job, change, now=now)
    finder = job.sequential.finder if job.sequential else None
    cancel_open_chunks(session, job, now=now, except_attempt=finder)
    if job.open_chunks == 0:
        close(session, job, now=now)


def cancel_open_chunks(
    session: Session,
    job: JobRow,
    *,
    now: datetime,
    after_seed: int = -1,
    except_attempt: str | None = None,
) -> None:
    """Close all chunks that no worker has started, and ask running attempts to stop.

    Each answer to their workers says so. after_seed: only chunks whose first seed is larger.
    except_attempt: an attempt that may continue.
    """
    job.cancel_at = now
    work.drop(session, job, after_seed=after_seed)
    unstarted: list[str] = []
    for chunk in _open_chunks(session, job):
        is_running = chunk.state in (ChunkState.running, ChunkState.stopping)
        may_continue = chunk.state == ChunkState.running and chunk.attempt_id == except_attempt
        if chunk.work[0][0] <= after_seed or may_continue:
            continue
        if is_running:
            chunk.state = ChunkState.stopping
        else:
            chunk.state = ChunkState.lost
            job.open_chunks -= 1
            unstarted.append(chunk.id)
    session.flush()
    sent = (AttemptRow.job_id == job.id) & (AttemptRow.state == AttemptState.sent)
    session.execute(
        update(AttemptRow)
        .where(sent if after_seed < 0 else sent & AttemptRow.chunk_id.in_(unstarted))
        .values(state=AttemptState.cancelled, finished_at=now)
        .execution_options(synchronize_session="fetch")
    )


def close_unresponsive_chunks(session: Session, job: JobRow, *, now: datetime) -> None:
    """Close chunks whose workers were asked to stop and don't answer.

    For a job that is being canceled these are all open chunks; for a decided one, those that the
    decision doesn't need.
    """
    left_alone = (
        CLOSED_CHUNK
        if job.state is JobState.cancelling
        else set(ChunkState) - {ChunkState.stopping}
    )
    unresponsive = _open_chunks(session, job, except_states=left_alone)
    session.execute(
        update(AttemptRow)
        .where(
            AttemptRow.chunk_id.in_([chunk.id for chunk in unresponsive]),
            AttemptRow.state.in_((AttemptState.running, AttemptState.reported)),
        )
        .values(
            state=AttemptState.lost,
            finished_at=now,
            error="did not stop in time after it was asked to",
        )
        .execution_options(synchronize_session="fetch")
    )
    for chunk in unresponsive:
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def _open_chunks(
    session: Session, job: JobRow, except_states: Collection[ChunkState] = CLOSED_CHUNK
) -> list[ChunkRow]:
    query = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(list(except_states))
    )
    return list(session.scalars(query.execution_options(populate_existing=True)))


def fail(session: Session, job: JobRow, error: str, *, now: datetime) -> None:
    """End a job that can't run, for a reason that isn't the kernel's."""
    cancel_open_chunks(session, job, now=now)
    for chunk in _open_chunks(session, job):
        chunk.state = ChunkState.lost
    job.open_chunks, job.error, job.verdict = 0, error, Verdict.error
    _end(session, job, JobState.failed, now=now)


def close(session: Session, job: JobRow, *, now: datetime) -> None:
    """End a job whose chunks are all closed, or give it more work (jobs/kinds.py)."""
    state = JobState.cancelled if job.state is JobState.cancelling else JobState.finished
    if kind_of(job).conclude(session, job, state, now=now):
        _end(session, job, state, now=now)


def _end(session: Session, job: JobRow, state: JobState, *, now: datetime) -> None:
    job.state, job.finished_at, job.waiting_reason = state, now, None
    job.version += 1
    change = StateChange(state.value, job.verdict, stop=job.stop, suspects=job.suspects)
    events.add(session, job, change, now=now)
    topic = kind_of(job).topic
    outbox.add(
        session, topic, f"{topic}:{job.id}", {"job": job.id, "version": job.version}, now=now
    )
    session.flush()
