"""What the pages read beside the nouns' own queries: the latest jobs. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from gonogo_storage.db.states import TOLD_KINDS, JobState
from gonogo_storage.jobs import jobs
from gonogo_storage.jobs.job import Job
from gonogo_storage.tables import JobRow

OPEN_STATES = tuple(state for state in JobState if not state.final)
FINAL_STATES = tuple(state for state in JobState if state.final)


def latest_jobs(session: Session, states: Sequence[JobState], limit: int) -> list[Job]:
    """The latest jobs in any of the states, newest first: of each state the latest by their ids,
    for which there is an index.
    """
    told = JobRow.kind.in_(TOLD_KINDS)
    parts = [
        select(JobRow.id)
        .where(JobRow.state == each, told)
        .order_by(JobRow.id.desc())
        .limit(limit)
        .subquery()
        for each in states
    ]
    ids = union_all(*(select(part.c.id) for part in parts))
    found = jobs.many(session, sorted(session.scalars(ids), reverse=True)[:limit])
    return [found[job_id] for job_id in sorted(found, reverse=True)]
