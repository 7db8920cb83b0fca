"""Flags and their changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class FlagRow(Base):
    """A finding about a test on one branch and one kind of board, with its evidence and state."""

    __tablename__ = "flags"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    workload_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
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
    # The variant's newest job at the last evidence; later jobs may be quiet.
    quiet_after: Mapped[str | None] = mapped_column(IdType)
    __table_args__ = (
        UniqueConstraint("kind", "test_key", "branch", "arch", "board"),
        Index("ix_flags_state", "state", "kind", "id"),
        Index("ix_flags_owner", "owner", "state", "kind", "id"),
        Index("ix_flags_build", "build", "state", "kind", "id"),
    )


class FlagChangeRow(Base):
    """A change of a flag that matters to people; rows are only ever added.

    Renewed evidence alone is not such a change.
    """

    __tablename__ = "flag_changes"
    flag_id: Mapped[str] = mapped_column(IdType, ForeignKey("flags.id"), primary_key=True)
    # The flag's version after the change.
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str]
    what: Mapped[str]  # "opened", "reopened", "resolved", "expired", "changed"
    before: Mapped[str | None]
    after: Mapped[str]
    reason: Mapped[str | None]
    detail: Mapped[dict[str, Any] | None]
