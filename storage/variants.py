"""Full variants (test, build line, arch, board), which grades and flags are kept for, and the finished jobs of one. Bounded reads.

The API process imports this: no numpy here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.selections import KERNEL
from storage.states import TOLD_KINDS, JobState
from storage.tables import JobRow

ISOLATED = "isolated"
MOST_JOBS = 200
"""Newest jobs of a variant that are looked at: two hundred nights."""
_FACTS = (
    "id", "test_key", "subject_key", "kernel", "build", "build_line", "build_sequence", "executor", "arch", "board", "context", "verdict",
    "done", "counts", "outcomes", "created_at", "finished_at",
)


@dataclass(frozen=True, order=True)
class Variant:
    """A test on one line of builds and one kind of board."""

    test_key: str
    build_line: str
    arch: str
    board: str

    def to_json(self) -> dict[str, str]:
        """In plain JSON types."""
        return {"test_key": self.test_key, "build_line": self.build_line, "arch": self.arch, "board": self.board}


@dataclass(frozen=True)
class JobFacts:
    """What a history needs of a job that is over. `counts`: its (seed, repeat) by verdict, exact however many there are."""

    id: str
    variant: Variant
    subject_key: str
    kernel: str
    build: str
    sequence: int
    executor: str
    context: str
    verdict: str | None
    done: int
    counts: Mapping[str, int]
    told: Mapping[str, int]
    """Of a selection: its tests of all iterations by what they say of themselves (passed, failed, ...); empty of a kernel."""
    created_at: datetime
    finished_at: datetime | None

    @property
    def selection(self) -> bool:
        """Whether it ran tests that exist already (gtest, pytest): their iterations have no controlled seed."""
        return self.kernel == KERNEL


_OF_SEEDS = JobRow.reference.is_(None) & JobRow.kind.in_(TOLD_KINDS)


def jobs_of(session: Session, variant: Variant, *, build: str | None = None, limit: int = MOST_JOBS) -> tuple[JobFacts, ...]:
    """The newest finished or cancelled jobs of a variant (of one build, if named), newest first, by id.

    Gauges and jobs that compare two builds (`reference`) are left out: they say nothing of the build against float64. Ids carry the time of
    the submission, so a clock that went back puts a job behind older ones; nothing else depends on it.
    """
    table = JobRow
    query = (
        select(*(getattr(table, name) for name in _FACTS))
        .where(table.test_key == variant.test_key, table.build_line == variant.build_line)
        .where(table.arch == variant.arch, table.board == variant.board, _OF_SEEDS)
        .where(table.state.in_((JobState.finished, JobState.cancelled)), table.done > 0)
    )
    if build is not None:
        query = query.where(table.build == build)
    return tuple(_facts(row) for row in session.execute(query.order_by(table.id.desc()).limit(limit)))


def job_of(session: Session, job_id: str) -> JobFacts | None:
    """The facts of one job that is over; None where there is none, or where it compares two builds."""
    table = JobRow
    query = select(*(getattr(table, name) for name in _FACTS)).where(table.id == job_id, _OF_SEEDS)
    row = session.execute(query.where(table.state.in_((JobState.finished, JobState.cancelled)))).one_or_none()
    return None if row is None else _facts(row)


def variants_of(session: Session, test_key: str, *, limit: int = 100) -> tuple[Variant, ...]:
    """The variants of a test that have ever been submitted, in order."""
    table = JobRow
    query = select(table.build_line, table.arch, table.board).where(table.test_key == test_key, table.kind.in_(TOLD_KINDS)).distinct()
    rows = session.execute(query.order_by(table.build_line, table.arch, table.board).limit(limit))
    return tuple(Variant(test_key, line, arch, board) for line, arch, board in rows)


def context_name(context: Any) -> str:
    """The name of what ran before in the same process; `isolated` when nothing did."""
    return str(context.get("name")) if isinstance(context, Mapping) else str(context or ISOLATED)


def _facts(row: Any) -> JobFacts:
    return JobFacts(
        id=row.id,
        variant=Variant(row.test_key, row.build_line, row.arch, row.board),
        subject_key=row.subject_key,
        kernel=row.kernel,
        build=row.build,
        sequence=row.build_sequence,
        executor=row.executor,
        context=context_name(row.context),
        verdict=row.verdict,
        done=row.done,
        counts=row.counts,
        told=row.outcomes or {},
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
