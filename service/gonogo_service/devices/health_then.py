"""Sick devices of the last days, and since a moment, from their history. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import DeviceHealth
from gonogo_service.tests import recent_days


@dataclass(frozen=True)
class DayDevices:
    """The devices that were known at the end of a UTC day, and the sick ones of them."""

    known: int = 0
    sick: int = 0


class Memory(recent_days.Memory[DayDevices]):
    """The cached past days of one process; a new one reads all days once."""


def by_day(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, DayDevices]]:
    """Return how many devices were bad or suspect at the ends of the last UTC days.

    Today comes last and is left empty: the devices themselves say how they are now. It updates
    `memory`.
    """
    today = now.astimezone(UTC).date()

    def counted(since: date) -> dict[date, DayDevices]:
        shown = [since + timedelta(days=step) for step in range((today - since).days)]
        return (
            {}
            if not shown
            else dict(zip(shown, _counts(session, [_end(day) for day in shown]), strict=True))
        )

    return recent_days.read(memory, counted, DayDevices, days=days, now=now)


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


def _end(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)


def _counts(session: Session, ends: Sequence[datetime]) -> list[DayDevices]:
    """Return the devices that were known, and sick, at each of these moments."""
    change = DeviceHealthRow
    numbers = []
    for end in ends:
        last = (
            select(change.after)
            .where(
                change.device_id == DeviceRow.id, change.what == "health", change.id < floor(end)
            )
            .order_by(change.id.desc())
            .limit(1)
            .correlate(DeviceRow)
            .scalar_subquery()
        )
        known = select(func.count()).select_from(DeviceRow).where(DeviceRow.first_heard_at < end)
        sick = known.where(last.in_((DeviceHealth.bad, DeviceHealth.suspect)))
        numbers += [known.scalar_subquery(), sick.scalar_subquery()]
    row = session.execute(select(*numbers)).one()
    return [DayDevices(*row[place : place + 2]) for place in range(0, len(row), 2)]
