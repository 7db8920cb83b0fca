"""The due times of schedules, and what became of each. The caller computes the next due time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.states import DueOutcome
from gonogo_service.schedules.model import DueRow, ScheduleRow

LAST = 10
"""The past due times that a schedule shows."""
_SHOWN = ("due_at", "outcome", "run", "reason", "at")


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


def read_last(session: Session, schedules: Sequence[ScheduleRow]) -> None:
    """Set the last due times of schedules."""
    ids = [(schedule.id,) for schedule in schedules]
    dues: dict[int, list[DueRow]] = {}
    for place, *values in of_each(session, _last, (("schedule", IdType),), ids) if ids else ():
        due = DueRow(**dict(zip(_SHOWN, values, strict=True)))
        dues.setdefault(place, []).append(due)
    for place, schedule in enumerate(schedules):
        schedule.last = tuple(dues.get(place, ()))


def _last(given: Given) -> Select[*tuple[Any, ...]]:
    of_schedule = DueRow.schedule_id == given("schedule")
    query = select(*(getattr(DueRow, name) for name in _SHOWN)).where(of_schedule)
    return query.order_by(DueRow.due_at.desc()).limit(LAST)
