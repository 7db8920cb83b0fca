"""What the pages read beside the nouns' own queries: the latest jobs and open flags. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from storage import jobs
from storage.jobs import Job
from storage.states import FlagState, JobState
from storage.tables import FlagRow, TestSpecRow

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
    """The latest jobs in any of the states, newest first."""
    found = [job for state in states for job in jobs.list_(session, jobs.JobFilter(state=state.value), limit=limit).items]
    return sorted(found, key=lambda job: job.id, reverse=True)[:limit]


def open_flags(session: Session, limit: int = 20) -> list[FlagRecord]:
    """Findings that aren't resolved: hollow tests first, then the latest."""
    hollow = case((FlagRow.kind == "passes_by_tolerance", 0), else_=1)
    query = (
        select(FlagRow, TestSpecRow.canonical)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.state.in_(OPEN_FLAGS))
        .order_by(hollow, FlagRow.updated_at.desc(), FlagRow.id)
        .limit(limit)
    )
    names = [name for name in FlagRecord.__dataclass_fields__ if name != "test"]
    return [FlagRecord(**{name: getattr(flag, name) for name in names}, test=test) for flag, test in session.execute(query)]
