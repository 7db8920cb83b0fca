"""Usage of an owner: open jobs, device time that waits, artifacts of the last day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import BisectionRow
from gonogo_service.jobs import work
from gonogo_service.jobs.model import ArtifactRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import BisectionState, ChunkState, JobState

OPEN = tuple(state for state in JobState if not state.final)
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
    """Return the usage of an owner, with the rows that the caller's transaction has added.

    before: only what is older than this id.
    """
    of_owner = (JobRow.owner == owner, *(() if before is None else (JobRow.id < before,)))
    is_open = (*of_owner, JobRow.state.in_(OPEN))
    not_begun = ChunkRow.state.in_((ChunkState.waiting, ChunkState.sent))
    left_s = ChunkRangeRow.pair_s * (ChunkRangeRow.pairs - ChunkRangeRow.position)
    searches = select(func.count()).select_from(BisectionRow)
    queries = (
        select(func.count()).select_from(JobRow).where(*is_open),
        searches.where(BisectionRow.owner == owner, BisectionRow.state == BisectionState.running),
        select(func.sum(left_s)).join(JobRow).where(work.OPEN, *is_open),
        select(func.sum(ChunkRow.estimate_s)).join(JobRow).where(not_begun, *is_open),
        select(func.sum(ArtifactRow.size))
        .join(JobRow, ArtifactRow.job_id == JobRow.id)
        .where(JobRow.id >= floor(now - WINDOW), *of_owner),
    )
    jobs, bisections, unmade, stored, size = (session.scalar(query) or 0 for query in queries)
    return Usage(int(jobs + bisections), float(unmade + stored), int(size))
