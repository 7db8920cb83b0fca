"""The attempts of a job, as tests read them from the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import AttemptRow


def attempts_of(session: Session, job_id: str) -> list[dict[str, Any]]:
    """Return all attempts of a job in order, each a dict of its columns."""
    columns = AttemptRow.__table__.c
    query = select(*columns).where(columns.job_id == job_id).order_by(columns.id)
    return [dict(row) for row in session.execute(query).mappings()]
