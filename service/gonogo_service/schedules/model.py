"""Schedules, and the outcome of each of their due times."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo.ci.cron import CronLine
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, TextType, WordOf
from gonogo_service.kit.database.states import DueOutcome

UPCOMING = 5
"""The due times ahead that a schedule shows."""
Overlap = Literal["skip", "allow"]
_DUE = text("next_at IS NOT NULL")


class ScheduleRow(Base):
    """A cron line that submits a suite; it has no next time while it is paused or archived."""

    __tablename__ = "schedules"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]
    suite: Mapped[str] = mapped_column(ForeignKey("suites.name"))
    cron: Mapped[str]
    timezone: Mapped[str]
    overlap: Mapped[Overlap] = mapped_column(TextType)
    builds: Mapped[list[str]]
    labels: Mapped[dict[str, str]]
    owner: Mapped[str]
    version: Mapped[int] = mapped_column(default=1)
    paused: Mapped[bool]
    next_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_schedules_next", "next_at", sqlite_where=_DUE, postgresql_where=_DUE),
    )

    last: tuple[Any, ...] = ()
    """Its last due times (DueRow), newest first; store.read_last reads them."""

    @property
    def upcoming(self) -> list[datetime]:
        """Return its next due times; none while it is paused."""
        if self.next_at is None:
            return []
        return [self.next_at, *CronLine(self.cron, self.timezone).next(self.next_at, UPCOMING - 1)]


class DueRow(Base):
    """A due time of a schedule and its outcome.

    Its key makes it happen once, however many copies of the service run.
    """

    __tablename__ = "schedule_dues"
    schedule_id: Mapped[str] = mapped_column(
        IdType, ForeignKey("schedules.id"), primary_key=True, info=INTERNAL
    )
    due_at: Mapped[datetime] = mapped_column(primary_key=True)
    outcome: Mapped[DueOutcome] = mapped_column(WordOf(DueOutcome))
    run: Mapped[str | None] = mapped_column("run_id", IdType)
    reason: Mapped[str | None]
    at: Mapped[datetime]
