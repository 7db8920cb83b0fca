"""Events of jobs, numbered per job under its lock, so that streams can resume after a number."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.ids import is_id
from gonogo_storage.tables import EventRow, JobRow


def add(session: Session, job: JobRow, type_: str, data: dict[str, Any], *, now: datetime) -> None:
    """Append an event; the caller holds the job's lock (or has just created it)."""
    job.last_event += 1
    session.add(EventRow(job_id=job.id, number=job.last_event, type=type_, data=data, at=now))


def after(session: Session, job_id: str, number: int, *, limit: int = 500) -> list[dict[str, Any]]:
    """Return a job's events after a number, in order: {"number", "type", "data", "at"}."""
    if not is_id(job_id):
        return []
    query = (
        select(EventRow)
        .where(EventRow.job_id == job_id, EventRow.number > number)
        .order_by(EventRow.number)
        .limit(limit)
    )
    return [
        {"number": row.number, "type": row.type, "data": row.data, "at": timestamp(row.at)}
        for row in session.scalars(query)
    ]
