"""The attempts that a job's page shows, and the readings of their devices. Reads only, bounded."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session, defer, load_only

from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import OPEN_ATTEMPT, AttemptState

MAX_OPEN = 20
MAX_WRONG = 5
MAX_READINGS = 200
WRONG = (AttemptState.error, AttemptState.lost, AttemptState.handed_back)


def for_page(session: Session, job_id: str) -> list[AttemptRow]:
    """Return the open attempts and the last few failed ones, oldest first, without their work."""
    query = select(AttemptRow).options(defer(AttemptRow.work), defer(AttemptRow.batches))
    attempts = [
        row
        for states, limit in ((OPEN_ATTEMPT, MAX_OPEN), (WRONG, MAX_WRONG))
        for row in session.scalars(
            query.where(AttemptRow.job_id == job_id, AttemptRow.state.in_(states))
            .order_by(AttemptRow.id.desc())
            .limit(limit)
        )
    ]
    return sorted(attempts, key=lambda attempt: attempt.id)


def devices(session: Session, job_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the devices of the attempts of jobs that have no results yet, by job, in order."""
    table, of_job = AttemptRow, dict[str, tuple[str, ...]]()
    query = select(table.job_id, table.device).distinct().order_by(table.device)
    query = query.where(among(session, table.job_id, job_ids), table.device.is_not(None))
    for job, device in session.execute(query):
        of_job[job] = (*of_job.get(job, ()), str(device))
    return of_job


def readings(session: Session, job_id: str) -> list[AttemptRow]:
    """Return the last attempts with a reading of their device at their ends, oldest first."""
    table = AttemptRow
    query = (
        select(table)
        .options(load_only(table.device, table.finished_at, table.telemetry))
        .where(table.job_id == job_id, table.telemetry.is_not(None))
        .order_by(table.id.desc())
        .limit(MAX_READINGS)
    )
    return [row for row in session.scalars(query) if row.telemetry][::-1] if is_id(job_id) else []
