"""The end of things: chunks that close, jobs that finish, fail or are cancelled, and what is
concluded from their numbers.

Everything here runs under the job's lock: `lock` first, then chunks, attempts and results; two
"last" chunks can therefore not both believe that another one is still open.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gonogo.spec.selections import KERNEL, sample
from gonogo.spec.verdicts import Verdict
from gonogo.spec.verdicts import worst as worst_verdict
from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.states import CLOSED_CHUNK, AttemptState, ChunkState, JobKind, JobState
from gonogo_storage.flags import evidence, flags, suspects
from gonogo_storage.gauges import gauge_ends, gauge_rows
from gonogo_storage.history.assessment_requests import ASSESS, assess_anew
from gonogo_storage.jobs import chunking, seed_grids, sequential
from gonogo_storage.messages import events, outbox
from gonogo_storage.rollups import rollups
from gonogo_storage.rollups.variants import variants_of
from gonogo_storage.seeds import results
from gonogo_storage.tables import (
    AttemptRow,
    ChunkRow,
    JobRow,
    RollupRow,
    SeedResultRow,
    TestSpecRow,
)

MAX_ATTEMPTS = 3
# hand-backs don't count as attempts, but a worker that hands back for ever must not keep a job
# alive for ever
MAX_RETURNS = 20
_LIVE = (JobState.queued, JobState.running)
_MEANS = ("rms", "pcc_deficit")
_MAXIMA = ("tolerance_ratio", "budget_ratio", "chi", "max_abs", "row_z", "xhat_z", "scale_z")


def lock(session: Session, job_id: str) -> JobRow | None:
    """The job's row, locked until the transaction ends (FOR UPDATE; on SQLite the write transaction
    is the lock), freshly read.
    """
    return session.get(JobRow, job_id, with_for_update=True, populate_existing=True)


def settle(session: Session, job: JobRow, chunk: ChunkRow, why: str, *, now: datetime) -> None:
    """Decide what a chunk without a live attempt becomes: done, waiting again for what it misses,
    or given up.
    """
    stored = results.present(session, job.id, chunk.work)
    missing = [pair for pair in chunk.work if (pair[0], pair[1]) not in stored]
    if not missing:
        end_chunk(session, job, chunk, ChunkState.done, now=now)
    elif job.state not in _LIVE or not _needed(job, chunk):
        end_chunk(session, job, chunk, ChunkState.lost, now=now)
    elif chunk.attempts < MAX_ATTEMPTS and chunk.returns < MAX_RETURNS:
        chunk.state = ChunkState.waiting
    else:
        message = f"no result after {chunk.attempts} attempts; the last one: {why}"
        attempt_id = chunk.attempt_id or chunk.id
        rows = [
            {"seed": seed, "repeat": repeat, "verdict": Verdict.error.value, "message": message}
            for seed, repeat in missing
        ]
        record(session, job, attempt_id, rows, now=now)
        look(session, job, now=now)
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def _needed(job: JobRow, chunk: ChunkRow) -> bool:
    """Whether what a chunk misses is still wanted: not once its job is decided, or knows that it
    will be before the chunk's first seed.
    """
    return chunk.state != ChunkState.stopping and (
        job.stop is None or chunk.attempt_id != job.stop.get("finder")
    )


def record(
    session: Session, job: JobRow, attempt_id: str, rows: list[dict[str, Any]], *, now: datetime
) -> None:
    """Store result rows known to be new and count them, for the job and in the roll-ups of its
    test.

    Events: a `verdict` when a seed is the job's worst so far, and one `progress`, which also keeps
    the day that the rows belong to.
    """
    if not rows:
        return
    if job.kind == JobKind.gauge:
        done = gauge_rows.add(session, job.id, attempt_id, rows, now=now)
        events.add(
            session, job, "progress", {"done": done, "total": job.total, "verdicts": {}}, now=now
        )
        return
    first = job.done + 1
    parts = results.add(session, job.id, attempt_id, rows, arrival=job.done)
    seed_grids.fill(session, job, rows)
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
    events.add(
        session,
        job,
        "progress",
        {"done": job.done, "total": job.total, "verdicts": counts},
        now=now,
    )
    rollups.add(
        session, job, parts, first=first, now=now
    )  # last: from here to the commit other jobs of the test wait


def _outcomes(before: dict[str, int], rows: list[dict[str, Any]]) -> dict[str, int]:
    """The tests of all iterations by outcome; an iteration without any test counts as what became
    of it.
    """
    found = Counter(before)
    for row in rows:
        told = [
            each["outcome"] for each in (row.get("outputs") or {}).values() if each.get("outcome")
        ]
        found.update(told or [row["verdict"]])
    return dict(found)


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


def look(session: Session, job: JobRow, *, now: datetime) -> None:
    """Of sequential seeds: see whether the results stored so far decide; what can't be needed any
    more is then withdrawn.

    The job is finished when the attempts that still run have ended; rows that they send until then
    are kept and count, later ones don't. The attempt that found a kernel wrong runs to the end of
    its chunk, for its diagnosis comes last.
    """
    step = sequential.advance(session, job) if job.state in _LIVE else None
    if step is None:
        return
    if not step.decided:
        if step.beyond is not None:
            withdraw(session, job, now=now, behind=step.beyond)
        return
    told = sequential.told(job) or {}
    events.add(
        session,
        job,
        "state",
        {"state": job.state, "verdict": None, "reason": told["words"], "stop": told},
        now=now,
    )
    withdraw(session, job, now=now, but=(job.stop or {})["finder"])
    if job.open_chunks == 0:
        close(session, job, now=now)


def withdraw(
    session: Session, job: JobRow, *, now: datetime, behind: int = -1, but: str | None = None
) -> None:
    """Close all chunks that no worker has started, and have running attempts told to stop (through
    the outbox).

    behind: only chunks whose first seed is larger. but: an attempt that may go on.
    """
    open_chunks = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK)
    )
    job.cancel_at = now
    dropped: list[str] = []
    for chunk in list(session.scalars(open_chunks.execution_options(populate_existing=True))):
        if chunk.work[0][0] <= behind or (
            chunk.state == ChunkState.running and chunk.attempt_id == but
        ):
            continue
        if chunk.state != ChunkState.waiting and chunk.attempt_id is not None:
            outbox.add(
                session,
                "attempt.cancel",
                f"attempt.cancel:{chunk.attempt_id}",
                {"attempt": chunk.attempt_id},
                now=now,
            )
        if chunk.state in (ChunkState.running, ChunkState.stopping):
            chunk.state = ChunkState.stopping
        else:
            chunk.state = ChunkState.lost
            job.open_chunks -= 1
            dropped.append(chunk.id)
    session.flush()
    unstarted = (AttemptRow.job_id == job.id) & (AttemptRow.state == AttemptState.sent)
    session.execute(
        update(AttemptRow)
        .where(unstarted if behind < 0 else unstarted & AttemptRow.chunk_id.in_(dropped))
        .values(state=AttemptState.cancelled, finished_at=now)
        .execution_options(synchronize_session="fetch")
    )


def abandon(session: Session, job: JobRow, *, now: datetime) -> None:
    """The workers that were told to stop don't answer: their chunks are closed without waiting any
    longer.

    Of a job that is being cancelled these are all; of a decided one those that the decision doesn't
    need.
    """
    told = select(ChunkRow).where(ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK))
    if job.state != JobState.cancelling:
        told = told.where(ChunkRow.state == ChunkState.stopping)
    left = list(session.scalars(told))
    session.execute(
        update(AttemptRow)
        .where(
            AttemptRow.chunk_id.in_([chunk.id for chunk in left]),
            AttemptRow.state.in_((AttemptState.running, AttemptState.reported)),
        )
        .values(
            state=AttemptState.lost,
            finished_at=now,
            error="did not stop in time after it was told to",
        )
        .execution_options(synchronize_session="fetch")
    )
    for chunk in left:
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def fail(session: Session, job: JobRow, error: str, *, now: datetime) -> None:
    """End a job that can't be run, for a reason that says nothing about the kernel."""
    withdraw(session, job, now=now)
    open_chunks = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK)
    )
    for chunk in list(session.scalars(open_chunks)):
        chunk.state = ChunkState.lost
    job.open_chunks = 0
    job.error = error
    _end(session, job, JobState.failed, Verdict.error, now=now)


def close(session: Session, job: JobRow, *, now: datetime) -> None:
    """End a job whose chunks are all closed: verdict, diagnosis, roll-ups, flags, and the letter
    for the webhooks.

    One with suspect seeds may get more seeds instead (gonogo_storage/flags/suspects.py), and ends when
    those are there.
    """
    state = JobState.cancelled if job.state == JobState.cancelling else JobState.finished
    if job.kind == JobKind.gauge:
        if gauge_ends.conclude(session, job, state, now=now):
            _end(session, job, state, None, now=now)
            _graded(session, job, now=now)
        return
    if state is JobState.finished and job.kind == JobKind.seeds:
        sequential.settle(session, job)
        if more := suspects.consider(session, job):
            _add(session, job, more, now=now)
            return
    verdict = worst_verdict(suspects.verdicts(session, job)) if job.counts else None
    if state is JobState.cancelled and verdict is Verdict.pass_:
        verdict = None  # seeds that never ran can't be green; what was found wrong stays found
    session.flush()
    job.diagnosis = evidence.diagnosis(session, job.id)
    _roll_up(session, job)
    for finding in (*evidence.findings(session, job), *suspects.findings(session, job)):
        flags.upsert(session, finding, now=now)
    if job.done and job.reference is None:
        outbox.add(session, ASSESS, f"{ASSESS}:{job.id}", {"job": job.id}, now=now)
    _end(session, job, state, verdict, now=now)


def _graded(session: Session, gauge: JobRow, *, now: datetime) -> None:
    """Sharpness is part of a grade: the test that was gauged is assessed anew, on every line of
    builds of that board.
    """
    for each in variants_of(session, gauge.test_key):
        if (each.arch, each.board) == (gauge.arch, gauge.board):
            assess_anew(session, each, f"gauge:{gauge.id}", now=now)


def _add(session: Session, job: JobRow, seeds: list[int], *, now: datetime) -> None:
    """More seeds for a job whose chunks are all closed, in parts no longer than its longest so
    far.
    """
    chunks = list(session.scalars(select(ChunkRow).where(ChunkRow.job_id == job.id)))
    longest = max(chunks, key=lambda chunk: len(chunk.work))
    repeats = int(job.request.get("repeats", 1))
    parts = chunking.cut(seeds, repeats, 1.0, float(len(longest.work)))
    chunking.add(
        session,
        job.id,
        job.queue,
        parts,
        longest.estimate_s / len(longest.work),
        first=job.chunk_count,
    )
    job.chunk_count += len(parts)
    job.open_chunks += len(parts)
    job.total += len(seeds) * repeats
    job.version += 1
    told = {**(job.suspects or {}), "added": seeds}
    events.add(
        session,
        job,
        "state",
        {"state": job.state, "verdict": None, "reason": told["words"], "suspects": told},
        now=now,
    )
    events.add(
        session,
        job,
        "progress",
        {"done": job.done, "total": job.total, "verdicts": job.counts},
        now=now,
    )
    session.flush()


def _end(
    session: Session, job: JobRow, state: JobState, verdict: Verdict | None, *, now: datetime
) -> None:
    job.state = state
    job.verdict = None if verdict is None else verdict.value
    job.finished_at = now
    job.waiting_reason = None
    job.version += 1
    said = {
        name: value
        for name, value in (("stop", sequential.told(job)), ("suspects", job.suspects))
        if value is not None
    }
    events.add(
        session, job, "state", {"state": state.value, "verdict": job.verdict, **said}, now=now
    )
    topic = "gauge.finished" if job.kind == JobKind.gauge else "job.finished"
    outbox.add(
        session, topic, f"{topic}:{job.id}", {"job": job.id, "version": job.version}, now=now
    )
    session.flush()


def _roll_up(session: Session, job: JobRow) -> None:
    table = SeedResultRow
    columns: dict[str, Any] = {name: func.max(getattr(table, name)) for name in _MAXIMA} | {
        name: func.avg(getattr(table, name)) for name in _MEANS
    }
    columns["duration_ms"], columns["seeds"] = func.avg(table.duration_ms), func.count()
    query = select(table.output, *(column.label(name) for name, column in columns.items()))
    rows = session.execute(
        query.where(table.job_id == job.id, table.output != "").group_by(table.output)
    ).mappings()
    shared = {
        "job_id": job.id,
        "workload_key": job.workload_key,
        "test_key": job.test_key,
        "build": job.build,
        "executor": job.executor,
    }
    insert_once(session, RollupRow, [{**shared, **row} for row in rows])
