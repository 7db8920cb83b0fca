"""Runs: many jobs submitted together, with one state and one verdict.

The end of a job doesn't write its run: two jobs that end at the same moment would wait for each
other's run. `all_ended` finds the runs whose jobs have all ended, and `finish` concludes one under
its lock. Until then its counters are read from its jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gonogo.spec.verdicts import Verdict
from gonogo.spec.verdicts import worst as worst_verdict
from gonogo_service.jobs import closing
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobCommit, JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import JobState, RunState
from gonogo_service.kit.outbox import outbox
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.model import TestSpecRow

OPEN = (RunState.running, RunState.cancelling)
FINAL_JOB = tuple(state for state in JobState if state.final)
MAX_ENDED = 100
"""Ended runs that are concluded at once; the others are in the next turn."""


@dataclass(frozen=True)
class NewRun:
    """A checked request: the jobs with their names, and the purpose of the run."""

    name: str
    jobs: Sequence[tuple[str, NewJob]]
    owner: str
    suite_version: int | None = None
    builds: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    commit: Mapping[str, Any] | None = None
    schedule_id: str | None = None
    due_at: datetime | None = None


@dataclass(frozen=True)
class RunJob:
    """A job of a run, in short."""

    name: str
    """The name of its test in the suite"""
    id: str
    state: JobState
    verdict: Verdict | None
    error: str | None
    waiting_reason: str | None
    test_key: str
    kernel: str
    test: dict[str, Any]
    build: str
    queue: str
    done: int
    total: int
    counts: dict[str, int]
    """The (seed, repeat) pairs with a result, by verdict"""
    outcomes: dict[str, int] | None
    """For a selection: the tests of all iterations by their own outcome"""
    red: int
    hollow: int
    """Red and hollow seeds, or tests of a selection over all iterations"""
    diagnosis: str | None
    """The diagnosis in a sentence"""
    finished_at: datetime | None


@dataclass(frozen=True)
class SuiteOfRun:
    """The suite; version null means that it came with the run."""

    name: str
    version: int | None


@dataclass(frozen=True)
class JobsOfRun:
    """Counts of a run's jobs: all, ended, and by verdict."""

    total: int
    ended: int
    verdicts: dict[str, int]


@dataclass(frozen=True)
class SeedsOfRun:
    """Counts of a run's (seed, repeat) pairs: all, with a result, and by verdict."""

    total: int
    done: int
    verdicts: dict[str, int]


@dataclass(frozen=True)
class Run:
    """A run; `verdict` is the worst verdict of its jobs.

    It is null until the run ends, and when a job was canceled and all others passed. The counts are
    current while the run is open.
    """

    id: str
    suite: SuiteOfRun
    schedule: str | None
    due_at: datetime | None
    state: RunState
    verdict: Verdict | None
    version: int
    owner: str
    builds: list[str]
    labels: dict[str, str]
    commit: JobCommit | None
    jobs: JobsOfRun
    seeds: SeedsOfRun
    red: int
    """The jobs with a red seed or test"""
    hollow: int
    """The jobs with a hollow pass; the verdict shows only the worse of the two"""
    created_at: datetime
    finished_at: datetime | None


def create(session: Session, new: NewRun, *, now: datetime | None = None) -> Run:
    """Store the run and all its jobs in the caller's transaction.

    Notify the dispatcher after the commit. Raises ValueError without a job.
    """
    if not new.jobs:
        raise ValueError("a run needs at least one job")
    now = now or utcnow()
    run_id = new_id()
    created = [(name, jobs.create(session, new_job, now=now)) for name, new_job in new.jobs]
    row = RunRow(
        id=run_id,
        name=new.name,
        suite_version=new.suite_version,
        schedule_id=new.schedule_id,
        due_at=new.due_at,
        state=RunState.running,
        verdict=None,
        version=1,
        owner=new.owner,
        builds=list(new.builds),
        labels=dict(new.labels),
        commit=None if new.commit is None else dict(new.commit),
        job_count=len(created),
        total=sum(job.total for _, job in created),
        done=0,
        counts={},
        job_counts={},
        created_at=now,
    )
    session.add(row)
    session.flush()
    session.add_all(
        RunJobRow(run_id=run_id, number=number, job_id=job.id, name=name)
        for number, (name, job) in enumerate(created)
    )
    session.flush()
    return _run(row)


def get(session: Session, run_id: str) -> tuple[Run, list[RunJob]] | None:
    """Return a run with its jobs in the order of its suite; None when there is no such run."""
    row = session.get(RunRow, run_id) if is_id(run_id) else None
    if row is None:
        return None
    run_jobs = members(session, run_id)
    return (_run(row) if RunState(row.state).final else _live(_run(row), run_jobs)), run_jobs


def list_(
    session: Session,
    *,
    name: str | None = None,
    state: str | None = None,
    schedule: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[Run]:
    """Return runs, newest first. Raises BadCursor."""
    if schedule is not None and not is_id(schedule):
        return Page((), None)

    def current(row: RunRow) -> Run:
        run = _run(row)
        return run if run.state.final else _live(run, members(session, run.id))

    table = RunRow
    filters = {table.name: name, table.state: state, table.schedule_id: schedule}
    return newest_first(
        session, select(table), table.id, current, limit=limit, cursor=cursor, filters=filters
    )


def members(session: Session, run_id: str) -> list[RunJob]:
    """Return the jobs of a run in order."""
    query = (
        select(RunJobRow.name, JobRow, TestSpecRow.canonical, JobRow.diagnosis["words"].as_string())
        .options(defer(JobRow.diagnosis), defer(JobRow.suspects))
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .join(TestSpecRow, TestSpecRow.key == JobRow.test_key)
        .where(RunJobRow.run_id == run_id)
        .order_by(RunJobRow.number)
    )
    return [
        from_object(
            RunJob,
            job,
            name=name,
            state=JobState(job.state),
            verdict=None if job.verdict is None else Verdict(job.verdict),
            test=canonical,
            diagnosis=words,
        )
        for name, job, canonical, words in session.execute(query)
    ]


def open_of(session: Session, schedule_id: str) -> str | None:
    """Return the id of a run of a schedule that has not ended."""
    query = (
        select(RunRow.id)
        .where(RunRow.schedule_id == schedule_id, RunRow.state.in_(OPEN))
        .order_by(RunRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def cancel(session: Session, run_id: str, *, now: datetime | None = None) -> Run | None:
    """Cancel all jobs of a run; a run that has ended stays as it is.

    Returns None when there is no such run. Notify the dispatcher after the commit.
    """
    now = now or utcnow()
    if not is_id(run_id):
        return None
    # Lock the jobs first, in the order of their ids like everyone who locks several; the run last.
    for job_id in session.scalars(
        select(RunJobRow.job_id).where(RunJobRow.run_id == run_id).order_by(RunJobRow.job_id)
    ).all():
        closing.lock(session, job_id)
    row = session.get(RunRow, run_id, with_for_update=True, populate_existing=True)
    if row is None:
        return None
    if row.state == RunState.running:
        row.state = RunState.cancelling
        row.version += 1
        session.flush()
        for member in members(session, run_id):
            jobs.cancel(session, member.id, now=now)
        finish(session, run_id, now=now)
    run_and_jobs = get(session, run_id)
    return None if run_and_jobs is None else run_and_jobs[0]


def all_ended(session: Session) -> list[str]:
    """Return the open runs whose jobs have all ended, the oldest MAX_ENDED of them."""
    alive = (
        select(RunJobRow.run_id)
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .where(RunJobRow.run_id == RunRow.id, JobRow.state.not_in(FINAL_JOB))
    )
    query = (
        select(RunRow.id)
        .where(RunRow.state.in_(OPEN), ~alive.exists())
        .order_by(RunRow.id)
        .limit(MAX_ENDED)
    )
    return list(session.scalars(query))


def recount(session: Session, row: RunRow) -> None:
    """Count an ended run anew, after one of its jobs was deleted. The caller holds its lock."""
    run_jobs = members(session, row.id)
    _conclude(row, run_jobs)
    row.job_count = len(run_jobs)
    row.version += 1
    session.flush()


def _conclude(row: RunRow, run_jobs: Sequence[RunJob]) -> None:
    """Store the counters and the verdict of a run whose jobs have all ended."""
    live = _live(_run(row), run_jobs)
    row.total, row.done, row.counts, row.job_counts = (
        live.seeds.total,
        live.seeds.done,
        live.seeds.verdicts,
        live.jobs.verdicts,
    )
    row.red, row.hollow = live.red, live.hollow
    verdict = verdict_of([member.verdict for member in run_jobs])
    row.verdict = None if verdict is None else verdict.value


def finish(session: Session, run_id: str, *, now: datetime) -> Run | None:
    """Conclude a run whose jobs have all ended: verdict, counters, and one outbox message.

    Returns None when some job hasn't ended, or when the run was concluded before.
    """
    row = session.get(RunRow, run_id, with_for_update=True, populate_existing=True)
    if row is None or RunState(row.state).final:
        return None
    run_jobs = members(session, run_id)
    if not all(member.state.final for member in run_jobs):
        return None
    _conclude(row, run_jobs)
    row.state = RunState.cancelled if row.state == RunState.cancelling else RunState.finished
    row.finished_at = now
    row.version += 1
    outbox.add(
        session,
        "run.finished",
        f"run.finished:{run_id}",
        {"run": run_id, "version": row.version},
        now=now,
    )
    session.flush()
    return _run(row)


def verdict_of(verdicts: Sequence[str | None]) -> Verdict | None:
    """Return the worst verdict of the jobs of a run.

    None when a job was canceled before anything wrong was seen and the others passed: what did not
    run can't be green.
    """
    worst = worst_verdict([Verdict(verdict) for verdict in verdicts if verdict is not None])
    return None if None in verdicts and worst in (Verdict.pass_, Verdict.not_run) else worst


def _live(run: Run, run_jobs: Sequence[RunJob]) -> Run:
    """Return the run with the current counters of its jobs."""
    seeds: Counter[str] = Counter()
    for member in run_jobs:
        seeds.update(member.counts)
    verdicts = Counter[str](member.verdict for member in run_jobs if member.verdict is not None)
    ended = sum(member.state.final for member in run_jobs)
    total, done = (sum(getattr(member, name) for member in run_jobs) for name in ("total", "done"))
    return replace(
        run,
        jobs=JobsOfRun(run.jobs.total, ended, _ordered(verdicts)),
        seeds=SeedsOfRun(total, done, _ordered(seeds)),
        red=sum(member.red > 0 for member in run_jobs),
        hollow=sum(member.hollow > 0 for member in run_jobs),
    )


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        verdict.value: counts[verdict.value] for verdict in Verdict if counts.get(verdict.value)
    }


def _run(row: RunRow) -> Run:
    state = RunState(row.state)
    return from_object(
        Run,
        row,
        suite=SuiteOfRun(row.name, row.suite_version),
        schedule=row.schedule_id,
        state=state,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        commit=row.commit and from_json(JobCommit, row.commit),
        jobs=JobsOfRun(row.job_count, row.job_count if state.final else 0, row.job_counts),
        seeds=SeedsOfRun(row.total, row.done, row.counts),
    )
