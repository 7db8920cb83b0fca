"""Events of jobs, numbered per job under its lock, so that streams can resume after a number."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import EventRow, JobRow
from gonogo_service.jobs.values import SeedDecision, SuspectSeeds
from gonogo_service.kit.database.ids import is_id

Data = TypeVar("Data")
MAX_EVENTS = 500
"""Events of a job that are read at once."""


@dataclass(frozen=True)
class Progress:
    """The counts of a job, after new results."""

    type: ClassVar[str] = "progress"
    done: int
    total: int
    verdicts: dict[str, int]


@dataclass(frozen=True)
class SeedVerdict:
    """A seed that is the job's worst so far; of a selection, an iteration."""

    type: ClassVar[str] = "verdict"
    seed: int | None
    iteration: int | None
    repeat: int
    verdict: str
    explanation: str | None


@dataclass(frozen=True)
class StateChange:
    """A job's state, and why it has it; fields that say nothing are left out."""

    type: ClassVar[str] = "state"
    state: str
    verdict: str | None = None
    reason: str | None = None
    """In words; where sequential seeds were decided, or suspect seeds added more"""
    waiting_reason: str | None = None
    stop: SeedDecision | None = None
    """The decision on sequential seeds"""
    suspects: SuspectSeeds | None = None
    """The suspect seeds that added more"""


@dataclass(frozen=True)
class Event(Generic[Data]):
    """One event of a stream."""

    number: int
    type: str
    data: Data
    at: datetime | None = None
    """When it was stored; a bisection has only its newest state, without a time"""


@dataclass(frozen=True)
class Position:
    """The number of a job's last event, and whether there can be more."""

    last: int
    final: bool


def positions(session: Session, job_ids: Collection[str]) -> dict[str, Position]:
    """Return the position of each job, in one query; jobs that don't exist are left out."""
    query = select(JobRow.id, JobRow.last_event, JobRow.state).where(JobRow.id.in_(job_ids))
    return {job: Position(last, state.final) for job, last, state in session.execute(query)}


def add(
    session: Session, job: JobRow, data: Progress | SeedVerdict | StateChange, *, now: datetime
) -> None:
    """Append an event; the caller holds the job's lock (or has just created it)."""
    job.last_event += 1
    given = {
        field.name: value
        for field in fields(data)
        if (value := getattr(data, field.name)) is not None
        or field.default is MISSING
        or field.name == "verdict"  # a state always has its verdict
    }
    session.add(EventRow(job_id=job.id, number=job.last_event, type=data.type, data=given, at=now))


def after(session: Session, job_id: str, number: int) -> list[Event[dict[str, Any]]]:
    """Return a job's events after a number, in order; at most MAX_EVENTS.

    The next call has those behind them.
    """
    if not is_id(job_id):
        return []
    query = (
        select(EventRow)
        .where(EventRow.job_id == job_id, EventRow.number > number)
        .order_by(EventRow.number)
        .limit(MAX_EVENTS)
    )
    return [Event(row.number, row.type, row.data, row.at) for row in session.scalars(query)]
