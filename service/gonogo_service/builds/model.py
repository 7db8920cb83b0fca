"""Registered builds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base


class BuildRow(Base):
    """A registered build; the emulator's builds are code (`gonogo.spec.builds`)."""

    __tablename__ = "builds"
    name: Mapped[str] = mapped_column(primary_key=True)
    executor: Mapped[str]
    branch: Mapped[str]
    sequence: Mapped[int] = mapped_column(BigInteger)
    commit: Mapped[str | None]
    arithmetic: Mapped[str | None]
    outputs: Mapped[list[Any] | None]
    created_at: Mapped[datetime]
