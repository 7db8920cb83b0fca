"""The latest jobs, for the overview. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from gonogo_storage.db.states import LISTED_KINDS, JobState
from gonogo_storage.jobs import jobs
from gonogo_storage.jobs.job import JobSummary
from gonogo_storage.tables import JobRow

OPEN_STATES = tuple(state for state in JobState if not state.final)
FINAL_STATES = tuple(state for state in JobState if state.final)


def latest_jobs(session: Session, states: Sequence[JobState], limit: int) -> list[JobSummary]:
    """Return the latest jobs in any of the states, newest first.

    The latest ids of each state are read separately, because there is an index for that.
    """
    of_listed_kind = JobRow.kind.in_(LISTED_KINDS)
    parts = [
        select(JobRow.id)
        .where(JobRow.state == state, of_listed_kind)
        .order_by(JobRow.id.desc())
        .limit(limit)
        .subquery()
        for state in states
    ]
    ids = union_all(*(select(part.c.id) for part in parts))
    latest = jobs.many(session, sorted(session.scalars(ids), reverse=True)[:limit])
    return [latest[job_id] for job_id in sorted(latest, reverse=True)]
