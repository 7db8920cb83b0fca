"""The tables of results: a row for each output of each seed, and two aggregates of them."""

from __future__ import annotations

from datetime import date
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import ExplanationType, IdType, VerdictType

BLOCK = 4096
"""Seeds of a block of JobBlockRow."""
WHOLE = ""
"""Stands for the whole seed instead of an output."""
_WORST = text("place = 0")


class ResultRow(Base):
    """One output of one (seed, repeat) of a job; of a selection, one test of an iteration.

    The outputs of a seed have the places 0, 1, ..., worst first (gonogo.spec.verdicts.worst_first).
    So the rows of place 0 stand for the seeds. A seed without outputs has one row, for WHOLE.
    """

    __tablename__ = "results"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    repeat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    output: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[int]
    arrival: Mapped[int]  # of the seed: 1, 2, ... per job, in the order of storing
    source: Mapped[int]  # SourceRow.number
    seed_verdict: Mapped[str] = mapped_column(VerdictType)
    seed_explanation: Mapped[str | None] = mapped_column(ExplanationType)
    position: Mapped[int | None]
    duration_ms: Mapped[float | None]
    kernel_s: Mapped[float | None]  # of the kernel alone; None where that isn't known
    message: Mapped[str | None]  # in place 0 only
    verdict: Mapped[str] = mapped_column(VerdictType)
    explanation: Mapped[str | None] = mapped_column(ExplanationType)
    outcome: Mapped[str | None]  # of an existing test: passed, failed, ...
    arithmetic: Mapped[str | None]
    # minus gonogo.spec.verdicts.size, so that the worst comes first; minus infinity for a seed
    # without outputs, and for NaN
    minus_size: Mapped[float]
    tolerance_ratio: Mapped[float | None]
    rounding_ratio: Mapped[float | None]
    max_abs: Mapped[float | None]
    rms: Mapped[float | None]
    rel_frobenius: Mapped[float | None]
    pcc_deficit: Mapped[float | None]
    ulp_max: Mapped[float | None]
    nonfinite: Mapped[int | None] = mapped_column(BigInteger)
    digest: Mapped[str | None]
    notes: Mapped[dict[str, Any] | None]  # all other statistics
    __table_args__ = (
        Index("ix_results_arrival", "job_id", "arrival", "place"),
        Index(
            "ix_results_worst",
            "job_id",
            "seed_verdict",
            "minus_size",
            "seed",
            "repeat",
            sqlite_where=_WORST,
            postgresql_where=_WORST,
        ),
        Index("ix_results_output", "job_id", "output", "verdict", "minus_size"),
    )


class SourceRow(Base):
    """The attempt, device and process that ran many seeds of a job."""

    __tablename__ = "result_sources"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt_id: Mapped[str] = mapped_column(IdType)
    device: Mapped[str | None]
    host_run: Mapped[str | None]
    arithmetic: Mapped[str | None]
    judge: Mapped[str | None]


class Sums:
    """Sums over (seed, repeat), of one output or of whole seeds (WHOLE), by verdict.

    Of each ratio and of rms there are the largest value, and of all finite values the number and
    the sum of their logarithms. The ratios of whole seeds are those of their worst output.
    """

    n: Mapped[int] = mapped_column(BigInteger)
    passed: Mapped[int] = mapped_column(BigInteger)  # by gonogo.flakiness.rates
    failed: Mapped[int] = mapped_column(BigInteger)
    empty: Mapped[int] = mapped_column(BigInteger)  # without any output
    duration_ms: Mapped[float]
    timed: Mapped[int] = mapped_column(BigInteger)  # seeds with outputs and a duration
    timed_ms: Mapped[float]
    tolerance_ratio: Mapped[float | None]
    tolerance_ratio_n: Mapped[int] = mapped_column(BigInteger)
    tolerance_ratio_log: Mapped[float]
    rounding_ratio: Mapped[float | None]
    rounding_ratio_n: Mapped[int] = mapped_column(BigInteger)
    rounding_ratio_log: Mapped[float]
    rms: Mapped[float | None]
    rms_n: Mapped[int] = mapped_column(BigInteger)
    rms_log: Mapped[float]
    rms_sum: Mapped[float]
    max_abs: Mapped[float | None]
    pcc_deficit_n: Mapped[int] = mapped_column(BigInteger)
    pcc_deficit_sum: Mapped[float]


class JobBlockRow(Sums, Base):
    """The sums of BLOCK seeds of a job on a day (UTC) and a device ('' where unknown).

    They stay when retention deletes the rows. `seed` and `repeat` are the first of the verdict.
    """

    __tablename__ = "job_blocks"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    verdict: Mapped[str] = mapped_column(VerdictType, primary_key=True)
    explanation: Mapped[str] = mapped_column(primary_key=True)  # '' for none
    day: Mapped[date] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    repeat: Mapped[int]
    # seeds with kernel_s, and the sums of its logarithm and of the logarithm's square
    kernel_n: Mapped[int] = mapped_column(BigInteger)
    kernel_log: Mapped[float]
    kernel_square: Mapped[float]


class DailyRow(Sums, Base):
    """The sums of a test's jobs on a day, by build, device and context: those of their blocks.

    Only jobs that count are in it (gonogo_service.tests.variants.COUNTED). `key` is a hash of the
    other columns that aren't sums.
    """

    __tablename__ = "daily"
    key: Mapped[str] = mapped_column(IdType, primary_key=True)
    test_key: Mapped[str]
    executor: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
    build_sequence: Mapped[int] = mapped_column(BigInteger)
    arch: Mapped[str]
    board: Mapped[str]
    context: Mapped[str]
    device: Mapped[str]
    day: Mapped[date]
    output: Mapped[str]
    verdict: Mapped[str] = mapped_column(VerdictType)
    explanation: Mapped[str]
    __table_args__ = (
        Index("ix_daily_test", "test_key", "build", "output"),
        Index("ix_daily_day", "day", "output"),
        Index("ix_daily_lately", "test_key", "output", "day"),
    )
