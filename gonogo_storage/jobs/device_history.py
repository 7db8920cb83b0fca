"""What a device's page reads beside the device itself: its changes in time, and the jobs that ran
on it. Reads only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.jobs import jobs
from gonogo_storage.jobs.job import Job
from gonogo_storage.tables import AttemptRow, DeviceHealthRow

MOST_CHANGES = 400
"""As many as a picture of its time can show."""
MOST_ATTEMPTS = 200
"""The newest attempts of a device among which its latest jobs are looked for."""


@dataclass(frozen=True)
class Change:
    """One change of a device: `what` is "health", "state" (being there) or "drain"."""

    at: datetime
    what: str
    after: str
    actor: str
    reason: str | None


@dataclass(frozen=True)
class RanJob:
    """A job, with what this device did for it of late: attempts, and when the last of them
    began.
    """

    job: Job
    attempts: int
    last_at: datetime | None


def changes(session: Session, device_id: str, *, since: datetime) -> tuple[list[Change], bool]:
    """(What changed since a moment and, of each kind of change, the last one before it, in order;
    whether that is everything).

    Of a device that changes all the time the newest MOST_CHANGES.
    """
    table = DeviceHealthRow
    columns = (table.at, table.what, table.after, table.actor, table.reason)
    query = (
        select(*columns)
        .where(table.device_id == device_id, table.at >= since)
        .order_by(table.id.desc())
        .limit(MOST_CHANGES + 1)
    )
    found = [Change(*row) for row in session.execute(query)]
    if len(found) > MOST_CHANGES:
        return found[MOST_CHANGES - 1 :: -1], False
    for what in ("health", "state", "drain"):
        before = select(*columns).where(
            table.device_id == device_id, table.at < since, table.what == what
        )
        row = session.execute(before.order_by(table.id.desc()).limit(1)).one_or_none()
        found += [] if row is None else [Change(*row)]
    found.reverse()  # of one instant the older one stays first
    return sorted(found, key=lambda change: change.at), True


def recent_jobs(session: Session, device: str, *, limit: int) -> list[RanJob]:
    """The jobs that ran on a device ("host/name") last, newest first; runs of gauges are no
    jobs.
    """
    table = AttemptRow
    latest = (
        select(table.job_id, table.started_at)
        .where(table.device == device)
        .order_by(table.id.desc())
        .limit(MOST_ATTEMPTS)
    )
    numbers: Counter[str] = Counter()
    began: dict[str, datetime | None] = {}
    for job_id, started_at in session.execute(latest):
        numbers[job_id] += 1
        began.setdefault(job_id, started_at)
    known = jobs.many(
        session, list(began)[: 3 * limit]
    )  # more than asked for: those of gauges fall out
    return [
        RanJob(known[job_id], numbers[job_id], at)
        for job_id, at in began.items()
        if job_id in known
    ][:limit]
