"""The last event of each job, which the API's event streams poll."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobState


@dataclass(frozen=True)
class Position:
    """The number of a job's last event, and whether there can be more."""

    last: int
    final: bool


def positions(session: Session, job_ids: Collection[str]) -> dict[str, Position]:
    """Return the position of each job, in one query; jobs that don't exist are left out."""
    rows = session.execute(
        select(JobRow.id, JobRow.last_event, JobRow.state).where(JobRow.id.in_(job_ids))
    )
    return {job_id: Position(last, JobState(state).final) for job_id, last, state in rows}
