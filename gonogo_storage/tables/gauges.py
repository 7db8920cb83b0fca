"""Gauges: a test measured with right and wrong kernels. The work is that of a hidden job with the
same id; the rows are of their own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


class GaugeRow(Base):
    """What is measured, with which parts, and what was found. State, counters, chunks and events
    are those of the job of the same id.
    """

    __tablename__ = "gauges"
    id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    branch: Mapped[str]  # whose flag and grade it is, with the test, arch and board
    arch: Mapped[str]
    board: Mapped[str]
    seeds: Mapped[list[Any]]
    search: Mapped[bool]  # whether other inputs are tried where no tolerance works
    elsewhere: Mapped[
        list[Any]
    ]  # the other inputs that are tried, once they are: {"name", "sentence", "inputs"}
    parts: Mapped[
        list[Any]
        # gonogo.gauge.plan.Planned and "where": null or the place in `elsewhere`; a row's `part` counts
        # in it
    ]
    done: Mapped[
        int
    ]  # rows stored, changed under the job's lock; the job's own `done` counts seeds, and stays 0
    sharpness: Mapped[str | None]
    misses: Mapped[
        dict[str, Any] | None
    ]  # wrong part -> [passed, of the seeds on which it can show]: what a grade reads
    words: Mapped[str | None]  # the findings in a few sentences
    report: Mapped[dict[str, Any] | None]  # gonogo.gauge.report.Gauge.to_json, with "elsewhere"
    __table_args__ = (Index("ix_gauges_test", "test_key", "id"),)


class GaugeResultRow(Base):
    """One run of one part. Apart from the seed results: a known-wrong kernel says nothing about any
    build of the test.
    """

    __tablename__ = "gauge_results"
    gauge_id: Mapped[str] = mapped_column(IdType, ForeignKey("gauges.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    part: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt_id: Mapped[str] = mapped_column(IdType)
    device: Mapped[str | None]
    duration_ms: Mapped[float | None]
    row: Mapped[dict[str, Any]]  # of gonogo.gauge.measure, without part and seed
    stored_at: Mapped[datetime]
