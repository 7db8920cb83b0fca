"""Variants (test, branch, arch, board), which have grades and flags, and their finished jobs.

All reads are bounded. The API process imports this module, so it must not import NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Integer,
    Select,
    Text,
    bindparam,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from gonogo.spec.executors import EMULATOR
from gonogo.spec.selections import KERNEL
from gonogo_service.bisections.model import ProbeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import Given, among, of_each
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import LISTED_KINDS, JobState
from gonogo_service.tests.model import TestSpecRow

ISOLATED = "isolated"
NAMES = ("test_key", "branch", "arch", "board")
"""The columns of a variant, which are the fields of Variant."""
COLUMNS = tuple((name, Text()) for name in NAMES)
MAX_VARIANTS = 50
"""Variants whose newest build one statement reads."""
_NEWEST_JOBS = 64
MAX_JOBS = 200
"""Maximum number of a variant's newest jobs that are read: two hundred nights."""
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
    "judge",
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

    @classmethod
    def of(cls, row: Any) -> Variant:
        """Return the variant of a job, a flag or a finding."""
        return cls(row.test_key, row.branch, row.arch, row.board)


@dataclass(frozen=True)
class JobFacts:
    """The facts about an ended job that a history needs."""

    id: str
    variant: Variant
    workload_key: str
    kernel: str
    build: str
    sequence: int
    executor: str
    context: str
    """The name of what ran before in the same process."""
    requested_context: Any
    """The context as requested: "isolated", or {"name", "before": [tests]}."""
    verdict: str | None
    done: int
    counts: Mapping[str, int]
    """Number of (seed, repeat) by verdict, always exact."""
    outcomes: Mapping[str, int]
    """A selection's tests of all iterations by their own result (passed, failed, ...); empty for a
    kernel."""
    judge: str | None
    """The judge's version and the hash of its reference; null where no arrays were judged."""
    created_at: datetime
    finished_at: datetime | None

    @property
    def selection(self) -> bool:
        """Return whether it ran existing tests (gtest, pytest).

        Their iterations have no controlled seed.
        """
        return self.kernel == KERNEL


COUNTED = JobRow.reference.is_(None) & JobRow.kind.in_(LISTED_KINDS)
"""The jobs that count into the sums of their test: not gauges or comparisons of two builds."""


def jobs_of(
    session: Session, variant: Variant, *, build: str | None = None, limit: int = MAX_JOBS
) -> tuple[JobFacts, ...]:
    """Return a variant's finished and canceled jobs (of one build, if given), newest first.

    Gauges and jobs that compare two builds (`reference`) are left out: they don't compare the build
    with float64. The order is that of the ids, which contain the time of submission. So a clock
    that went back puts a job behind older ones; nothing else depends on it.
    """
    of_build = {} if build is None else {"build": build}
    parameters = {**asdict(variant), **of_build, "limit": limit}
    return tuple(
        job_facts(row, row.build_sequence)
        for row in session.execute(_newest_of(*of_build), parameters)
    )


def judged_alike(jobs: Iterable[JobFacts]) -> tuple[JobFacts, ...]:
    """Return the jobs that the same judge judged by the same reference as the newest of them.

    Another judge, or another reference, says nothing about a kernel's change.
    """
    every = tuple(jobs)
    known = [job for job in every if job.judge is not None]
    judge = max(known, key=lambda job: job.id).judge if known else None
    return tuple(job for job in every if job.judge in (None, judge))


def probes(session: Session, jobs: Collection[JobFacts]) -> set[str]:
    """Return the ids of the jobs that are runs of a bisection."""
    ids = [job.id for job in jobs]
    return set(session.scalars(select(ProbeRow.job_id).where(among(session, ProbeRow.job_id, ids))))


def graded_job(session: Session, variant: Variant) -> JobFacts | None:
    """Return the job that a variant is graded by: the newest one of the newest build.

    It need not be the variant's latest job.
    """
    query = _jobs_query().order_by(JobRow.build_sequence.desc(), JobRow.id.desc()).limit(1)
    row = session.execute(query, asdict(variant)).one_or_none()
    return None if row is None else job_facts(row, row.build_sequence)


def newest_builds(session: Session, variants: Collection[Variant]) -> dict[Variant, str]:
    """Return the newest build of each variant that has results, among its newest jobs.

    The emulator's builds are no series: none of them is the newest.
    """
    in_series = {variant for variant in variants if variant.branch != EMULATOR}
    newest: dict[Variant, str] = {}
    for batch in batched(sorted(in_series), MAX_VARIANTS):
        rows = of_each(session, _newest_build, COLUMNS, [astuple(variant) for variant in batch])
        newest |= {batch[number]: build for number, build in rows}
    return newest


def _newest_build(given: Given) -> Select[Any]:
    """Return the query of the newest build among a variant's newest jobs."""
    table = JobRow
    ended = select(table.id, table.build, table.build_sequence).where(
        *(getattr(table, name) == given(name) for name in NAMES),
        COUNTED,
        table.state.in_((JobState.finished, JobState.cancelled)),
        table.done > 0,
    )
    jobs = ended.order_by(table.id.desc()).limit(_NEWEST_JOBS).subquery().c
    return select(jobs.build).order_by(jobs.build_sequence.desc(), jobs.id.desc()).limit(1)


def _jobs_query(*further: str) -> Select[Any]:
    """Return the query of a variant's finished and canceled jobs.

    The variant's columns and the `further` columns are bound parameters.
    """
    table = JobRow
    named = (
        getattr(table, name) == bindparam(name)
        for name in ("test_key", "branch", "arch", "board", *further)
    )
    query = select(*(getattr(table, name) for name in _FACTS)).where(*named, COUNTED)
    return query.where(table.state.in_((JobState.finished, JobState.cancelled)), table.done > 0)


@cache  # building the statement takes longer than running it
def _newest_of(*further: str) -> Select[Any]:
    return _jobs_query(*further).order_by(JobRow.id.desc()).limit(bindparam("limit", type_=Integer))


def job_of(session: Session, job_id: str) -> JobFacts | None:
    """Return the facts of an ended job; None if there is no such job or it compares two builds."""
    table = JobRow
    query = select(*(getattr(table, name) for name in _FACTS)).where(table.id == job_id, COUNTED)
    row = session.execute(
        query.where(table.state.in_((JobState.finished, JobState.cancelled)))
    ).one_or_none()
    return None if row is None else job_facts(row, row.build_sequence)


def variants_of(session: Session, test_key: str) -> tuple[Variant, ...]:
    """Return the variants of a test that have jobs, in order."""
    return variants_of_all(session, [test_key]).get(test_key, ())


def variants_of_all(session: Session, test_keys: Collection[str]) -> dict[str, tuple[Variant, ...]]:
    """Return the same for several tests in one statement; tests without variants are left out.

    It steps from variant to variant along ix_jobs_variant, so that its cost is the number of
    variants, not of their jobs.
    """
    variants: dict[str, list[Variant]] = {}
    query = _variants_query(postgres=is_postgres(session))
    for row in session.execute(query, {"test_keys": list(test_keys)}):
        variants.setdefault(row.test_key, []).append(Variant(*row))
    return {key: tuple(sorted(of_test)) for key, of_test in variants.items()}


@cache
def _variants_query(*, postgres: bool) -> Select[str, str, str, str]:
    here, other = aliased(JobRow), aliased(JobRow)

    def first(of_test: Any, *after: Any) -> Any:
        places = other.branch, other.arch, other.board
        query = (
            select(other.id)
            .where(other.test_key == of_test, *after)
            .order_by(*places, other.id)
            .limit(1)
        )
        return query.correlate_except(other).scalar_subquery()

    def at(place: Any, column: Any) -> Any:
        """Return a column of the job at a place, by id: for a join PostgreSQL reads all jobs."""
        return select(column).where(here.id == place).correlate_except(here).scalar_subquery()

    requested = TestSpecRow.key.in_(bindparam("test_keys", expanding=True))
    keys = select(TestSpecRow.key.label("test_key"), first(TestSpecRow.key).label("id")).where(
        requested
    )
    place = keys.cte("place", recursive=True)
    places = tuple_(other.branch, other.arch, other.board)
    columns = here.branch, here.arch, here.board
    if postgres:
        beyond = places > tuple_(*(at(place.c.id, column) for column in columns))
        following = select(place.c.test_key, first(place.c.test_key, beyond)).where(
            place.c.id.is_not(None)
        )
    else:  # SQLite looks up a place in the index only if its values are columns of a row
        following = (
            select(place.c.test_key, first(here.test_key, places > tuple_(*columns)))
            .select_from(place)
            .join(here, here.id == place.c.id)
        )
    place = place.union_all(following)
    branch, arch, board = (at(place.c.id, name) for name in (here.branch, here.arch, here.board))
    listed = select(other.id).where(
        other.test_key == place.c.test_key,
        other.branch == branch,
        other.arch == arch,
        other.board == board,
        other.kind.in_(LISTED_KINDS),
    )
    is_listed = or_(
        at(place.c.id, here.kind).in_(LISTED_KINDS), listed.correlate_except(other).exists()
    )
    return select(place.c.test_key, branch, arch, board).where(place.c.id.is_not(None), is_listed)


def context_name(context: Any) -> str:
    """Return the name of what ran before in the same process; `isolated` if nothing did."""
    return str(context.get("name")) if isinstance(context, Mapping) else str(context or ISOLATED)


def job_facts(row: Any, sequence: int) -> JobFacts:
    """Return the facts of a job, with a place in its branch."""
    return from_object(
        JobFacts,
        row,
        variant=Variant.of(row),
        sequence=sequence,
        context=context_name(row.context),
        requested_context=row.context,
        outcomes=row.outcomes or {},
    )
