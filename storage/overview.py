"""What the pages read beside the nouns' own queries: the latest jobs and open flags. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from storage import jobs
from storage.jobs import Job
from storage.states import TOLD_KINDS, FlagState, JobState
from storage.tables import JobRow

OPEN_STATES = tuple(state for state in JobState if not state.final)
FINAL_STATES = tuple(state for state in JobState if state.final)
OPEN_FLAGS = (FlagState.open, FlagState.reopened, FlagState.acknowledged)


@dataclass(frozen=True)
class FlagRecord:
    """A finding about a test, with its evidence as ingest wrote it."""

    id: str
    kind: str
    state: str
    test_key: str
    kernel: str
    build: str
    jobs: int
    last_job: str
    owner: str | None
    reason: str | None
    opened_at: datetime
    updated_at: datetime
    evidence: Mapping[str, Any]
    test: Mapping[str, Any]


def latest_jobs(session: Session, states: Sequence[JobState], limit: int) -> list[Job]:
    """The latest jobs in any of the states, newest first: of each state the latest by their ids, for which there is an index."""
    told = JobRow.kind.in_(TOLD_KINDS)
    parts = [select(JobRow.id).where(JobRow.state == each, told).order_by(JobRow.id.desc()).limit(limit).subquery() for each in states]
    ids = union_all(*(select(part.c.id) for part in parts))
    found = jobs.many(session, sorted(session.scalars(ids), reverse=True)[:limit])
    return [found[job_id] for job_id in sorted(found, reverse=True)]
