"""Bisections and their probes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType

_OPEN = text("state = 'running'")


class BisectionRow(Base):
    """A search for the build of a branch that changed a test's result.

    Its row is the lock of its probes. A transaction locks it before any job.
    """

    __tablename__ = "bisections"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    state: Mapped[str]
    signal: Mapped[str]  # gonogo.flakiness.bisecting.Signal
    expect: Mapped[str]  # gonogo.flakiness.bisecting.Expect
    several: Mapped[bool]
    owner: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    queue: Mapped[str]
    builds: Mapped[list[Any]]  # names, in the order of the branch
    request: Mapped[dict[str, Any]]  # what all probes' jobs share: test, target, context, ...
    seed_start: Mapped[int] = mapped_column(BigInteger)
    max_runs: Mapped[int]
    runs: Mapped[int]  # probes so far, including running ones
    version: Mapped[int]
    tracks: Mapped[list[Any]]  # the state of each search, for the page's drawing
    # The earlier states of the searches: gonogo_service.bisections.store.with_move.
    moves: Mapped[list[Any] | None]
    findings: Mapped[list[Any]]
    conclusion: Mapped[str | None]
    words: Mapped[str | None]
    error: Mapped[str | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_bisections_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_bisections_test", "test_key", "id"),
    )


class ProbeRow(Base):
    """One run of one build: a job of one seed, and its result."""

    __tablename__ = "bisection_probes"
    bisection_id: Mapped[str] = mapped_column(IdType, ForeignKey("bisections.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int]
    seed: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    ended: Mapped[bool]
    verdict: Mapped[str | None]
    red: Mapped[bool | None]  # null: the run has no verdict
    wrong: Mapped[bool | None]  # null: unknown whether rounding explains the error
    __table_args__ = (UniqueConstraint("job_id"),)
