"""Remove a tier of one job, and measure it in rows and bytes: the steps of retention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, delete, func, select, update
from sqlalchemy.orm import Session

from gonogo_service.jobs import closing
from gonogo_service.jobs.model import ArtifactRow, AttemptRow, EventRow, JobRow
from gonogo_service.kit.database.states import JobState
from gonogo_service.results.rollups import archive, rebuild, rollups
from gonogo_service.results.rows import (
    ArchivedTallyRow,
    JobTallyRow,
    SeedGridRow,
    SeedResultRow,
    SeedSourceRow,
)

ROW_BYTES = 280
"""Bytes of a row besides its content.

A seed of three outputs takes about 460 (benchmarks/pages.py), of which 180 are its content.
"""
_ARRIVALS = ("progress", "verdict")
"""The events that retention removes; those of the job's states stay."""


@dataclass(frozen=True)
class Amount:
    """Something that is removed."""

    jobs: int = 0
    rows: int = 0
    bytes: int = 0
    """About: content, and ROW_BYTES for each row"""

    def __add__(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.jobs + other.jobs, self.rows + other.rows, self.bytes + other.bytes)


def measure_artifacts(session: Session, job_id: str) -> Amount:
    """Return the artifacts and logs of a job."""
    logs = func.length(AttemptRow.log_tail)
    of_attempts = select(func.count(logs), func.sum(logs)).where(AttemptRow.job_id == job_id)
    of_artifacts = select(func.count(), func.sum(ArtifactRow.size)).where(
        ArtifactRow.job_id == job_id
    )
    return _amount(session, of_attempts, of_artifacts)


def measure_seeds(session: Session, job_id: str) -> Amount:
    """Return the results per seed of a job."""
    table = SeedResultRow
    content = sum(
        (func.coalesce(func.length(column), 0) for column in (table.numbers, table.rest)),
        func.coalesce(func.length(table.message), 0),
    )
    return _amount(session, select(func.count(), func.sum(content)).where(table.job_id == job_id))


def measure_rollups(session: Session, job_id: str) -> Amount:
    """Return the statistics of a job."""
    queries = []
    for table in (ArchivedTallyRow, JobTallyRow):
        content: ColumnElement[Any] = func.length(cast(table.sketches, Text))
        content += func.length(cast(table.figures, Text))
        queries.append(select(func.count(), func.sum(content)).where(table.job_id == job_id))
    return _amount(session, *queries)


MEASURES: Mapping[str, Callable[[Session, str], Amount]] = {
    "artifacts": measure_artifacts,
    "seeds": measure_seeds,
    "rollups": measure_rollups,
}


def _amount(session: Session, *queries: Any) -> Amount:
    amount = Amount(1)
    for query in queries:
        rows, content = session.execute(query).one()
        amount += Amount(0, int(rows), int(content or 0) + ROW_BYTES * int(rows))
    return amount


def remove_artifacts(session: Session, job_id: str, *, now: datetime) -> Amount:
    """Remove the artifacts and logs of a job."""
    job = _locked(session, job_id, "artifacts_removed_at")
    if job is None:
        return Amount()
    amount = measure_artifacts(session, job_id)
    session.execute(delete(ArtifactRow).where(ArtifactRow.job_id == job_id))
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.job_id == job_id)
        .values(log_tail=None)
        .execution_options(synchronize_session=False)
    )
    job.artifacts_removed_at = now
    job.version += 1
    return amount


def remove_seeds(session: Session, job_id: str, *, now: datetime) -> Amount:
    """Remove the results per seed of a job that the roll-ups have counted; keep their sums."""
    amount = forget_seeds(session, job_id, now=now)
    if amount.jobs:
        delete_seed_rows(session, job_id)
    return amount


def forget_seeds(session: Session, job_id: str, *, now: datetime) -> Amount:
    """Do the same, but leave the rows to the drop of their partition; nobody reads them."""
    job = _locked(session, job_id, "seeds_removed_at")
    if job is None or rollups.upto(session, job_id) < job.done:
        return Amount()
    amount = measure_seeds(session, job_id)
    days: archive.Days = {}
    for first in range(1, job.done + 1, rebuild.SLICE):
        last = min(job.done, first + rebuild.SLICE - 1)
        archive.add(days, rebuild.days_of(session, job, first, last))
    # The lock, so that no rebuild counts rows that vanish under it; it begins again.
    rollups.lock(session, job.test_key)
    rebuild.forget_shadows(session, rebuild.Unit.of_job(job))
    archive.write(session, job_id, days)
    session.execute(delete(SeedSourceRow).where(SeedSourceRow.job_id == job_id))
    session.execute(delete(EventRow).where(EventRow.job_id == job_id, EventRow.type.in_(_ARRIVALS)))
    job.seeds_removed_at = now
    job.version += 1
    return amount


def delete_seed_rows(session: Session, job_id: str) -> None:
    """Delete the rows; a job has at most GONOGO_MAX_SEEDS of them."""
    session.execute(delete(SeedResultRow).where(SeedResultRow.job_id == job_id))


def remove_rollups(session: Session, job_id: str, *, now: datetime) -> Amount:
    """Remove the statistics of a job without seed rows, and request the rebuild of its unit."""
    job = _locked(session, job_id, "rollups_removed_at")
    if job is None or job.seeds_removed_at is None:
        return Amount()
    amount = measure_rollups(session, job_id)
    rollups.lock(session, job.test_key)
    unit = rebuild.Unit.of_job(job)
    rebuild.forget_shadows(session, unit)
    for table in (ArchivedTallyRow, JobTallyRow, SeedGridRow):
        session.execute(delete(table).where(table.job_id == job_id))
    rebuild.request(session, unit)
    job.rollups_removed_at = now
    job.version += 1
    return amount


def _locked(session: Session, job_id: str, removed_at: str) -> JobRow | None:
    """Lock an ended job that still has a tier, and return it."""
    job = closing.lock(session, job_id)
    if job is None or not JobState(job.state).final or getattr(job, removed_at) is not None:
        return None
    return job
