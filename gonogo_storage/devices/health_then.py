"""Sick devices at and since an earlier time, from the history of their health. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_storage.db.ids import floor
from gonogo_storage.db.states import DeviceHealth
from gonogo_storage.tables import DeviceHealthRow, DeviceRow

RECOUNT = timedelta(hours=1)


@dataclass
class Memory:
    """The last count of one process; the past changes slowly."""

    counted_at: datetime | None = None
    sick: int | None = None


def sick_at(session: Session, memory: Memory, at: datetime, *, now: datetime) -> int | None:
    """Return how many devices were bad or suspect at a moment; None where there was none yet.

    It updates `memory`.
    """
    if memory.counted_at is None or not timedelta(0) <= now - memory.counted_at < RECOUNT:
        memory.sick, memory.counted_at = _count(session, at), now
    return memory.sick


def turned_sick(session: Session, since: datetime) -> dict[str, dict[str, int]]:
    """Return how often each device, by its id, turned bad and suspect since a moment."""
    change = DeviceHealthRow
    query = (
        select(change.device_id, change.after, func.count())
        .where(
            change.id >= floor(since),
            change.what == "health",
            change.after.in_((DeviceHealth.bad, DeviceHealth.suspect)),
            func.coalesce(change.before, "") != change.after,
        )
        .group_by(change.device_id, change.after)
    )
    turns: dict[str, dict[str, int]] = {}
    for device, health, number in session.execute(query):
        turns.setdefault(device, {})[health] = number
    return turns


def _count(session: Session, at: datetime) -> int | None:
    there = DeviceRow.first_heard_at <= at
    if not session.scalar(select(func.count()).select_from(DeviceRow).where(there)):
        return None
    change = DeviceHealthRow
    last = (
        select(change.after)
        .where(change.device_id == DeviceRow.id, change.what == "health", change.id < floor(at))
        .order_by(change.id.desc())
        .limit(1)
        .correlate(DeviceRow)
        .scalar_subquery()
    )
    sick = last.in_((DeviceHealth.bad, DeviceHealth.suspect))
    return session.scalar(select(func.count()).select_from(DeviceRow).where(there, sick)) or 0
