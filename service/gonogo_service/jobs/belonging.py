"""The repository and the suite that a job or a run belongs to: what limited tokens are held to."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.suites.model import RunJobRow, RunRow


@dataclass(frozen=True)
class Belonging:
    """The repository of its commit, and the name of its suite; None: it has none."""

    repository: str | None
    suite: str | None


def of_job(session: Session, job_id: str) -> Belonging | None:
    """Return what a job belongs to; None if it doesn't exist."""
    query = (
        select(JobRow.commit["repository"].as_string(), RunRow.name)
        .outerjoin(RunJobRow, RunJobRow.job_id == JobRow.id)
        .outerjoin(RunRow, RunRow.id == RunJobRow.run_id)
        .where(JobRow.id == job_id)
    )
    row = session.execute(query).first() if is_id(job_id) else None
    return None if row is None else Belonging(*row)


def of_run(session: Session, run_id: str) -> Belonging | None:
    """Return what a run belongs to; None if it doesn't exist."""
    query = select(RunRow.commit["repository"].as_string(), RunRow.name).where(RunRow.id == run_id)
    row = session.execute(query).first() if is_id(run_id) else None
    return None if row is None else Belonging(*row)
