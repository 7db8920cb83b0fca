"""Suites and their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType

_OPEN = text("state IN ('running', 'cancelling')")


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
