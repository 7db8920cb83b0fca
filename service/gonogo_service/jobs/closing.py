"""End chunks and jobs: done, lost, failed or canceled, with the conclusions from their results.

Every function here runs under the job's lock. Lock the job first (`lock`), then chunks, attempts
and results. So two "last" chunks can't each believe that the other one is still open.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gonogo.reports import red_hollow
from gonogo.spec.selections import KERNEL, sample
from gonogo.spec.verdicts import Verdict
from gonogo.spec.verdicts import worst as worst_verdict
from gonogo_service.flags import evidence, suspects
from gonogo_service.flags import store as flags
from gonogo_service.gauges import gauge_ends, gauge_rows
from gonogo_service.jobs import chunking, events, ranges, sequential
from gonogo_service.jobs.chunking import Work
from gonogo_service.jobs.events import Progress, SeedVerdict, StateChange
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database.records import from_json
from gonogo_service.kit.database.states import (
    CLOSED_CHUNK,
    AttemptState,
    ChunkState,
    JobKind,
    JobState,
)
from gonogo_service.kit.outbox import outbox
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch
from gonogo_service.tests.assessment_requests import ASSESS, request_assessment
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import variants_of

MAX_ATTEMPTS = 3
# hand-backs don't count as attempts, but endless hand-backs must not keep a job alive
MAX_RETURNS = 20
_LIVE = (JobState.queued, JobState.running)


def lock(session: Session, job_id: str) -> JobRow | None:
    """Lock a job's row until the transaction ends, and return it freshly read.

    The lock is FOR UPDATE; on SQLite it is the write transaction.
    """
    return session.get(JobRow, job_id, with_for_update=True, populate_existing=True)


def resolve_chunk(
    session: Session, job: JobRow, chunk: ChunkRow, reason: str, *, now: datetime
) -> None:
    """Close a chunk without a live attempt, or queue it again for its missing results.

    After MAX_ATTEMPTS attempts (or MAX_RETURNS hand-backs), each missing result becomes an error
    row with `reason`, and the chunk is lost.
    """
    stored = results.present(session, job.id, chunk.work)
    missing = [pair for pair in chunk.work if (pair[0], pair[1]) not in stored]
    if not missing:
        end_chunk(session, job, chunk, ChunkState.done, now=now)
    elif job.state not in _LIVE or not _still_needed(job, chunk):
        end_chunk(session, job, chunk, ChunkState.lost, now=now)
    elif chunk.attempts < MAX_ATTEMPTS and chunk.returns < MAX_RETURNS:
        chunk.state = ChunkState.waiting
    else:
        message = f"no result after {chunk.attempts} attempts; the last one: {reason}"
        attempt_id = chunk.attempt_id or chunk.id
        rows = [
            {"seed": seed, "repeat": repeat, "verdict": Verdict.error.value, "message": message}
            for seed, repeat in missing
        ]
        record(session, job, attempt_id, Batch.of(rows), now=now)
        advance_sequential(session, job, now=now)
        end_chunk(session, job, chunk, ChunkState.lost, now=now)


def _still_needed(job: JobRow, chunk: ChunkRow) -> bool:
    """Return whether the job still needs the missing results of a chunk.

    It doesn't once its seeds have decided, or once it knows that they will before the chunk's first
    seed.
    """
    return chunk.state != ChunkState.stopping and (
        job.stop is None or chunk.attempt_id != job.stop.get("finder")
    )


def record(session: Session, job: JobRow, attempt_id: str, batch: Batch, *, now: datetime) -> None:
    """Store new results and count them, for the job and in its test's roll-ups.

    The caller has removed what is stored already. Events: a `verdict` when a seed is the
    job's worst so far, and one `progress`, which also records the day that the rows belong to.
    """
    rows = batch.rows
    if not rows or job.seeds_removed_at is not None:
        return  # retention was earlier than a late batch: its sums are final
    if job.kind == JobKind.gauge:
        done = gauge_rows.add(session, job.id, attempt_id, rows, now=now)
        events.add(session, job, Progress(done, job.total, {}), now=now)
        return
    results.store(session, job, attempt_id, batch, now=now)
    worst_before = worst_verdict([Verdict(name) for name in job.counts]) if job.counts else None
    added = Counter([row["verdict"] for row in rows])
    job.counts = counts = dict(Counter(job.counts) + added)
    if job.kernel == KERNEL:
        job.outcomes = _outcomes(job.outcomes or {}, batch)
        both = [
            red_hollow.of_tests(batch.objects.get(place, {}).values(), row["verdict"])
            for place, row in enumerate(rows)
        ]
    else:
        both = [red_hollow.of_seeds(added)]
    job.red += sum(red for red, _ in both)
    job.hollow += sum(hollow for _, hollow in both)
    job.done += len(rows)
    job.judge = job.judge or next((row["judge"] for row in rows if row.get("judge")), None)
    worst_added = worst_verdict([Verdict(name) for name in added])
    if worst_before is None or worst_added.rank < worst_before.rank:
        worst_row = min(
            (row for row in rows if row["verdict"] == worst_added),
            key=lambda row: (row["seed"], row["repeat"]),
        )
        sample_number = sample(
            session.get_one(TestSpecRow, job.test_key).canonical, worst_row["seed"]
        )
        worst = SeedVerdict(
            seed=sample_number["seed"],
            iteration=sample_number["iteration"],
            repeat=worst_row["repeat"],
            verdict=worst_row["verdict"],
            explanation=worst_row.get("explanation"),
        )
        events.add(session, job, worst, now=now)
    events.add(session, job, Progress(job.done, job.total, counts), now=now)


def _outcomes(before: dict[str, int], batch: Batch) -> dict[str, int]:
    """Count the tests of all iterations by outcome.

    An iteration without any test counts by its verdict.
    """
    outcomes = Counter(before)
    for place, row in enumerate(batch.rows):
        tests = batch.objects.get(place, {}).values()
        iteration_outcomes = [test["outcome"] for test in tests if test.get("outcome")]
        outcomes.update(iteration_outcomes or [row["verdict"]])
    return dict(outcomes)


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
    step = sequential.advance(session, job) if job.state in _LIVE else None
    if step is None:
        return
    if not step.decided:
        if step.beyond is not None:
            cancel_open_chunks(session, job, now=now, after_seed=step.beyond)
        return
    assert job.stop is not None
    decision = from_json(sequential.SeedDecision, job.stop)
    change = StateChange(job.state, reason=decision.words, stop=decision)
    events.add(session, job, change, now=now)
    cancel_open_chunks(session, job, now=now, except_attempt=(job.stop or {})["finder"])
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

    Attempts are asked through the outbox. after_seed: only chunks whose first seed is larger.
    except_attempt: an attempt that may continue.
    """
    open_chunks = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK)
    )
    job.cancel_at = now
    ranges.close(session, job, after_seed=after_seed)
    unstarted_chunks: list[str] = []
    for chunk in list(session.scalars(open_chunks.execution_options(populate_existing=True))):
        if chunk.work[0][0] <= after_seed or (
            chunk.state == ChunkState.running and chunk.attempt_id == except_attempt
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
            unstarted_chunks.append(chunk.id)
    session.flush()
    unstarted = (AttemptRow.job_id == job.id) & (AttemptRow.state == AttemptState.sent)
    session.execute(
        update(AttemptRow)
        .where(
            unstarted if after_seed < 0 else unstarted & AttemptRow.chunk_id.in_(unstarted_chunks)
        )
        .values(state=AttemptState.cancelled, finished_at=now)
        .execution_options(synchronize_session="fetch")
    )


def close_unresponsive_chunks(session: Session, job: JobRow, *, now: datetime) -> None:
    """Close chunks whose workers were asked to stop and don't answer.

    For a job that is being canceled these are all open chunks; for a decided one, those that the
    decision doesn't need.
    """
    open_chunks = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK)
    )
    if job.state != JobState.cancelling:
        open_chunks = open_chunks.where(ChunkRow.state == ChunkState.stopping)
    unresponsive = list(session.scalars(open_chunks))
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


def fail(session: Session, job: JobRow, error: str, *, now: datetime) -> None:
    """End a job that can't run, for a reason that isn't the kernel's."""
    cancel_open_chunks(session, job, now=now)
    open_chunks = select(ChunkRow).where(
        ChunkRow.job_id == job.id, ChunkRow.state.not_in(CLOSED_CHUNK)
    )
    for chunk in list(session.scalars(open_chunks)):
        chunk.state = ChunkState.lost
    job.open_chunks = 0
    job.error = error
    _end(session, job, JobState.failed, Verdict.error, now=now)


def close(session: Session, job: JobRow, *, now: datetime) -> None:
    """End a job whose chunks are all closed, or give it more seeds.

    Stores the verdict, the diagnosis and the flags, and adds the message for the webhooks. A job
    with suspect seeds may get more seeds instead (flags/suspects.py). It then ends
    when their results are stored.
    """
    state = JobState.cancelled if job.state == JobState.cancelling else JobState.finished
    if job.kind == JobKind.gauge:
        if gauge_ends.conclude(session, job, state, now=now):
            _end(session, job, state, None, now=now)
            _reassess(session, job, now=now)
        return
    if state is JobState.finished and job.kind == JobKind.seeds:
        sequential.finalize(session, job)
        if more_seeds := suspects.consider(session, job):
            _add_seeds(session, job, more_seeds, now=now)
            return
    counts = suspects.settled_counts(job.counts, job.suspects)
    verdict = worst_verdict(counts) if counts else None
    if state is JobState.cancelled and verdict is Verdict.pass_:
        verdict = None  # seeds that never ran can't be green; a wrong result stays wrong
    if verdict is Verdict.suspect and job.kind == JobKind.seeds:
        suspects.undecided(session, job)
    session.flush()
    diagnosis = evidence.diagnosis(session, job.id, verdict)
    job.diagnosis = None if diagnosis is None else asdict(diagnosis)
    for finding in (*evidence.findings(session, job), *suspects.findings(session, job)):
        flags.upsert(session, finding, now=now)
    if job.done and job.reference is None:
        outbox.add(session, ASSESS, f"{ASSESS}:{job.id}", {"job": job.id}, now=now)
    _end(session, job, state, verdict, now=now)


def _reassess(session: Session, gauge: JobRow, *, now: datetime) -> None:
    """Request a new assessment of a gauged test, on every branch of that board.

    Sharpness is part of a grade.
    """
    for variant in variants_of(session, gauge.test_key):
        if (variant.arch, variant.board) == (gauge.arch, gauge.board):
            request_assessment(session, variant, f"gauge:{gauge.id}", now=now)


def _add_seeds(session: Session, job: JobRow, seeds: list[int], *, now: datetime) -> None:
    """Add seeds to a job whose chunks are all closed.

    The new chunks are no longer than its longest so far.
    """
    longest_s = session.scalars(
        select(func.max(ChunkRow.estimate_s)).where(ChunkRow.job_id == job.id)
    ).one()
    pair_s = session.scalars(
        select(ChunkRangeRow.pair_s).where(ChunkRangeRow.job_id == job.id).limit(1)
    ).one()
    work = Work(seeds, range(int(job.request.get("repeats", 1))))
    cut = chunking.equal(work, 1.0, max(1.0, round(longest_s / pair_s)))
    ranges.add(session, job, work, cut, queue=job.queue, pair_s=pair_s)
    job.total += len(work)
    job.version += 1
    suspects_state = {**(job.suspects or {}), "added": seeds}
    change = StateChange(job.state, reason=suspects_state["words"], suspects=suspects_state)
    events.add(session, job, change, now=now)
    events.add(session, job, Progress(job.done, job.total, job.counts), now=now)
    session.flush()


def _end(
    session: Session, job: JobRow, state: JobState, verdict: Verdict | None, *, now: datetime
) -> None:
    job.state = state
    job.verdict = None if verdict is None else verdict.value
    job.finished_at = now
    job.waiting_reason = None
    job.version += 1
    stop = job.stop and from_json(sequential.SeedDecision, job.stop)
    change = StateChange(state.value, job.verdict, stop=stop, suspects=job.suspects)
    events.add(session, job, change, now=now)
    topic = "gauge.finished" if job.kind == JobKind.gauge else "job.finished"
    outbox.add(
        session, topic, f"{topic}:{job.id}", {"job": job.id, "version": job.version}, now=now
    )
    session.flush()
