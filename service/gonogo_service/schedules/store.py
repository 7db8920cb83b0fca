"""Schedules: cron lines that submit a suite, and the outcome of each of their due times.

The caller computes the next due time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DueOutcome
from gonogo_service.schedules.model import DueRow, ScheduleRow

Overlap = Literal["skip", "allow"]


@dataclass(frozen=True)
class Schedule:
    """A schedule; it has no next time while it is paused."""

    id: str
    name: str
    suite: str
    cron: str
    timezone: str
    overlap: Overlap
    builds: list[str]
    labels: dict[str, str]
    owner: str
    version: int
    paused: bool
    next_at: datetime | None
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


@dataclass(frozen=True)
class Due:
    """A due time and its outcome."""

    due_at: datetime
    outcome: DueOutcome
    run: str | None
    reason: str | None
    at: datetime


CHANGEABLE = (
    "name",
    "suite",
    "cron",
    "timezone",
    "overlap",
    "builds",
    "labels",
    "paused",
    "next_at",
)


def create(session: Session, values: dict[str, Any], *, owner: str, now: datetime) -> Schedule:
    """Store a schedule from CHANGEABLE's values.

    Raises IntegrityError where its suite isn't stored.
    """
    row = ScheduleRow(
        id=new_id(),
        owner=owner,
        version=1,
        created_at=now,
        updated_at=now,
        archived_at=None,
        **values,
    )
    session.add(row)
    session.flush()
    return from_object(Schedule, row)


def get(session: Session, schedule_id: str) -> Schedule | None:
    """Return a schedule in use, or None."""
    row = session.get(ScheduleRow, schedule_id) if is_id(schedule_id) else None
    return None if row is None or row.archived_at is not None else from_object(Schedule, row)


def list_(
    session: Session, *, suite: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Schedule]:
    """Return schedules in use, newest first. Raises BadCursor."""
    return newest_first(
        session,
        select(ScheduleRow).where(ScheduleRow.archived_at.is_(None)),
        ScheduleRow.id,
        partial(from_object, Schedule),
        limit=limit,
        cursor=cursor,
        filters={ScheduleRow.suite: suite},
    )


def lock(session: Session, schedule_id: str) -> Schedule | None:
    """Lock a schedule in use and read it again; None when there is none."""
    row = (
        session.get(ScheduleRow, schedule_id, with_for_update=True, populate_existing=True)
        if is_id(schedule_id)
        else None
    )
    return None if row is None or row.archived_at is not None else from_object(Schedule, row)


def change(
    session: Session, schedule_id: str, values: dict[str, Any], *, now: datetime
) -> Schedule:
    """Set some of CHANGEABLE of a schedule that the caller has locked.

    Equal values make no new version.
    """
    row = session.get_one(ScheduleRow, schedule_id)
    if any(getattr(row, name) != value for name, value in values.items()):
        for name in CHANGEABLE:
            if name in values:
                setattr(row, name, values[name])
        row.version += 1
        row.updated_at = now
        session.flush()
    return from_object(Schedule, row)


def move_on(session: Session, schedule_id: str, next_at: datetime) -> None:
    """Set the next due time of a schedule that the caller has locked; no new version."""
    session.get_one(ScheduleRow, schedule_id).next_at = next_at
    session.flush()


def archive(session: Session, schedule_id: str, *, now: datetime) -> Schedule | None:
    """Archive a schedule; its runs stay. None when there is no such one in use."""
    if lock(session, schedule_id) is None:
        return None
    row = session.get_one(ScheduleRow, schedule_id)
    row.archived_at = row.updated_at = now
    row.next_at = None
    row.version += 1
    session.flush()
    return from_object(Schedule, row)


def due(session: Session, *, now: datetime) -> list[str]:
    """Return the schedules whose next time has come, the longest overdue first."""
    return list(
        session.scalars(
            select(ScheduleRow.id)
            .where(ScheduleRow.next_at <= now)
            .order_by(ScheduleRow.next_at, ScheduleRow.id)
        )
    )


def claim(session: Session, schedule_id: str, due_at: datetime, *, now: datetime) -> bool:
    """Claim a due time; True only once for each.

    The caller has locked the schedule, and calls `record_outcome` afterward.
    """
    if session.get(DueRow, (schedule_id, due_at)) is not None:
        return False
    row = {
        "schedule_id": schedule_id,
        "due_at": due_at,
        "outcome": DueOutcome.failed.value,
        "run_id": None,
        "reason": None,
        "at": now,
    }
    insert_once(session, DueRow, [row])
    return True


def record_outcome(
    session: Session,
    schedule_id: str,
    due_at: datetime,
    outcome: DueOutcome,
    *,
    run_id: str | None = None,
    reason: str | None = None,
) -> None:
    """Record the outcome of a due time."""
    row = session.get_one(DueRow, (schedule_id, due_at))
    row.outcome, row.run_id, row.reason = outcome.value, run_id, reason
    session.flush()


def dues(session: Session, schedule_id: str, *, limit: int = 10) -> list[Due]:
    """Return the last due times of a schedule with their outcomes, newest first."""
    query = (
        select(DueRow)
        .where(DueRow.schedule_id == schedule_id)
        .order_by(DueRow.due_at.desc())
        .limit(limit)
    )
    return [
        from_object(Due, row, outcome=DueOutcome(row.outcome), run=row.run_id)
        for row in session.scalars(query)
    ]
