"""Schedules and their due times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType

_DUE = text("next_at IS NOT NULL")


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
