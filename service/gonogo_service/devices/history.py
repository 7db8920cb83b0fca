"""The history of devices: when they changed, how many were sick, the jobs that ran. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Select, case, func, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.devices.sick_devices import SICK
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.columns import IdType, UtcTime
from gonogo_service.kit.database.each import Columns, Given, of_each
from gonogo_service.kit.database.ids import floor

MAX_CHANGES = 400
"""As many as a picture of its time can show."""
_OF_HEALTH = ("health", "state", "drain")
MAX_ATTEMPTS = 200
"""The newest attempts of a device, among which its latest jobs are found."""
_END: Columns = (("end", UtcTime()), ("change", IdType))


class DayDevices(NamedTuple):
    """The devices that were known at the end of a UTC day, and the sick ones of them."""

    known: int = 0
    sick: int = 0


def changes(
    session: Session, device_id: str, *, since: datetime
) -> tuple[list[DeviceHealthRow], bool]:
    """Return (a device's changes since a moment, in order; whether these are all).

    For each kind of change the last one before the moment is included. Of a device that changes all
    the time only the newest MAX_CHANGES are.
    """
    table = DeviceHealthRow
    of_device = select(table).where(table.device_id == device_id).order_by(table.id.desc())
    later = of_device.where(table.at >= since, table.what.in_(_OF_HEALTH)).limit(MAX_CHANGES + 1)
    rows = list(session.scalars(later))
    if len(rows) > MAX_CHANGES:
        return rows[MAX_CHANGES - 1 :: -1], False
    for what in _OF_HEALTH:
        before = of_device.where(table.at < since, table.what == what).limit(1)
        rows += session.scalars(before)
    rows.reverse()  # of one instant the older one stays first
    return sorted(rows, key=lambda change: change.at), True


def recent_jobs(session: Session, device: str, *, limit: int) -> list[JobRow]:
    """Return the jobs that ran on a device ("host/name") last, newest first, without gauges."""
    table = AttemptRow
    latest = select(table.job_id).where(table.device == device).order_by(table.id.desc())
    ids = dict.fromkeys(session.scalars(latest.limit(MAX_ATTEMPTS)))
    # more than `limit`, because `many` leaves out gauges
    known = jobs.many(session, list(ids)[: 3 * limit])
    return [known[job_id] for job_id in ids if job_id in known][:limit]


def sick_by_day(session: Session, *, days: int, now: datetime) -> list[tuple[date, DayDevices]]:
    """Return how many devices were bad or suspect at the ends of the last UTC days.

    Today comes last and is left empty: the devices themselves say how they are now.
    """
    today = now.astimezone(UTC).date()
    shown = [today - timedelta(days=back) for back in range(days - 1, -1, -1)]
    return [*zip(shown, [*_counts(session, shown[:-1]), DayDevices()], strict=True)]


def _counts(session: Session, days: Sequence[date]) -> list[DayDevices]:
    """Return the devices that were known, and sick, at the ends of these days."""
    midnights = (datetime.combine(day + timedelta(days=1), time(), UTC) for day in days)
    rows = [(end, floor(end)) for end in midnights]
    return [DayDevices(*row[1:]) for row in of_each(session, _at_end, _END, rows)] if rows else []


def _at_end(given: Given) -> Select[*tuple[Any, ...]]:
    """Return the query of the devices that were known, and of those that were sick."""
    change = DeviceHealthRow
    last = (
        select(change.after)
        .where(
            change.device_id == DeviceRow.id, change.what == "health", change.id < given("change")
        )
        .order_by(change.id.desc())
        .limit(1)
        .correlate(DeviceRow)
        .scalar_subquery()
    )
    counts = func.count().label("known"), func.count(case((last.in_(SICK), 1))).label("sick")
    return select(*counts).select_from(DeviceRow).where(DeviceRow.first_heard_at < given("end"))


def turned_sick(session: Session, since: datetime) -> dict[str, dict[str, int]]:
    """Return how often each device, by its id, turned bad and suspect since a moment."""
    change = DeviceHealthRow
    query = (
        select(change.device_id, change.after, func.count())
        .where(
            change.id >= floor(since),
            change.what == "health",
            change.after.in_(SICK),
            func.coalesce(change.before, "") != change.after,
        )
        .group_by(change.device_id, change.after)
    )
    turns: dict[str, dict[str, int]] = {}
    for device, health, number in session.execute(query):
        turns.setdefault(device, {})[health] = number
    return turns
