"""Tests: their specifications, assessments and rejudgements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo.spec.tolerances import AnyTolerance
from gonogo.spec.verdicts import Verdict
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType, Stored
from gonogo_service.kit.database.records import Documented


class TestSpecRow(Base):
    """A submitted test under its key."""

    __test__ = False  # pytest: not a test case
    __tablename__ = "test_specs"
    key: Mapped[str] = mapped_column(primary_key=True)
    workload_key: Mapped[str] = mapped_column(index=True)
    kernel: Mapped[str]
    test: Mapped[dict[str, Any]] = mapped_column(
        doc="In its canonical form, without fields that have their default"
    )
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
    change: Mapped[str | None]  # from the previous build; null: there is none
    failures: Mapped[int]
    runs: Mapped[int]
    content: Mapped[dict[str, Any]]
    policy: Mapped[str]
    version: Mapped[int]
    assessed_at: Mapped[datetime]
    __table_args__ = (Index("ix_assessments_stability", "stability", "test_key"),)


@dataclass(frozen=True)
class Rejudged:
    """Old and new verdicts of seeds; the stored numbers can't decide the `undecided` ones."""

    build: str
    seeds: int
    changed: int
    undecided: int
    old: dict[str, int]
    """By verdict"""
    new: dict[str, int]


@dataclass(frozen=True)
class RejudgedBuild(Rejudged):
    """The verdicts of all jobs of a build."""

    branch: str
    sequence: int
    jobs: int


@dataclass(frozen=True)
class RejudgedJob(Rejudged):
    """The verdicts of a job; `new_verdict` is null if a seed is undecided."""

    job: str
    old_verdict: Verdict | None
    new_verdict: Verdict | None


@dataclass(frozen=True)
class Tolerances:
    """The declared tolerance, and the one that the seeds are judged with."""

    old: Annotated[dict[str, Any], Documented(AnyTolerance)]
    new: Annotated[dict[str, Any], Documented(AnyTolerance)]


class RejudgementRow(Base):
    """The verdicts of stored results under another tolerance; those of the jobs stay.

    A report that isn't stored has no id, owner and time.
    """

    __tablename__ = "rejudgements"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    new_test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    tolerance: Mapped[Tolerances] = mapped_column(Stored(Tolerances))
    build: Mapped[str | None] = mapped_column(doc="null: all builds")
    builds: Mapped[list[RejudgedBuild]] = mapped_column(Stored(list[RejudgedBuild]))
    jobs: Mapped[list[RejudgedJob]] = mapped_column(Stored(list[RejudgedJob]))
    seeds: Mapped[int]
    changed: Mapped[int]
    undecided: Mapped[int]
    reasons: Mapped[dict[str, int]] = mapped_column(
        doc="Why the stored numbers don't decide -> seeds"
    )
    jobs_left_out: Mapped[int]
    jobs_removed: Mapped[int] = mapped_column(
        doc="Jobs whose results per seed retention has removed"
    )
    owner: Mapped[str]
    reason: Mapped[str | None]
    created_at: Mapped[datetime]
    __table_args__ = (Index("ix_rejudgements_test", "test_key", "id"),)
