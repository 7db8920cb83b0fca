"""What is concluded from the numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import IdType
from storage.tables.base import Base


class FlagRow(Base):
    """A finding about a test on one line of builds and one kind of board, with its evidence and its life."""

    __tablename__ = "flags"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    subject_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    build_line: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    owner: Mapped[str | None]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any]]
    first_job: Mapped[str] = mapped_column(IdType)
    last_job: Mapped[str] = mapped_column(IdType)
    jobs: Mapped[int]
    version: Mapped[int]
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("kind", "test_key", "build_line", "arch", "board"), Index("ix_flags_state", "state", "kind", "id"))
