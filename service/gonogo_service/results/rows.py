"""Results of seeds and their roll-ups."""

from __future__ import annotations

from datetime import date
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import ExplanationType, IdType, VerdictType

SLOTS = 4


def _slot_index(slot: int) -> Index:
    # Partial, because most kernels have three outputs.
    used = text(f"rank_{slot} IS NOT NULL")
    return Index(
        f"ix_seed_results_slot_{slot}",
        "job_id",
        f"rank_{slot}",
        f"axis_{slot}",
        sqlite_where=used,
        postgresql_where=used,
    )


class SeedResultRow(Base):
    """The result of one (seed, repeat) of a job, with all its outputs.

    `layout`, `numbers` and `rest` hold the outputs (seed_rows/layouts.py). The
    outputs of a job have slots (JobRow.slots). There the rank of an output is 4 times the number of
    its verdict, plus its class (seed_rows/slots.py), and its axis is the statistic
    that its test is plotted by. So an index finds the worst seeds of a verdict. PostgreSQL
    partitions the table by job_id: the id is a UUIDv7, so a partition is a month
    (service/gonogo_service/kit/database/partitions.py).
    """

    __tablename__ = "seed_results"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    repeat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    arrival: Mapped[int]  # 1, 2, ... per job, in the order of storing
    source: Mapped[int]  # SeedSourceRow.number
    verdict: Mapped[str] = mapped_column(VerdictType)
    explanation: Mapped[str | None] = mapped_column(ExplanationType)
    position: Mapped[int | None]
    duration_ms: Mapped[float | None]
    message: Mapped[str | None]
    rank_0: Mapped[int | None] = mapped_column(SmallInteger)
    rank_1: Mapped[int | None] = mapped_column(SmallInteger)
    rank_2: Mapped[int | None] = mapped_column(SmallInteger)
    rank_3: Mapped[int | None] = mapped_column(SmallInteger)
    axis_0: Mapped[float | None]
    axis_1: Mapped[float | None]
    axis_2: Mapped[float | None]
    axis_3: Mapped[float | None]
    layout: Mapped[int | None] = mapped_column(BigInteger)
    numbers: Mapped[bytes | None]
    rest: Mapped[str | None]
    __table_args__ = (
        Index("ix_seed_results_arrival", "job_id", "arrival"),
        *(_slot_index(slot) for slot in range(SLOTS)),
        {"postgresql_partition_by": "RANGE (job_id)"},
    )


class SeedSourceRow(Base):
    """The attempt, device and process that ran many seeds of a job."""

    __tablename__ = "seed_sources"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt_id: Mapped[str] = mapped_column(IdType)
    device: Mapped[str | None]
    host_run: Mapped[str | None]
    arithmetic: Mapped[str | None]
    judge: Mapped[str | None]


class SeedLayoutRow(Base):
    """Which statistics the outputs of a seed have; the id is a hash of the content."""

    __tablename__ = "seed_layouts"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    content: Mapped[list[Any]]


class _Sums:
    """The sums of seeds, of one output or of whole seeds."""

    seeds: Mapped[int] = mapped_column(BigInteger)  # number of (seed, repeat)
    empty: Mapped[int] = mapped_column(BigInteger)  # those without any output
    duration_us: Mapped[int] = mapped_column(BigInteger)
    counts: Mapped[dict[str, Any]]  # verdict -> n
    explanations: Mapped[dict[str, Any]]  # explanation -> n
    outcomes: Mapped[dict[str, Any]]  # gonogo.flakiness.rates.Outcome -> n; of whole seeds
    figures: Mapped[dict[str, Any]]  # gonogo_service.results.rollups.figures.figure
    sketches: Mapped[dict[str, Any]]  # metric -> gonogo.flakiness.sketches.Sketch


class DayRollupRow(_Sums, Base):
    """A test's sums for one UTC day, build, device and context.

    They cover one output, or whole seeds (output ''). Ingest adds each job's results
    (rollups/rollups.py). `key` is a hash of the axes. A `shadow` row comes from a
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
    __table_args__ = (
        Index("ix_day_rollups_test", "test_key", "build", "output"),
        Index("ix_day_rollups_day", "day", "output"),
        Index("ix_day_rollups_lately", "test_key", "output", "day"),
    )


class JobTallyRow(_Sums, Base):
    """The same sums for one job, over all devices and days.

    They cover one output, or whole seeds (output '').
    """

    __tablename__ = "job_tallies"
    # No foreign key, for the reason given in RolledRow.
    job_id: Mapped[str] = mapped_column(IdType, primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    shadow: Mapped[bool] = mapped_column(primary_key=True)


class ArchivedTallyRow(_Sums, Base):
    """The sums of a job whose seed rows retention removed: by day and device, for one output.

    A rebuild of the roll-ups reads them instead of the rows.
    """

    __tablename__ = "archived_tallies"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)  # '' where unknown
    output: Mapped[str] = mapped_column(primary_key=True)


class RolledRow(Base):
    """A job's progress in the roll-ups: they include its rows of arrival 1 to `upto`.

    The test's lock guards it. There is no foreign key: to check it, PostgreSQL would lock the job's
    row, and that lock must come before the test's.
    """

    __tablename__ = "rolled"
    job_id: Mapped[str] = mapped_column(IdType, primary_key=True)
    shadow: Mapped[bool] = mapped_column(primary_key=True)
    upto: Mapped[int]


class SeedGridRow(Base):
    """A job's verdicts: one character per (seed, repeat), "." while there is none.

    The order is that of gonogo_service.results.seed_order. Ingest updates it in the results'
    transaction, under the job's lock. A job without a row here is read from its results.
    """

    __tablename__ = "seed_grids"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    letters: Mapped[str]
