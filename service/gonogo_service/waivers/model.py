"""Waivers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class WaiverRow(Base):
    """A finding accepted until a date, so that CI says `waived` (gonogo/flakiness/waivers.py).

    No row is ever deleted.
    """

    __tablename__ = "waivers"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    # Null: it selects by names or labels alone.
    test_key: Mapped[str | None] = mapped_column(ForeignKey("test_specs.key"))
    names: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    builds: Mapped[list[Any]]
    classes: Mapped[list[Any]]
    owner: Mapped[str]
    reason: Mapped[str]
    version: Mapped[int]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]  # by a person; null: it ends at expires_at
    ended_by: Mapped[str | None]
    __table_args__ = (
        Index("ix_waivers_ends", "ended_at", "expires_at"),
        Index("ix_waivers_test", "test_key", "id"),
    )
