"""Usage of an owner: open jobs, device time that waits, artifacts of the last day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import BisectionRow
from gonogo_service.jobs import ranges
from gonogo_service.jobs.model import ArtifactRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import BisectionState, ChunkState, JobState

OPEN = (JobState.queued, JobState.running, JobState.cancelling)
WINDOW = timedelta(days=1)
_ROOM = 2


@dataclass(frozen=True)
class Usage:
    """The open jobs, the queued work and the artifacts of an owner."""

    open_jobs: int
    """Jobs, gauges and bisections that haven't ended"""
    device_s: float
    """Estimated device time of the chunks that no worker has started"""
    artifact_bytes: int
    """Bytes of the artifacts of jobs that were created within the last day"""


def lock(session: Session, owner: str) -> None:
    """Let no other transaction add to this owner's jobs until this one ends."""
    dialect.lock(session, _ROOM, owner)


def of(session: Session, owner: str, *, now: datetime, before: str | None = None) -> Usage:
    """Return what the owner's jobs take; rows of the caller's transaction count.

    before: only what is older than this id.
    """
    older = () if before is None else (JobRow.id < before,)
    open_job = (JobRow.owner == owner, JobRow.state.in_(OPEN), *older)
    jobs = session.scalar(select(func.count()).select_from(JobRow).where(*open_job)) or 0
    bisections = session.scalar(
        select(func.count())
        .select_from(BisectionRow)
        .where(BisectionRow.owner == owner, BisectionRow.state == BisectionState.running)
    )
    unmade = (
        select(
            func.sum(ChunkRangeRow.pair_s * (ChunkRangeRow.pairs - ChunkRangeRow.position)),
        )
        .join(JobRow, ChunkRangeRow.job_id == JobRow.id)
        .where(ranges.OPEN, *open_job)
    )
    stored = (
        select(func.sum(ChunkRow.estimate_s))
        .join(JobRow, ChunkRow.job_id == JobRow.id)
        .where(ChunkRow.state.in_((ChunkState.waiting, ChunkState.sent)), *open_job)
    )
    artifacts = (
        select(func.sum(ArtifactRow.size))
        .join(JobRow, ArtifactRow.job_id == JobRow.id)
        .where(JobRow.id >= floor(now - WINDOW), JobRow.owner == owner, *older)
    )
    seconds = (session.scalar(unmade) or 0.0) + (session.scalar(stored) or 0.0)
    return Usage(jobs + (bisections or 0), float(seconds), int(session.scalar(artifacts) or 0))
