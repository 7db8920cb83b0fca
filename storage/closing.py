"""The end of things: chunks that close, jobs that finish, fail or are cancelled, and what is concluded from their numbers.

Everything here runs under the job's lock: `lock` first, then chunks, attempts and results; two "last" chunks can therefore not both
believe that another one is still open.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gonogo.selections import KERNEL, sample
from gonogo.verdicts import Verdict
from gonogo.verdicts import worst as worst_verdict
from storage import events, evidence, flags, outbox, results
from storage.dialect import insert_once
from storage.states import CLOSED_CHUNK, AttemptState, ChunkState, JobState
from storage.tables import AttemptRow, ChunkRow, JobRow, RollupRow, SeedResultRow, TestSpecRow

MAX_ATTEMPTS = 3
MAX_RETURNS = 20  # hand-backs don't count as attempts, but a worker that hands back for ever must not keep a job alive for ever
ASSESS = "assess"
"""The topic of the letter that has a closed job's variant assessed, outside of this transaction: statistics take their time."""
_MEANS = ("rms", "pcc_deficit")
_MAXIMA = ("tolerance_ratio", "budget_ratio", "chi", "max_abs", "row_z", "xhat_z", "scale_z")


def lock(session: Session, job_id: str) -> JobRow | None:
    """The job's row, locked until the transaction ends (FOR UPDATE; on SQLite the write transaction is the lock), freshly read."""
    return session.get(JobRow, job_id, with_for_update=True, populate_existing=True)


def settle(session: Session, job: JobRow, chunk: ChunkRow, why: str, *, now: datetime) -> None:
    """Decide what a chunk without a live attempt becomes: done, waiting again for what it misses, or given up."""
    stored = results.present(session, job.id, chunk.work)
    missing = [pair for pair in chunk.work if (pair[0], pair[1]) not in stored]
    if not missing:
        end_chunk(session, job, chunk, ChunkState.done, now=now)
    elif job.state not in (JobState.queued, JobState.running):
        end_chunk(session, job, chunk, ChunkState.lost, now=now)
    elif chunk.attempts < MAX_ATTEMPTS and chunk.returns < MAX_RETURNS:
        chunk.state = ChunkState.waiting
    else:
        message = f"no result after {chunk.attempts} attempts; the last one: {why}"
        attempt_id = chunk.attempt_id or chunk.id
        rows = [{"seed": seed, "repeat": repeat, "verdict": Verdict.error.value, "message": message} for seed, repeat in missing]
        record(session, job, attempt_id, rows, now=now)
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def record(session: Session, job: JobRow, attempt_id: str, rows: list[dict[str, Any]], *, now: datetime) -> None:
    """Store result rows known to be new and count them; events: one `progress`, and a `verdict` when a seed is the job's worst so far."""
    if not rows:
        return
    results.add(session, job.id, attempt_id, rows, arrival=job.done)
    before = worst_verdict([Verdict(name) for name in job.counts]) if job.counts else None
    counts = dict(job.counts)
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    job.counts = counts
    if job.kernel == KERNEL:
        job.outcomes = _outcomes(job.outcomes or {}, rows)
    job.done += len(rows)
    leader = min(rows, key=lambda row: (Verdict(row["verdict"]).rank, row["seed"], row["repeat"]))
    if before is None or Verdict(leader["verdict"]).rank < before.rank:
        shown = {name: leader.get(name) for name in ("repeat", "verdict", "explanation")}
        number = sample(session.get_one(TestSpecRow, job.test_key).canonical, leader["seed"])
        events.add(session, job, "verdict", {**number, **shown}, now=now)
    events.add(session, job, "progress", {"done": job.done, "total": job.total, "verdicts": counts}, now=now)


def _outcomes(before: dict[str, int], rows: list[dict[str, Any]]) -> dict[str, int]:
    """The tests of all iterations by outcome; an iteration without any test counts as what became of it."""
    found = Counter(before)
    for row in rows:
        told = [each["outcome"] for each in (row.get("outputs") or {}).values() if each.get("outcome")]
        found.update(told or [row["verdict"]])
    return dict(found)


def end_chunk(session: Session, job: JobRow, chunk: ChunkRow, state: ChunkState, *, now: datetime) -> None:
    """Close a chunk, and with the last one the job."""
    if chunk.state in CLOSED_CHUNK:
        return
    chunk.state = state
    job.open_chunks -= 1
    session.flush()
    if job.open_chunks == 0:
        close(session, job, now=now)


def withdraw(session: Session, job: JobRow, *, now: datetime) -> None:
    """Close all chunks that no worker has started, and have running attempts told to stop (through the outbox)."""
    open_chunks = select(ChunkRow).where(ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK))
    for chunk in list(session.scalars(open_chunks.execution_options(populate_existing=True))):
        if chunk.state != ChunkState.waiting and chunk.attempt_id is not None:
            outbox.add(session, "attempt.cancel", f"attempt.cancel:{chunk.attempt_id}", {"attempt": chunk.attempt_id}, now=now)
        if chunk.state != ChunkState.running:
            chunk.state = ChunkState.lost
            job.open_chunks -= 1
    session.flush()
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.job_id == job.id, AttemptRow.state == AttemptState.sent)
        .values(state=AttemptState.cancelled, finished_at=now)
        .execution_options(synchronize_session="fetch")
    )


def abandon(session: Session, job: JobRow, *, now: datetime) -> None:
    """End a cancelling job whose workers don't answer: its open chunks are closed without waiting any longer."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.job_id == job.id, AttemptRow.state.in_((AttemptState.running, AttemptState.reported)))
        .values(state=AttemptState.lost, finished_at=now, error="did not stop in time after the job was cancelled")
        .execution_options(synchronize_session="fetch")
    )
    open_chunks = select(ChunkRow).where(ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK))
    for chunk in list(session.scalars(open_chunks)):
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def fail(session: Session, job: JobRow, error: str, *, now: datetime) -> None:
    """End a job that can't be run, for a reason that says nothing about the kernel."""
    withdraw(session, job, now=now)
    open_chunks = select(ChunkRow).where(ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK))
    for chunk in list(session.scalars(open_chunks)):
        chunk.state = ChunkState.lost
    job.open_chunks = 0
    job.error = error
    _end(session, job, JobState.failed, Verdict.error, now=now)


def close(session: Session, job: JobRow, *, now: datetime) -> None:
    """End a job whose chunks are all closed: verdict, diagnosis, roll-ups, flags, and the letter for the webhooks."""
    state = JobState.cancelled if job.state == JobState.cancelling else JobState.finished
    verdict = worst_verdict([Verdict(name) for name in job.counts]) if job.counts else None
    if state is JobState.cancelled and verdict is Verdict.pass_:
        verdict = None  # seeds that never ran can't be green; what was found wrong stays found
    session.flush()
    job.diagnosis = evidence.diagnosis(session, job.id)
    _roll_up(session, job)
    for finding in evidence.findings(session, job):
        flags.upsert(session, finding, now=now)
    if job.done and job.reference is None:
        outbox.add(session, ASSESS, f"{ASSESS}:{job.id}", {"job": job.id}, now=now)
    _end(session, job, state, verdict, now=now)


def _end(session: Session, job: JobRow, state: JobState, verdict: Verdict | None, *, now: datetime) -> None:
    job.state = state
    job.verdict = None if verdict is None else verdict.value
    job.finished_at = now
    job.waiting_reason = None
    job.version += 1
    events.add(session, job, "state", {"state": state.value, "verdict": job.verdict}, now=now)
    outbox.add(session, "job.finished", f"job.finished:{job.id}", {"job": job.id, "version": job.version}, now=now)
    session.flush()


def _roll_up(session: Session, job: JobRow) -> None:
    table = SeedResultRow
    columns: dict[str, Any] = {name: func.max(getattr(table, name)) for name in _MAXIMA} | {
        name: func.avg(getattr(table, name)) for name in _MEANS
    }
    columns["duration_ms"], columns["seeds"] = func.avg(table.duration_ms), func.count()
    query = select(table.output, *(column.label(name) for name, column in columns.items()))
    rows = session.execute(query.where(table.job_id == job.id, table.output != "").group_by(table.output)).mappings()
    shared = {"job_id": job.id, "subject_key": job.subject_key, "test_key": job.test_key, "build": job.build, "executor": job.executor}
    insert_once(session, RollupRow, [{**shared, **row} for row in rows])
