"""Submitted tests, and their results: per build for a test, over time for a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.selections import FIELD, KERNEL, Selection, is_selection
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.states import LISTED_KINDS, JobState
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow
from gonogo_service.results.tallies import Tally, of_jobs, sums
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import COUNTED, OVER


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
    """For each output its METRICS over the same seeds"""
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


def add(
    session: Session,
    key: str,
    workload_key: str,
    kernel: str,
    test: Mapping[str, Any],
    *,
    now: datetime,
) -> None:
    """Store a test, in its canonical form, unless it exists."""
    about = {"key": key, "workload_key": workload_key, "kernel": kernel, "test": dict(test)}
    insert_once(session, TestSpecRow, [{**about, "created_at": now}])


def name_of(kernel: str, test: Mapping[str, Any]) -> str:
    """Return the name of a test without one: kernel and shape, or the tests that it selects."""
    if is_selection(test):
        return Selection.parse(test).words
    return f"{kernel} {'x'.join(map(str, test['shape']))}"


def kernels(session: Session) -> list[str]:
    """Return the kernels of all tests, in order; KERNEL for selections."""
    return list(session.scalars(select(TestSpecRow.kernel).distinct().order_by(TestSpecRow.kernel)))


def suites(session: Session, limit: int = 50) -> list[str]:
    """Return the suites of the newest `limit` selections, in order."""
    query = select(TestSpecRow.test).where(TestSpecRow.kernel == KERNEL)
    newest = session.scalars(query.order_by(TestSpecRow.created_at.desc()).limit(limit))
    return sorted({str(suite) for test in newest if (suite := test[FIELD].get("suite"))})


def builds_of(session: Session, key: str) -> list[BuildResults]:
    """Return a test's results on each build, the newest build first.

    Only jobs that count are in it (COUNTED). Everything comes from the daily sums and an index of
    jobs, so that the cost doesn't grow with the number of seeds.
    """
    table, job = DailyRow, JobRow
    places = table.build, table.branch, table.build_sequence, table.output
    tallies: dict[tuple[str, str, int], dict[str, Tally]] = {}
    for (*place, output), tally in sums(session, table, places, table.test_key == key).items():
        tallies.setdefault((*place,), {})[output] = tally
    finished = job.test_key == key, job.state == JobState.finished, COUNTED
    query = select(job.build, job.branch, job.build_sequence, job.id, job.finished_at)
    jobs: dict[tuple[str, str, int], list[tuple[str, datetime | None]]] = {}
    for *place, job_id, at in session.execute(query.where(*finished).order_by(job.id)):
        jobs.setdefault((*place,), []).append((job_id, at))
    results = []
    for place in tallies.keys() | jobs.keys():
        outputs = dict(tallies.get(place, {}))
        whole, of_build = outputs.pop(WHOLE, Tally()), jobs.get(place, [])
        last = of_build[-1] if of_build else (None, None)
        metrics = {name: dict(tally.metrics) for name, tally in outputs.items()}
        counted = len(of_build), whole.seeds, dict(whole.counts)
        results.append(BuildResults(*place, *counted, metrics, *last))
    return sorted(results, key=lambda result: (-result.sequence, result.build, result.branch))


def history(
    session: Session, workload_key: str, *, limit: int = 200, cursor: str | None = None
) -> Page[PastJob]:
    """Return the ended jobs of a workload, whatever their tolerance, newest first.

    Raises BadCursor.
    """
    table = JobRow
    ended = table.workload_key == workload_key, table.kind.in_(LISTED_KINDS), OVER
    query = select(table).where(*ended)
    page = newest_first(session, query, table.id, lambda job: job, limit=limit, cursor=cursor)
    outputs = of_jobs(session, [job.id for job in page.items], JobBlockRow.output != WHOLE)

    def past(job: JobRow) -> PastJob:
        metrics = {name: dict(tally.metrics) for name, tally in outputs.get(job.id, {}).items()}
        return PastJob(
            job.id,
            job.test_key,
            job.build,
            job.branch,
            job.build_sequence,
            job.verdict,
            job.counts,
            job.done,
            job.finished_at,
            metrics,
        )

    return Page(tuple(map(past, page.items)), page.next)


def has_workload(session: Session, workload_key: str) -> bool:
    """Return whether a test has this workload."""
    query = select(TestSpecRow.key).where(TestSpecRow.workload_key == workload_key).limit(1)
    return session.scalar(query) is not None


def siblings(session: Session, key: str) -> list[str]:
    """Return the keys of the other tests of a test's workload, oldest first.

    They differ only in tolerance.
    """
    table = TestSpecRow
    workload = select(table.workload_key).where(table.key == key).scalar_subquery()
    query = select(table.key).where(table.workload_key == workload, table.key != key)
    return list(session.scalars(query.order_by(table.created_at, table.key)))
