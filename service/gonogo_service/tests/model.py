"""Tests: their specifications, assessments and rejudgements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class TestSpecRow(Base):
    """A submitted test: its canonical JSON under its key."""

    __test__ = False  # pytest: not a test case
    __tablename__ = "test_specs"
    key: Mapped[str] = mapped_column(primary_key=True)
    workload_key: Mapped[str] = mapped_column(index=True)
    kernel: Mapped[str]
    canonical: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class AssessmentRow(Base):
    """The conclusions about a variant: its grade, the cause of its flakiness, what changed.

    `content` holds the grade, the attribution and the trends.
    """

    __tablename__ = "assessments"
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"), primary_key=True)
    branch: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    board: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[str]  # newest assessed build of the branch; the columns below describe it
    build_sequence: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(IdType)  # the last assessed job
    stability: Mapped[str]
    sharpness: Mapped[str]
    hollow: Mapped[bool]
    change: Mapped[str | None]  # from the previous build; null: there is none
    failures: Mapped[int]
    runs: Mapped[int]
    content: Mapped[dict[str, Any]]
    policy: Mapped[str]
    version: Mapped[int]
    assessed_at: Mapped[datetime]
    __table_args__ = (Index("ix_assessments_stability", "stability", "test_key"),)


class RejudgementRow(Base):
    """The verdicts of stored results under another tolerance.

    The jobs' own verdicts stay as they are.
    """

    __tablename__ = "rejudgements"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    new_test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    build: Mapped[str | None]  # null: all builds
    owner: Mapped[str]
    reason: Mapped[str | None]
    report: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (Index("ix_rejudgements_test", "test_key", "id"),)
