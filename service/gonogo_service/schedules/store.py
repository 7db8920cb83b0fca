"""The due times of schedules, and what became of each. The caller computes the next due time."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.states import DueOutcome
from gonogo_service.schedules.model import DueRow, ScheduleRow


def due(session: Session, *, now: datetime) -> list[str]:
    """Return the schedules whose next time has come, the longest overdue first."""
    query = select(ScheduleRow.id).where(ScheduleRow.next_at <= now)
    return list(session.scalars(query.order_by(ScheduleRow.next_at, ScheduleRow.id)))


def lock(session: Session, schedule_id: str) -> ScheduleRow | None:
    """Lock a schedule in use and read it again; None when there is none."""
    row = session.get(ScheduleRow, schedule_id, with_for_update=True, populate_existing=True)
    return None if row is None or row.archived_at is not None else row


def claim(session: Session, schedule_id: str, due_at: datetime, *, now: datetime) -> DueRow | None:
    """Return a due time's new row; None where it was claimed before.

    The caller has locked the schedule, and sets the outcome, which is `failed` until then.
    """
    if session.get(DueRow, (schedule_id, due_at)) is not None:
        return None
    row = DueRow(schedule_id=schedule_id, due_at=due_at, outcome=DueOutcome.failed, at=now)
    session.add(row)
    session.flush()
    return row
