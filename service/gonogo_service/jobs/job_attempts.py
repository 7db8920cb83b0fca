"""The attempts that a job's page shows, and the readings of their devices.

Reads only, bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import OPEN_ATTEMPT, AttemptState

MAX_OPEN = 20
MAX_WRONG = 5
MAX_READINGS = 200
WRONG = (AttemptState.error, AttemptState.lost, AttemptState.handed_back)


@dataclass(frozen=True)
class JobAttempt:
    """An attempt, without its work: of a large job that is thousands of pairs."""

    id: str
    number: int
    state: str
    worker: str | None
    device: str | None
    host: str | None
    seed: int | None
    stage: str | None
    error: str | None
    log_tail: str | None
    telemetry: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    heard_at: datetime | None
    finished_at: datetime | None
    open: bool


@dataclass(frozen=True)
class DeviceReading:
    """The telemetry of a device at the end of an attempt."""

    device: str | None
    at: datetime | None
    telemetry: Mapping[str, Any]


_COLUMNS = [getattr(AttemptRow, part.name) for part in fields(JobAttempt) if part.name != "open"]


def for_page(session: Session, job_id: str) -> list[JobAttempt]:
    """Return the open attempts and the last few failed ones, oldest first.

    The others say nothing to a reader.
    """
    if not is_id(job_id):
        return []
    attempts: dict[str, JobAttempt] = {}
    for states, limit in ((OPEN_ATTEMPT, MAX_OPEN), (WRONG, MAX_WRONG)):
        query = (
            select(*_COLUMNS)
            .where(AttemptRow.job_id == job_id, AttemptRow.state.in_(states))
            .order_by(AttemptRow.id.desc())
            .limit(limit)
        )
        for row in session.execute(query):
            attempts[row.id] = from_object(JobAttempt, row, open=row.state in OPEN_ATTEMPT)
    return [attempts[key] for key in sorted(attempts)]


def readings(session: Session, job_id: str) -> list[DeviceReading]:
    """Return the devices' readings at the ends of attempts, oldest first, the latest 200."""
    if not is_id(job_id):
        return []
    table = AttemptRow
    query = select(table.device, table.finished_at, table.telemetry).where(
        table.job_id == job_id, table.telemetry.is_not(None)
    )
    rows = session.execute(query.order_by(table.id.desc()).limit(MAX_READINGS)).all()
    return [
        DeviceReading(device, at, telemetry)
        for device, at, telemetry in reversed(rows)
        if telemetry
    ]
