"""Events of jobs, numbered per job under its lock, so that streams can resume after a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import EventRow, JobRow
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
    """A job's state, and why it has it."""

    type: ClassVar[str] = "state"
    state: str
    verdict: str | None = None
    reason: str | None = None
    """In words; where sequential seeds were decided, or suspect seeds added more"""
    waiting_reason: str | None = None
    stop: Any = None
    """The decision on sequential seeds"""
    suspects: Any = None
    """The suspect seeds that added more"""


@dataclass(frozen=True)
class Event(Generic[Data]):
    """One event of a stream."""

    number: int
    type: str
    data: Data
    at: datetime | None = None
    """When it was stored; a bisection has only its newest state, without a time"""


def add(
    session: Session, job: JobRow, data: Progress | SeedVerdict | StateChange, *, now: datetime
) -> None:
    """Append an event; the caller holds the job's lock (or has just created it)."""
    job.last_event += 1
    session.add(
        EventRow(job_id=job.id, number=job.last_event, type=data.type, data=_given(data), at=now)
    )


def _given(data: Progress | SeedVerdict | StateChange) -> Mapping[str, Any]:
    """Return the data without the fields that say nothing; a state always has its verdict."""
    values = {field.name: (getattr(data, field.name), field.default) for field in fields(data)}
    return {
        name: value
        for name, (value, default) in values.items()
        if default is MISSING or value is not None or name == "verdict"
    }


def after(session: Session, job_id: str, number: int) -> list[Event[dict[str, Any]]]:
    """Return a job's events after a number, in order, with their data as it is stored.

    At most MAX_EVENTS; the next call has those behind them.
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
