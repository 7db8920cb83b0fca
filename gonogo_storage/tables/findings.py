"""Conclusions from results: flags, assessments, trends and waivers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


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


class AssessmentRow(Base):
    """The conclusions about a variant: its grade, the cause of its flakiness, what changed.

    `content` holds the complete assessment.
    """

    __tablename__ = "assessments"
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"), primary_key=True)
    branch: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    board: Mapped[str] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]  # newest assessed build of the branch; the columns below describe it
    build_sequence: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(IdType)  # the last assessed job
    stability: Mapped[str]
    sharpness: Mapped[str]
    hollow: Mapped[bool]
    cause: Mapped[str]
    change: Mapped[str | None]  # from the previous build; null: there is none
    failures: Mapped[int]
    runs: Mapped[int]
    predicted: Mapped[float | None]  # failures per seed
    seeds: Mapped[int]  # number of seeds read
    content: Mapped[dict[str, Any]]
    policy: Mapped[str]
    version: Mapped[int]
    assessed_at: Mapped[datetime]
    __table_args__ = (
        Index("ix_assessments_stability", "stability", "test_key"),
        Index("ix_assessments_workload", "workload_key"),
    )


class TrendRow(Base):
    """A variant's trend over builds or days, as its pages show it.

    `stamp` identifies the jobs that it was computed from.
    """

    __tablename__ = "trends"
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"), primary_key=True)
    branch: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    board: Mapped[str] = mapped_column(primary_key=True)
    over: Mapped[str] = mapped_column(primary_key=True)  # "builds", "days"
    form: Mapped[str]  # of the content, and the policy that it was computed by
    stamp: Mapped[str]
    content: Mapped[dict[str, Any]]  # of the default metric, without `steps`
    steps: Mapped[list[Any]]  # between builds; they depend on no metric
    made_at: Mapped[datetime]


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
