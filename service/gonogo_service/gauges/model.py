"""Gauges and their results."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class GaugeRow(Base):
    """A gauge: its test, its parts, and its findings.

    State, counters, chunks and events are those of the job with the same id.
    """

    __tablename__ = "gauges"
    id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    branch: Mapped[str]  # with test, arch and board: the variant of its flag and grade
    arch: Mapped[str]
    board: Mapped[str]
    seeds: Mapped[list[Any]]
    search: Mapped[bool]  # whether to try other inputs if no tolerance works
    # The other inputs, once they are tried: {"name", "sentence", "inputs"}.
    elsewhere: Mapped[list[Any]]
    # gonogo.gauge.plan.Planned, and "where": the index in `elsewhere`, or null. A result's `part`
    # is an index into this list.
    parts: Mapped[list[Any]]
    # Number of stored rows, changed under the job's lock. The job's own `done`, of seeds, stays 0.
    done: Mapped[int]
    sharpness: Mapped[str | None]
    # Wrong part -> [passed seeds, seeds on which it can show]; the grade is computed from this.
    misses: Mapped[dict[str, Any] | None]
    words: Mapped[str | None]  # the findings in a few sentences
    report: Mapped[dict[str, Any] | None]  # gonogo.gauge.summary.GaugeReport
    __table_args__ = (Index("ix_gauges_test", "test_key", "id"),)


class GaugeResultRow(Base):
    """The result of one seed of one part.

    It is kept apart from seed results: a mutant says nothing about any build of the test.
    """

    __tablename__ = "gauge_results"
    gauge_id: Mapped[str] = mapped_column(IdType, ForeignKey("gauges.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    part: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt_id: Mapped[str] = mapped_column(IdType)
    device: Mapped[str | None]
    duration_ms: Mapped[float | None]
    row: Mapped[dict[str, Any]]  # from gonogo.gauge.measure, without part and seed
