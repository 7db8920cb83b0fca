"""The latest jobs, for the overview. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import LISTED_KINDS, JobState

RUNNING_STATES = (JobState.running, JobState.cancelling)


def latest_jobs(session: Session, states: Sequence[JobState], limit: int) -> list[JobRow]:
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
    latest = jobs.in_lists().where(JobRow.id.in_(ids)).order_by(JobRow.id.desc())
    return list(session.scalars(latest.limit(limit)))


def open_jobs(session: Session, limit: int) -> list[JobRow]:
    """Return the jobs that run, the newest first, then the queue in its order.

    The queue's order is the priority, then the time of submission.
    """
    listed = latest_jobs(session, RUNNING_STATES, limit)
    if room := limit - len(listed):
        queued = jobs.in_lists().where(JobRow.state == JobState.queued)
        order = queued.order_by(JobRow.priority.desc(), JobRow.id).limit(room)
        listed += session.scalars(order)
    return listed
