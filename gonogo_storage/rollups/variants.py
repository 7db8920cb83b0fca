"""Full variants (test, branch, arch, board), which grades and flags are kept for, and the
finished jobs of one. Bounded reads.

The API process imports this: no numpy here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, bindparam, select, tuple_
from sqlalchemy.orm import Session, aliased

from gonogo.spec.selections import KERNEL
from gonogo_storage.db.states import TOLD_KINDS, JobState
from gonogo_storage.tables import JobRow, TestSpecRow

ISOLATED = "isolated"
MOST_JOBS = 200
"""Newest jobs of a variant that are looked at: two hundred nights."""
_FACTS = (
    "id",
    "test_key",
    "workload_key",
    "kernel",
    "build",
    "branch",
    "build_sequence",
    "executor",
    "arch",
    "board",
    "context",
    "verdict",
    "done",
    "counts",
    "outcomes",
    "created_at",
    "finished_at",
)


@dataclass(frozen=True, order=True)
class Variant:
    """A test on one branch and one kind of board."""

    test_key: str
    branch: str
    arch: str
    board: str

    def to_json(self) -> dict[str, str]:
        """In plain JSON types."""
        return {
            "test_key": self.test_key,
            "branch": self.branch,
            "arch": self.arch,
            "board": self.board,
        }


@dataclass(frozen=True)
class JobFacts:
    """What a history needs of a job that is over. `counts`: its (seed, repeat) by verdict, exact
    however many there are.
    """

    id: str
    variant: Variant
    workload_key: str
    kernel: str
    build: str
    sequence: int
    executor: str
    context: str
    """The name of what ran before."""
    context_asked: Any
    """As the job has it: "isolated", or {"name", "before": [tests]}."""
    verdict: str | None
    done: int
    counts: Mapping[str, int]
    told: Mapping[str, int]
    """Of a selection: its tests of all iterations by what they say of themselves (passed, failed,
    ...); empty of a kernel."""
    created_at: datetime
    finished_at: datetime | None

    @property
    def selection(self) -> bool:
        """Whether it ran tests that exist already (gtest, pytest): their iterations have no
        controlled seed.
        """
        return self.kernel == KERNEL


COUNTED = JobRow.reference.is_(None) & JobRow.kind.in_(TOLD_KINDS)
"""Jobs that count into the sums and the statistics of their test: not those that compare two
builds, and not gauges."""


def jobs_of(
    session: Session, variant: Variant, *, build: str | None = None, limit: int = MOST_JOBS
) -> tuple[JobFacts, ...]:
    """The newest finished or cancelled jobs of a variant (of one build, if named), newest first, by
    id.

    Gauges and jobs that compare two builds (`reference`) are left out: they say nothing of the
    build against float64. Ids carry the time of the submission, so a clock that went back puts a
    job behind older ones; nothing else depends on it.
    """
    of_build = {} if build is None else {"build": build}
    told = {**variant.to_json(), **of_build, "most": limit}
    return tuple(_facts(row) for row in session.execute(_newest_of(*of_build), told))


def graded_job(session: Session, variant: Variant) -> JobFacts | None:
    """The job that a variant's grade is of: the newest of the newest build, which need not be the
    one that ran last.
    """
    query = _jobs_query().order_by(JobRow.build_sequence.desc(), JobRow.id.desc()).limit(1)
    row = session.execute(query, variant.to_json()).one_or_none()
    return None if row is None else _facts(row)


def _jobs_query(*further: str) -> Select[Any]:
    """The finished and cancelled jobs of a variant, whose names are parameters, as are those of
    `further` columns.
    """
    table = JobRow
    named = (
        getattr(table, name) == bindparam(name)
        for name in ("test_key", "branch", "arch", "board", *further)
    )
    query = select(*(getattr(table, name) for name in _FACTS)).where(*named, COUNTED)
    return query.where(table.state.in_((JobState.finished, JobState.cancelled)), table.done > 0)


@cache  # to put a statement together takes longer than to run it
def _newest_of(*further: str) -> Select[Any]:
    return _jobs_query(*further).order_by(JobRow.id.desc()).limit(bindparam("most", type_=Integer))


def job_of(session: Session, job_id: str) -> JobFacts | None:
    """The facts of one job that is over; None where there is none, or where it compares two
    builds.
    """
    table = JobRow
    query = select(*(getattr(table, name) for name in _FACTS)).where(table.id == job_id, COUNTED)
    row = session.execute(
        query.where(table.state.in_((JobState.finished, JobState.cancelled)))
    ).one_or_none()
    return None if row is None else _facts(row)


def variants_of(session: Session, test_key: str) -> tuple[Variant, ...]:
    """The variants of a test that have ever been submitted, in order."""
    return variants_of_all(session, [test_key]).get(test_key, ())


def variants_of_all(session: Session, test_keys: Collection[str]) -> dict[str, tuple[Variant, ...]]:
    """The same of several tests, in one statement; tests without any are left out.

    It goes from variant to variant along ix_jobs_variant: what it costs is the number of variants,
    not that of their jobs.
    """
    found: dict[str, list[Variant]] = {}
    for row in session.execute(_variants_query(), {"test_keys": list(test_keys)}):
        found.setdefault(row.test_key, []).append(Variant(*row))
    return {key: tuple(sorted(each)) for key, each in found.items()}


@cache
def _variants_query() -> Select[str, str, str, str]:
    job, here, other = aliased(JobRow), aliased(JobRow), aliased(JobRow)

    def first(of_test: Any, *after: Any) -> Any:
        places = other.branch, other.arch, other.board
        query = (
            select(other.id)
            .where(other.test_key == of_test, *after)
            .order_by(*places, other.id)
            .limit(1)
        )
        return query.correlate_except(other).scalar_subquery()

    asked = TestSpecRow.key.in_(bindparam("test_keys", expanding=True))
    keys = select(TestSpecRow.key.label("test_key"), first(TestSpecRow.key).label("id")).where(
        asked
    )
    place = keys.cte("place", recursive=True)
    beyond = tuple_(other.branch, other.arch, other.board) > tuple_(
        here.branch, here.arch, here.board
    )
    following = (
        select(place.c.test_key, first(here.test_key, beyond))
        .select_from(place)
        .join(here, here.id == place.c.id)
    )
    place = place.union_all(following)
    same = [
        getattr(other, name) == getattr(job, name)
        for name in ("test_key", "branch", "arch", "board")
    ]
    told = select(other.id).where(*same, other.kind.in_(TOLD_KINDS)).correlate(job).exists()
    return (
        select(job.test_key, job.branch, job.arch, job.board)
        .join(place, job.id == place.c.id)
        .where(told)
    )


def context_name(context: Any) -> str:
    """The name of what ran before in the same process; `isolated` when nothing did."""
    return str(context.get("name")) if isinstance(context, Mapping) else str(context or ISOLATED)


def _facts(row: Any) -> JobFacts:
    return JobFacts(
        id=row.id,
        variant=Variant(row.test_key, row.branch, row.arch, row.board),
        workload_key=row.workload_key,
        kernel=row.kernel,
        build=row.build,
        sequence=row.build_sequence,
        executor=row.executor,
        context=context_name(row.context),
        context_asked=row.context,
        verdict=row.verdict,
        done=row.done,
        counts=row.counts,
        told=row.outcomes or {},
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
