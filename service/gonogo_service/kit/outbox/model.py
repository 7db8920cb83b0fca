"""The outbox and leases of duties."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.outbox.due_columns import DueColumns, due_index


class OutboxRow(DueColumns, Base):
    """A message about work to do outside the database.

    It is written in the transaction that decides on the work. `dedupe` makes it happen once.
    """

    __tablename__ = "outbox"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    topic: Mapped[str]
    dedupe: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    error: Mapped[str | None]
    done_at: Mapped[datetime | None] = mapped_column(index=True)
    __table_args__ = (due_index("outbox"),)


class LeaseRow(Base):
    """The holder of a duty that only one process may do at a time.

    `until` is in seconds since the epoch by the database's clock.
    """

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]
