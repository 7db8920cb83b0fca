"""What has to leave the database, and which process does what only one may do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


class OutboxRow(Base):
    """Something to do outside the database, written in the transaction that decided it; `dedupe`
    makes it happen once.
    """

    __tablename__ = "outbox"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    topic: Mapped[str]
    dedupe: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    due_at: Mapped[datetime | None]  # null = done
    tries: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None]
    done_at: Mapped[datetime | None] = mapped_column(index=True)
    __table_args__ = (
        Index(
            "ix_outbox_due",
            "due_at",
            sqlite_where=text("due_at IS NOT NULL"),
            postgresql_where=text("due_at IS NOT NULL"),
        ),
    )


class LeaseRow(Base):
    """Who does a job that only one process may do at a time, and until when by the database's clock
    (epoch seconds).
    """

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]
