"""How far the events of jobs have come: what the streams of the API poll."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.states import JobState
from gonogo_storage.tables import JobRow


@dataclass(frozen=True)
class Position:
    """The number of a job's last event, and whether there can be more."""

    last: int
    final: bool


def positions(session: Session, job_ids: Collection[str]) -> dict[str, Position]:
    """The position of each of these jobs, in one query whatever their number; a job that doesn't
    exist is missing.
    """
    rows = session.execute(
        select(JobRow.id, JobRow.last_event, JobRow.state).where(JobRow.id.in_(job_ids))
    )
    return {job_id: Position(last, JobState(state).final) for job_id, last, state in rows}
