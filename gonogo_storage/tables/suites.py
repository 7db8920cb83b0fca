"""Suites, runs with their jobs, schedules with their due times, and rejudgements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType

_OPEN = text("state IN ('running', 'cancelling')")
_DUE = text("next_at IS NOT NULL")


class SuiteRow(Base):
    """The newest version of a named list of job templates.

    `key` is the hash of its content; the same content makes no new version.
    """

    __tablename__ = "suites"
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    key: Mapped[str]
    content: Mapped[dict[str, Any]]
    owner: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]


class RunRow(Base):
    """One submission of a suite.

    While it is open, its counters are computed from its jobs; they are stored here at its end. A
    transaction locks all jobs that it needs first: the run's lock is always the last one.
    """

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]  # of its suite, stored or inline
    suite_version: Mapped[int | None]  # null: the run brought its own suite
    schedule_id: Mapped[str | None] = mapped_column(IdType)
    due_at: Mapped[datetime | None]  # of its schedule; null: a person started it
    state: Mapped[str]
    verdict: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=1)
    owner: Mapped[str]
    builds: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    commit: Mapped[dict[str, Any] | None]
    job_count: Mapped[int]
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    counts: Mapped[dict[str, Any]]  # seeds by verdict
    job_counts: Mapped[dict[str, Any]]  # jobs by verdict
    red: Mapped[int] = mapped_column(default=0)  # jobs with anything red
    hollow: Mapped[int] = mapped_column(default=0)  # jobs with a hollow pass
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_runs_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_runs_name", "name", "id"),
        Index("ix_runs_schedule", "schedule_id", "id"),
    )


class RunJobRow(Base):
    """A job of a run, in the order of the suite's entries; a job belongs to at most one run."""

    __tablename__ = "run_jobs"
    run_id: Mapped[str] = mapped_column(IdType, ForeignKey("runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), unique=True)
    name: Mapped[str]


class ScheduleRow(Base):
    """A cron line that submits a suite; `next_at` is null while it is paused or archived."""

    __tablename__ = "schedules"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]
    suite: Mapped[str] = mapped_column(ForeignKey("suites.name"))
    cron: Mapped[str]
    timezone: Mapped[str]
    overlap: Mapped[str]
    builds: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    owner: Mapped[str]
    version: Mapped[int]
    paused: Mapped[bool]
    next_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_schedules_next", "next_at", sqlite_where=_DUE, postgresql_where=_DUE),
    )


class DueRow(Base):
    """The outcome of one due time of a schedule.

    Its key makes it happen once, however many copies of the service run.
    """

    __tablename__ = "schedule_dues"
    schedule_id: Mapped[str] = mapped_column(IdType, ForeignKey("schedules.id"), primary_key=True)
    due_at: Mapped[datetime] = mapped_column(primary_key=True)
    outcome: Mapped[str]
    run_id: Mapped[str | None] = mapped_column(IdType)
    reason: Mapped[str | None]
    at: Mapped[datetime]


class RejudgementRow(Base):
    """The verdicts of stored results under another tolerance.

    The jobs' own verdicts stay as they are.
    """

    __tablename__ = "rejudgements"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    new_test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    build: Mapped[str | None]  # null: all builds
    owner: Mapped[str]
    reason: Mapped[str | None]
    report: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (Index("ix_rejudgements_test", "test_key", "id"),)
