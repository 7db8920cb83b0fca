"""Results of jobs: seed results, roll-ups, artifacts and events."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType

_GATED, _UNGATED = text("tolerance_ratio IS NOT NULL"), text("tolerance_ratio IS NULL")


class SeedResultRow(Base):
    """The result of one output of one (seed, repeat) of a job.

    A seed without numbers (hang, crash, error) has the output ''. PostgreSQL partitions the table
    by job_id: the id is a UUIDv7, so a partition is a month (gonogo_storage/db/partitions.py).
    """

    __tablename__ = "seed_results"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    repeat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    output: Mapped[str] = mapped_column(primary_key=True)
    arrival: Mapped[int]  # 1, 2, ... per job and (seed, repeat), in the order of storing
    attempt_id: Mapped[str] = mapped_column(IdType)
    # Of the whole seed: the same in all its rows.
    seed_verdict: Mapped[str]
    seed_explanation: Mapped[str | None]
    device: Mapped[str | None]
    host_run: Mapped[str | None]
    position: Mapped[int | None]
    duration_ms: Mapped[float | None]
    arithmetic: Mapped[str | None]
    policy: Mapped[str | None]
    message: Mapped[str | None]
    # Of this output.
    verdict: Mapped[str]
    explanation: Mapped[str | None]
    tolerance_ratio: Mapped[float | None]
    budget_ratio: Mapped[float | None]
    chi: Mapped[float | None]
    max_abs: Mapped[float | None]
    rms: Mapped[float | None]
    pcc_deficit: Mapped[float | None]
    row_z: Mapped[float | None]
    xhat_z: Mapped[float | None]
    scale_z: Mapped[float | None]
    digest: Mapped[str | None]
    outcome: Mapped[str | None]  # an existing test's own result, green or red
    # Statistic -> "nan" | "inf" | "-inf", for those stored as NULL.
    nonfinite: Mapped[dict[str, Any] | None]
    statistics: Mapped[dict[str, Any] | None]  # those without a column
    __table_args__ = (
        Index("ix_seed_results_arrival", "job_id", "arrival"),
        # To find the worst seeds of a verdict without reading all. Each row is in one of these two
        # indexes, by the statistic that is the axis of its test.
        Index(
            "ix_seed_results_tolerance",
            "job_id",
            "output",
            "verdict",
            "tolerance_ratio",
            sqlite_where=_GATED,
            postgresql_where=_GATED,
        ),
        Index(
            "ix_seed_results_budget",
            "job_id",
            "output",
            "verdict",
            "budget_ratio",
            sqlite_where=_UNGATED,
            postgresql_where=_UNGATED,
        ),
        {"postgresql_partition_by": "RANGE (job_id)"},
    )


class RollupRow(Base):
    """A closed job's summary of one output, which history pages read instead of all seeds."""

    __tablename__ = "rollups"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    test_key: Mapped[str]
    build: Mapped[str]
    executor: Mapped[str]
    seeds: Mapped[int]
    duration_ms: Mapped[float | None]  # mean of one seed
    tolerance_ratio: Mapped[float | None]  # these are maxima over the job's seeds
    budget_ratio: Mapped[float | None]
    chi: Mapped[float | None]
    max_abs: Mapped[float | None]
    row_z: Mapped[float | None]
    xhat_z: Mapped[float | None]
    scale_z: Mapped[float | None]
    rms: Mapped[float | None]  # these two are means
    pcc_deficit: Mapped[float | None]
    __table_args__ = (
        Index("ix_rollups_workload", "workload_key", "executor", "job_id"),
        Index("ix_rollups_test", "test_key", "job_id"),
    )


class DayRollupRow(Base):
    """A test's sums for one UTC day, build, device and context.

    They cover one output, or whole seeds (output ''). Ingest adds each job's results
    (gonogo_storage/rollups/rollups.py). `key` is a hash of the axes. A `shadow` row comes from a
    rebuild and is not in use yet.
    """

    __tablename__ = "day_rollups"
    key: Mapped[str] = mapped_column(IdType, primary_key=True)
    shadow: Mapped[bool] = mapped_column(primary_key=True)
    test_key: Mapped[str]
    executor: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
    build_sequence: Mapped[int] = mapped_column(BigInteger)
    arch: Mapped[str]
    board: Mapped[str]
    context: Mapped[str]
    device: Mapped[str]  # '' where unknown
    day: Mapped[date]
    output: Mapped[str]
    seeds: Mapped[int] = mapped_column(BigInteger)  # number of (seed, repeat)
    empty: Mapped[int] = mapped_column(BigInteger)  # those without any output
    duration_us: Mapped[int] = mapped_column(BigInteger)
    counts: Mapped[dict[str, Any]]  # verdict -> n
    explanations: Mapped[dict[str, Any]]  # explanation -> n
    outcomes: Mapped[dict[str, Any]]  # gonogo.flakiness.rates.Outcome -> n; of whole seeds
    sketches: Mapped[dict[str, Any]]  # metric -> gonogo.flakiness.sketches.Sketch
    __table_args__ = (
        Index("ix_day_rollups_test", "test_key", "build"),
        Index("ix_day_rollups_day", "day", "output"),
    )


class JobTallyRow(Base):
    """The same sums for one job, over all devices and days.

    They cover one output, or whole seeds (output '').
    """

    __tablename__ = "job_tallies"
    # No foreign key, for the reason given in RolledRow.
    job_id: Mapped[str] = mapped_column(IdType, primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    shadow: Mapped[bool] = mapped_column(primary_key=True)
    seeds: Mapped[int] = mapped_column(BigInteger)
    empty: Mapped[int] = mapped_column(BigInteger)
    duration_us: Mapped[int] = mapped_column(BigInteger)
    counts: Mapped[dict[str, Any]]
    explanations: Mapped[dict[str, Any]]
    outcomes: Mapped[dict[str, Any]]
    sketches: Mapped[dict[str, Any]]


class RolledRow(Base):
    """A job's progress in the roll-ups: they include its rows of arrival 1 to `upto`.

    The test's lock guards it. There is no foreign key: to check it, PostgreSQL would lock the job's
    row, and that lock must come before the test's.
    """

    __tablename__ = "rolled"
    job_id: Mapped[str] = mapped_column(IdType, primary_key=True)
    shadow: Mapped[bool] = mapped_column(primary_key=True)
    upto: Mapped[int]


class ArtifactRow(Base):
    """A larger object of a seed: a diagnosis, an error map, coefficients, a log."""

    __tablename__ = "artifacts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    attempt_id: Mapped[str] = mapped_column(IdType)
    kind: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    repeat: Mapped[int]
    output: Mapped[str]
    size: Mapped[int]
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("job_id", "kind", "seed", "repeat", "output"),)


class EventRow(Base):
    """An event of a job's SSE stream, numbered 1, 2, ... per job."""

    __tablename__ = "events"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str]
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]
