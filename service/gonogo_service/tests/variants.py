"""Variants (test, branch, arch, board), which have grades and flags, and their ended jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, Text, bindparam, select
from sqlalchemy.orm import Session

from gonogo.spec.executors import EMULATOR
from gonogo.spec.selections import KERNEL
from gonogo_service.bisections.model import ProbeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import Given, among, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import LISTED_KINDS, JobState

ISOLATED = "isolated"
PLACE = ("branch", "arch", "board")
NAMES = ("test_key", *PLACE)
"""The columns of a variant, which are the fields of Variant."""
COLUMNS = tuple((name, Text()) for name in NAMES)
MAIN = ("main", "master")
"""The names of a main branch."""
MAX_VARIANTS = 50
"""Variants whose newest build one statement reads."""
_NEWEST_JOBS = 64
MAX_JOBS = 200
"""Maximum number of a variant's newest jobs that are read: two hundred nights."""
_OF_TESTS = JobRow.reference.is_(None) & JobRow.kind.in_(LISTED_KINDS)
_PROBE = select(ProbeRow.job_id).where(ProbeRow.job_id == JobRow.id).correlate(JobRow).exists()
COUNTED = _OF_TESTS & ~_PROBE
"""The jobs that count into the sums of their test: a bisection only runs old builds again."""
OVER = JobRow.state.in_((JobState.finished, JobState.cancelled))
"""The jobs that are over and could run."""
ENDED = COUNTED & OVER & (JobRow.done > 0)
"""The jobs whose results say how a test stands."""


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

    @property
    def place(self) -> dict[str, str]:
        """Return branch, arch and board by name."""
        return {name: getattr(self, name) for name in PLACE}

    def at(self, table: Any) -> list[Any]:
        """Return the conditions on a table that has the variant's columns."""
        return [getattr(table, name) == getattr(self, name) for name in NAMES]


class JobFacts(NamedTuple):
    """The facts about an ended job that a history needs: columns of its row."""

    id: str
    test_key: str
    branch: str
    arch: str
    board: str
    workload_key: str
    kernel: str
    build: str
    sequence: int
    executor: str
    requested_context: Any
    """The context as requested: "isolated", or {"name", "before": [tests]}."""
    verdict: str | None
    done: int
    counts: Mapping[str, int]
    """Number of (seed, repeat) by verdict, always exact."""
    outcomes: Mapping[str, int] | None
    """A selection's tests of all iterations by their own result; None for a kernel."""
    judge: str | None
    """The judge's version and the hash of its reference; None where no arrays were judged."""
    created_at: datetime
    finished_at: datetime | None

    @property
    def variant(self) -> Variant:
        """Return its variant."""
        return Variant.of(self)

    @property
    def context(self) -> str:
        """Return the name of what ran before in the same process."""
        return context_name(self.requested_context)

    @property
    def selection(self) -> bool:
        """Return whether it ran existing tests, whose iterations have no controlled seed."""
        return self.kernel == KERNEL


_RENAMED = {"sequence": "build_sequence", "requested_context": "context"}
FACTS = tuple(getattr(JobRow, _RENAMED.get(name, name)) for name in JobFacts._fields)


def job_facts(row: Any, sequence: int) -> JobFacts:
    """Return the facts of a row of jobs, with a place in its branch."""
    values = (getattr(row, _RENAMED.get(name, name)) for name in JobFacts._fields)
    return JobFacts(*values)._replace(sequence=sequence)


def jobs_of(
    session: Session, variant: Variant, *, build: str | None = None, limit: int = MAX_JOBS
) -> tuple[JobFacts, ...]:
    """Return a variant's finished and canceled jobs (of one build, if given), newest first.

    The order is that of the ids, which contain the time of submission. So a clock that went back
    puts a job behind older ones; nothing else depends on it.
    """
    of_build = {} if build is None else {"build": build}
    values = {**asdict(variant), **of_build, "limit": limit}
    rows = session.execute(_jobs(*of_build), values)
    return tuple(JobFacts(*row) for row in rows)


@cache  # building the statement takes longer than running it
def _jobs(*further: str) -> Select[Any]:
    named = (getattr(JobRow, name) == bindparam(name) for name in (*NAMES, *further))
    query = select(*FACTS).where(*named, ENDED).order_by(JobRow.id.desc())
    return query.limit(bindparam("limit", type_=Integer))


def judged_alike(jobs: Iterable[JobFacts]) -> tuple[JobFacts, ...]:
    """Return the jobs that the same judge judged by the same reference as the newest of them.

    Another judge, or another reference, says nothing about a kernel's change.
    """
    every = tuple(jobs)
    judges = {job.id: job.judge for job in every if job.judge is not None}
    judge = judges[max(judges)] if judges else None
    return tuple(job for job in every if job.judge in (None, judge))


def graded_job(session: Session, variant: Variant) -> JobFacts | None:
    """Return the job that a variant is graded by: the newest one of the newest build."""
    query = select(*FACTS).where(*variant.at(JobRow), ENDED)
    newest = query.order_by(JobRow.build_sequence.desc(), JobRow.id.desc()).limit(1)
    row = session.execute(newest).one_or_none()
    return None if row is None else JobFacts(*row)


def job_of(
    session: Session, job_id: str, among: ColumnElement[bool] = _OF_TESTS & OVER
) -> JobFacts | None:
    """Return the facts of a job that is over; None if it is not among those.

    By default they are the jobs that run one build of a test, not gauges or comparisons of two.
    """
    query = select(*FACTS).where(JobRow.id == job_id, among)
    row = session.execute(query).one_or_none()
    return None if row is None else JobFacts(*row)


def newest_builds(session: Session, variants: Collection[Variant]) -> dict[Variant, str]:
    """Return the newest build of each variant that has results, among its newest jobs.

    The emulator's builds are no series: none of them is the newest.
    """
    in_series = sorted({variant for variant in variants if variant.branch != EMULATOR})
    newest: dict[Variant, str] = {}
    for batch in batched(in_series, MAX_VARIANTS):
        rows = of_each(session, _newest_build, COLUMNS, [astuple(variant) for variant in batch])
        newest |= {batch[number]: build for number, build in rows}
    return newest


def _newest_build(given: Given) -> Select[Any]:
    """Return the query of the newest build among a variant's newest jobs."""
    table = JobRow
    ended = select(table.id, table.build, table.build_sequence).where(
        *(getattr(table, name) == given(name) for name in NAMES), ENDED
    )
    jobs = ended.order_by(table.id.desc()).limit(_NEWEST_JOBS).subquery().c
    return select(jobs.build).order_by(jobs.build_sequence.desc(), jobs.id.desc()).limit(1)


def variants_of(session: Session, test_key: str) -> tuple[Variant, ...]:
    """Return the variants of a test that have jobs, in order."""
    return variants_of_all(session, [test_key]).get(test_key, ())


def variants_of_all(session: Session, test_keys: Collection[str]) -> dict[str, tuple[Variant, ...]]:
    """Return the variants of several tests by key, in order; tests without any are left out."""
    columns = [getattr(JobRow, name) for name in NAMES]
    of_tests = among(session, JobRow.test_key, list(test_keys))
    # by the index alone; then one job of each is looked up, which is listed as a rule
    one = select(*columns).where(of_tests).distinct().subquery().c
    of_one = [column == one[column.key] for column in columns]
    listed = select(JobRow.id).where(*of_one, JobRow.kind.in_(LISTED_KINDS)).exists()
    variants: dict[str, list[Variant]] = {}
    for row in session.execute(select(*one).where(listed).order_by(*one)):
        variants.setdefault(row.test_key, []).append(Variant(*row))
    return {key: tuple(of_test) for key, of_test in variants.items()}


def context_name(context: Any) -> str:
    """Return the name of what ran before in the same process; `isolated` if nothing did."""
    return str(context.get("name")) if isinstance(context, Mapping) else str(context or ISOLATED)
