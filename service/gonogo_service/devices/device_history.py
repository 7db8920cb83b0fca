"""A device's changes in time, and the jobs that ran on it, for the device's page. Reads only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.job import JobSummary
from gonogo_service.jobs.model import AttemptRow

MAX_CHANGES = 400
"""As many as a picture of its time can show."""
_OF_HEALTH = ("health", "state", "drain")
MAX_ATTEMPTS = 200
"""The newest attempts of a device, among which its latest jobs are found."""


@dataclass(frozen=True)
class Change:
    """One change of a device; `what` is "health", "state" (online or offline) or "drain"."""

    at: datetime
    what: str
    after: str
    actor: str
    reason: str | None


@dataclass(frozen=True)
class RanJob:
    """A job with this device's recent attempts at it, and when the last of them began."""

    job: JobSummary
    attempts: int
    last_at: datetime | None


def changes(session: Session, device_id: str, *, since: datetime) -> tuple[list[Change], bool]:
    """Return (a device's changes since a moment, in order; whether these are all).

    For each kind of change the last one before the moment is included. Of a device that changes all
    the time only the newest MAX_CHANGES are.
    """
    table = DeviceHealthRow
    columns = (table.at, table.what, table.after, table.actor, table.reason)
    query = (
        select(*columns)
        .where(table.device_id == device_id, table.at >= since, table.what.in_(_OF_HEALTH))
        .order_by(table.id.desc())
        .limit(MAX_CHANGES + 1)
    )
    entries = [Change(*row) for row in session.execute(query)]
    if len(entries) > MAX_CHANGES:
        return entries[MAX_CHANGES - 1 :: -1], False
    for what in _OF_HEALTH:
        before = select(*columns).where(
            table.device_id == device_id, table.at < since, table.what == what
        )
        row = session.execute(before.order_by(table.id.desc()).limit(1)).one_or_none()
        entries += [] if row is None else [Change(*row)]
    entries.reverse()  # of one instant the older one stays first
    return sorted(entries, key=lambda change: change.at), True


def recent_jobs(session: Session, device: str, *, limit: int) -> list[RanJob]:
    """Return the jobs that ran on a device ("host/name") last, newest first, without gauges."""
    table = AttemptRow
    latest = (
        select(table.job_id, table.started_at)
        .where(table.device == device)
        .order_by(table.id.desc())
        .limit(MAX_ATTEMPTS)
    )
    attempt_counts: Counter[str] = Counter()
    started_by_job: dict[str, datetime | None] = {}
    for job_id, started_at in session.execute(latest):
        attempt_counts[job_id] += 1
        started_by_job.setdefault(job_id, started_at)
    # more than `limit`, because `many` leaves out gauges
    known = jobs.many(session, list(started_by_job)[: 3 * limit])
    return [
        RanJob(known[job_id], attempt_counts[job_id], at)
        for job_id, at in started_by_job.items()
        if job_id in known
    ][:limit]
