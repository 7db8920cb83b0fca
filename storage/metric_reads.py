"""The numbers behind /metrics, aggregated by the database; cheap enough for a scrape every few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Integer, cast, func, select, true
from sqlalchemy.orm import Session

from storage.encoding import utcnow
from storage.engine import is_postgres
from storage.states import TOLD_KINDS, AttemptState, ChunkState, FlagState, JobState, WorkerState
from storage.tables import AttemptRow, ChunkRow, FlagRow, JobRow, OutboxRow, WorkerRow


@dataclass(frozen=True)
class Numbers:
    """One look at the service: counts by label, ages in seconds (0 = nothing waits)."""

    jobs: dict[str, int]  # by state
    seeds: dict[str, int]  # by verdict
    chunks: dict[tuple[str, str], int]  # open ones, by (queue, state)
    queue_age_s: dict[str, float]  # oldest waiting chunk, by queue
    workers: dict[str, int]  # by state
    flags: dict[str, int]  # unresolved ones, by kind
    outbox: int
    outbox_age_s: float
    ingest_lag_s: float  # oldest attempt whose worker has finished while results of it are still on their way


def numbers(session: Session, *, heartbeat_timeout_s: float, now: datetime | None = None) -> Numbers:
    """Take one look."""
    now = now or utcnow()

    def age(moment: datetime | None) -> float:
        return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())

    jobs = dict.fromkeys((state.value for state in JobState), 0)
    jobs |= dict(session.execute(select(JobRow.state, func.count()).where(JobRow.kind.in_(TOLD_KINDS)).group_by(JobRow.state)).all())
    # postgresql: json_each_text(json), sqlite: json_each(text); both give the columns key and value
    each = (func.json_each_text if is_postgres(session) else func.json_each)(JobRow.counts).table_valued("key", "value")
    verdict, count = each.c.key, func.sum(cast(each.c.value, Integer))
    seeds = {
        str(name): int(total)
        for name, total in session.execute(select(verdict, count).select_from(JobRow).join(each, true()).group_by(verdict))
    }
    opened = (ChunkState.waiting, ChunkState.sent, ChunkState.running, ChunkState.stopping)
    chunks = session.execute(
        select(ChunkRow.queue, ChunkRow.state, func.count()).where(ChunkRow.state.in_(opened)).group_by(ChunkRow.queue, ChunkRow.state)
    )
    oldest = session.execute(
        select(ChunkRow.queue, func.min(JobRow.created_at))
        .join(JobRow, JobRow.id == ChunkRow.job_id)
        .where(ChunkRow.state == ChunkState.waiting)
        .group_by(ChunkRow.queue)
    )
    workers = dict.fromkeys((state.value for state in WorkerState), 0)
    for heard_at, attempt in session.execute(select(WorkerRow.heard_at, WorkerRow.attempt_id)):
        late = now - heard_at > timedelta(seconds=heartbeat_timeout_s)
        workers[WorkerState.offline if late else WorkerState.busy if attempt else WorkerState.idle] += 1
    flags = session.execute(select(FlagRow.kind, func.count()).where(FlagRow.state != FlagState.resolved).group_by(FlagRow.kind))
    pending, first = session.execute(
        select(func.count(), func.min(OutboxRow.created_at)).where(OutboxRow.due_at.is_not(None), OutboxRow.done_at.is_(None))
    ).one()
    reported = session.scalar(select(func.min(AttemptRow.heard_at)).where(AttemptRow.state == AttemptState.reported))
    return Numbers(
        jobs=jobs,
        seeds=seeds,
        chunks={(queue, state): number for queue, state, number in chunks},
        queue_age_s={queue: age(moment) for queue, moment in oldest},
        workers=workers,
        flags=dict(flags.all()),
        outbox=pending,
        outbox_age_s=age(first),
        ingest_lag_s=age(reported),
    )
