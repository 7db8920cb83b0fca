"""Submitted tests, and their results: per build for a test, over time for a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from gonogo.spec.selections import FIELD, KERNEL, Selection, is_selection
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import LISTED_KINDS, JobState
from gonogo_service.results import tallies
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import COUNTED


@dataclass(frozen=True)
class StoredTest:
    """A test in its canonical form, without fields that have their default."""

    key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True)
class BuildResults:
    """A test's results on one build, over all variants."""

    build: str
    branch: str
    sequence: int
    jobs: int
    """Finished ones"""
    seeds: int
    """All stored seeds, also those of running and canceled jobs"""
    counts: dict[str, int]
    """The same seeds by verdict"""
    outputs: dict[str, dict[str, float | None]]
    """For each output its METRICS over the seeds of finished jobs"""
    last_job: str | None
    """The finished one that was submitted last"""
    last_at: datetime | None
    """When it finished"""


@dataclass(frozen=True)
class PastJob:
    """The summary of an ended job of a workload."""

    job: str
    test_key: str
    build: str
    branch: str
    sequence: int
    verdict: str | None
    counts: dict[str, int]
    seeds: int
    at: datetime | None
    outputs: dict[str, dict[str, float | None]]
    """For each output its METRICS over the job's seeds"""


def ensure(session: Session, new: Any, *, now: datetime) -> None:
    """Store the test of a request (test_key, workload_key, kernel, canonical) unless it exists."""
    add(session, new.test_key, new.workload_key, new.kernel, new.canonical, now=now)


def add(
    session: Session,
    key: str,
    workload_key: str,
    kernel: str,
    canonical: Mapping[str, Any],
    *,
    now: datetime,
) -> None:
    """Store a test unless it exists."""
    row = {
        "key": key,
        "workload_key": workload_key,
        "kernel": kernel,
        "canonical": dict(canonical),
        "created_at": now,
    }
    insert_once(session, TestSpecRow, [row])


def name_of(kernel: str, canonical: Mapping[str, Any]) -> str:
    """Return the name of a test without one: kernel and shape, or the tests that it selects."""
    return (
        Selection.parse(canonical).words
        if is_selection(canonical)
        else f"{kernel} {'x'.join(map(str, canonical['shape']))}"
    )


def get(session: Session, key: str) -> StoredTest | None:
    """Return a test, or None."""
    row = session.get(TestSpecRow, key)
    return None if row is None else _spec(row)


def list_(
    session: Session, *, limit: int = 50, cursor: str | None = None, kernel: str | None = None
) -> Page[StoredTest]:
    """Return tests in the order of their keys."""
    query = select(TestSpecRow).order_by(TestSpecRow.key).limit(limit + 1)
    if cursor is not None:
        query = query.where(TestSpecRow.key > cursor)
    if kernel is not None:
        query = query.where(TestSpecRow.kernel == kernel)
    return Page.cut([_spec(row) for row in session.scalars(query)], limit, lambda test: test.key)


def suites(session: Session, limit: int = 50) -> list[str]:
    """Return the suites of the newest `limit` selections, in order."""
    newest = (
        select(TestSpecRow.canonical)
        .where(TestSpecRow.kernel == KERNEL)
        .order_by(TestSpecRow.created_at.desc())
        .limit(limit)
    )
    return sorted(
        {str(suite) for test in session.scalars(newest) if (suite := test[FIELD].get("suite"))}
    )


def builds_of(session: Session, key: str) -> list[BuildResults]:
    """Return a test's results on each build, the newest build first.

    Jobs that compare two builds are left out. Everything comes from the daily sums and an index of
    jobs, so that the cost doesn't grow with the number of seeds.
    """
    table = DailyRow
    places = (table.build, table.branch, table.build_sequence)
    counted: dict[tuple[Any, ...], dict[str, tallies.Tally]] = {}
    sums = tallies.sums(session, table, (*places, table.output), table.test_key == key)
    for (*of_build, output), tally in sums.items():
        counted.setdefault((*of_build,), {})[output] = tally
    finished = (JobRow.test_key == key, JobRow.state == JobState.finished, COUNTED)
    builds = (JobRow.build, JobRow.branch, JobRow.build_sequence)
    # Ids are in the order of submission. PostgreSQL has no max(uuid) before version 18.
    last = func.max(cast(JobRow.id, Text))
    ended = {
        (build, branch, sequence): (jobs, str(UUID(text)))
        for build, branch, sequence, jobs, text in session.execute(
            select(*builds, func.count(), last).where(*finished).group_by(*builds)
        )
    }
    ends = select(JobRow.id, JobRow.finished_at).where(
        JobRow.id.in_([last_job for _, last_job in ended.values()])
    )
    ended_at: dict[str | None, datetime | None] = dict(session.execute(ends).all())
    results = []
    for place in counted.keys() | ended.keys():
        of_outputs = counted.get(place, {})
        whole = of_outputs.get(WHOLE, tallies.Tally())
        jobs, last_job = ended.get(place, (0, None))
        results.append(
            BuildResults(
                *place,
                jobs,
                whole.seeds,
                dict(whole.counts),
                {name: dict(tally.metrics) for name, tally in of_outputs.items() if name != WHOLE},
                last_job,
                ended_at.get(last_job),
            )
        )
    return sorted(results, key=lambda result: (-result.sequence, result.build, result.branch))


def history(
    session: Session, workload_key: str, *, limit: int = 200, cursor: str | None = None
) -> Page[PastJob]:
    """Return the ended jobs of a workload, whatever their tolerance, newest first.

    Raises BadCursor.
    """
    query = select(JobRow).where(
        JobRow.workload_key == workload_key,
        JobRow.state.in_((JobState.finished, JobState.cancelled)),
    )
    query = query.where(JobRow.kind.in_(LISTED_KINDS))
    page = newest_first(session, query, JobRow.id, lambda job: job, limit=limit, cursor=cursor)
    jobs: tuple[JobRow, ...] = page.items
    outputs = tallies.of_jobs(session, [job.id for job in jobs], JobBlockRow.output != WHOLE)
    items = [
        from_object(
            PastJob,
            job,
            job=job.id,
            sequence=job.build_sequence,
            seeds=job.done,
            at=job.finished_at,
            outputs={name: dict(tally.metrics) for name, tally in outputs.get(job.id, {}).items()},
        )
        for job in jobs
    ]
    return Page(tuple(items), page.next)


def workload(session: Session, workload_key: str) -> list[StoredTest]:
    """Return the tests of a workload (they differ only in tolerance), oldest first."""
    query = (
        select(TestSpecRow)
        .where(TestSpecRow.workload_key == workload_key)
        .order_by(TestSpecRow.created_at, TestSpecRow.key)
    )
    return [_spec(row) for row in session.scalars(query)]


def siblings(session: Session, key: str) -> list[str]:
    """Return the keys of the other tests of a test's workload, oldest first.

    They differ only in tolerance.
    """
    table = TestSpecRow
    workload = select(table.workload_key).where(table.key == key).scalar_subquery()
    query = select(table.key).where(table.workload_key == workload, table.key != key)
    return list(session.scalars(query.order_by(table.created_at, table.key)))


def _spec(row: TestSpecRow) -> StoredTest:
    return from_object(StoredTest, row, test=row.canonical)
