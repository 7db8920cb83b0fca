"""Runs: many jobs submitted together, with one state and one verdict.

The end of a job doesn't write its run: two jobs that end at the same moment would wait for each
other's run. `all_ended` finds the runs whose jobs have all ended, and `finish` concludes one under
its lock. Until then its counts are read from its jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased
from sqlalchemy.orm.attributes import set_committed_value

from gonogo.spec.verdicts import Verdict, by_verdict
from gonogo.spec.verdicts import worst as worst_verdict
from gonogo_service.jobs import closing
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.states import FINAL_JOB, JobState, RunState
from gonogo_service.kit.outbox import outbox
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.model import TestSpecRow

OPEN = (RunState.running, RunState.cancelling)
MAX_ENDED = 100
"""Ended runs that are concluded at once; the others are in the next turn."""


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


_COLUMNS = {
    "name": RunJobRow.name,
    "test": TestSpecRow.test,
    "diagnosis": JobRow.diagnosis["words"].as_string(),
}
"""The fields of RunJob that are no columns of JobRow."""


def create(
    session: Session,
    new_jobs: Sequence[tuple[str, NewJob]],
    *,
    name: str,
    owner: str,
    now: datetime | None = None,
    **columns: Any,
) -> RunRow:
    """Store the run and all its jobs, with their names, in the caller's transaction.

    name: its suite's. columns: others of RunRow, such as its builds and its commit. Notify the
    dispatcher after the commit. Raises ValueError without a job.
    """
    if not new_jobs:
        raise ValueError("a run needs at least one job")
    now = now or utcnow()
    run_id = new_id()
    created = [(of_test, jobs.create(session, new_job, now=now)) for of_test, new_job in new_jobs]
    row = RunRow(
        id=run_id,
        name=name,
        owner=owner,
        state=RunState.running,
        job_count=len(created),
        total=sum(job.total for _, job in created),
        created_at=now,
        **columns,
    )
    session.add(row)
    session.flush()
    session.add_all(
        RunJobRow(run_id=run_id, number=number, job_id=job.id, name=of_test)
        for number, (of_test, job) in enumerate(created)
    )
    session.flush()
    return row


def get(session: Session, run_id: str) -> tuple[RunRow, list[RunJob]] | None:
    """Return a run with its jobs in the order of its suite; None when there is no such run."""
    row = session.get(RunRow, run_id) if is_id(run_id) else None
    if row is None:
        return None
    current(session, row)
    return row, members(session, run_id)


def newest(session: Session, limit: int, **fields: Any) -> list[RunRow]:
    """Return the newest runs with these fields; see `current` for the counts of open ones."""
    query = select(RunRow).filter_by(**fields).order_by(RunRow.id.desc()).limit(limit)
    return list(session.scalars(query))


def newest_of_suites(session: Session, limit: int) -> list[RunRow]:
    """Return the newest run of each suite, those of the suites that ran last."""
    later = aliased(RunRow)
    newer = select(later.id).where(later.name == RunRow.name, later.id > RunRow.id).exists()
    query = select(RunRow).where(~newer).order_by(RunRow.id.desc()).limit(limit)
    return list(session.scalars(query))


def current(session: Session, *rows: RunRow) -> None:
    """Set the counts of open runs to those of their jobs as they are now; nothing is written."""
    is_open = {row.id: row for row in rows if not row.state.final}
    for run_id, jobs_now in _jobs_of(session, list(is_open)).items():
        row = is_open[run_id]
        row.ended = sum(job.state.final for job in jobs_now)
        for name, value in _counts(jobs_now).items():
            set_committed_value(row, name, value)


def members(session: Session, run_id: str) -> list[RunJob]:
    """Return the jobs of a run in order."""
    names = RunJob.__dataclass_fields__
    columns = {name: getattr(JobRow, name) for name in names if name not in _COLUMNS} | _COLUMNS
    query = (
        select(*(column.label(name) for name, column in columns.items()))
        .select_from(RunJobRow)
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .join(TestSpecRow, TestSpecRow.key == JobRow.test_key)
        .where(RunJobRow.run_id == run_id)
        .order_by(RunJobRow.number)
    )
    return [RunJob(**row) for row in session.execute(query).mappings()]


def resubmit(session: Session, old: RunRow, *, owner: str, chunk_seconds: float) -> RunRow:
    """Create a run of the same jobs. Notify the dispatcher after the commit."""
    query = select(RunJobRow.name, JobRow).join(JobRow, JobRow.id == RunJobRow.job_id)
    query = query.where(RunJobRow.run_id == old.id).order_by(RunJobRow.number)
    again = [
        (name, jobs.again(session, job, owner=owner, chunk_seconds=chunk_seconds))
        for name, job in session.execute(query)
    ]
    fields = ("suite_version", "builds", "labels", "commit")
    same = {field: getattr(old, field) for field in fields}
    return create(session, again, name=old.name, owner=owner, **same)


def open_of(session: Session, schedule_id: str) -> str | None:
    """Return the id of a run of a schedule that has not ended."""
    query = (
        select(RunRow.id)
        .where(RunRow.schedule == schedule_id, RunRow.state.in_(OPEN))
        .order_by(RunRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def cancel(session: Session, run_id: str, *, now: datetime | None = None) -> RunRow | None:
    """Cancel all jobs of a run; a run that has ended stays as it is.

    Returns None when there is no such run. Notify the dispatcher after the commit.
    """
    now = now or utcnow()
    if not is_id(run_id):
        return None
    # Lock the jobs first, in the order of their ids like everyone who locks several; the run last.
    query = select(RunJobRow.job_id).where(RunJobRow.run_id == run_id).order_by(RunJobRow.job_id)
    job_ids = session.scalars(query).all()
    for job_id in job_ids:
        closing.lock(session, job_id)
    row = session.get(RunRow, run_id, with_for_update=True, populate_existing=True)
    if row is None:
        return None
    if row.state == RunState.running:
        row.state = RunState.cancelling
        row.version += 1
        session.flush()
        for job_id in job_ids:
            jobs.cancel(session, job_id, now=now)
        finish(session, run_id, now=now)
    current(session, row)
    return row


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
    left = _jobs_of(session, [row.id])[row.id]
    _conclude(row, left)
    row.job_count = len(left)
    row.version += 1
    session.flush()


def finish(session: Session, run_id: str, *, now: datetime) -> RunRow | None:
    """Conclude a run whose jobs have all ended: verdict, counts, and one outbox message.

    Returns None when some job hasn't ended, or when the run was concluded before.
    """
    row = session.get(RunRow, run_id, with_for_update=True, populate_existing=True)
    if row is None or row.state.final:
        return None
    ended = _jobs_of(session, [run_id])[run_id]
    if not all(job.state.final for job in ended):
        return None
    _conclude(row, ended)
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
    return row


def _conclude(row: RunRow, ended: Sequence[Any]) -> None:
    """Store the counts and the verdict of a run whose jobs have all ended."""
    for name, value in _counts(ended).items():
        setattr(row, name, value)
    row.verdict = verdict_of([job.verdict for job in ended])


def verdict_of(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """Return the worst verdict of the jobs of a run.

    None when a job was canceled before anything wrong was seen and the others passed: what did not
    run can't be green.
    """
    worst = worst_verdict([verdict for verdict in verdicts if verdict is not None])
    return None if None in verdicts and worst in (Verdict.pass_, Verdict.not_run) else worst


def _jobs_of(session: Session, run_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return what counts of the jobs of each run."""
    about = JobRow.state, JobRow.verdict, JobRow.total, JobRow.done, JobRow.counts
    query = select(RunJobRow.run_id, *about, JobRow.red, JobRow.hollow)
    query = query.join(RunJobRow, RunJobRow.job_id == JobRow.id)
    of_run: dict[str, list[Any]] = {run_id: [] for run_id in run_ids}
    for job in session.execute(query.where(among(session, RunJobRow.run_id, run_ids))):
        of_run[job.run_id].append(job)
    return of_run


def _counts(run_jobs: Sequence[Any]) -> dict[str, Any]:
    """Return the counts of a run's jobs by the names of RunRow's columns."""
    seeds: Counter[str] = Counter()
    for job in run_jobs:
        seeds.update(job.counts)
    verdicts = Counter[str](job.verdict for job in run_jobs if job.verdict is not None)
    return {
        "total": sum(job.total for job in run_jobs),
        "done": sum(job.done for job in run_jobs),
        "counts": by_verdict(seeds),
        "job_counts": by_verdict(verdicts),
        "red": sum(job.red > 0 for job in run_jobs),
        "hollow": sum(job.hollow > 0 for job in run_jobs),
    }


def place_of_job(session: Session, job_id: str) -> tuple[str | None, str | None] | None:
    """Return the repository of a job's commit and the name of its suite; None without the job."""
    query = select(JobRow.commit["repository"].as_string(), RunRow.name)
    query = query.outerjoin(RunJobRow, RunJobRow.job_id == JobRow.id)
    query = query.outerjoin(RunRow, RunRow.id == RunJobRow.run_id)
    return _place(session, query.where(JobRow.id == job_id), job_id)


def place_of_run(session: Session, run_id: str) -> tuple[str | None, str | None] | None:
    """Return the repository of a run's commit and the name of its suite; None without the run."""
    query = select(RunRow.commit["repository"].as_string(), RunRow.name).where(RunRow.id == run_id)
    return _place(session, query, run_id)


def _place(session: Session, query: Select[str, str], id_: str) -> tuple[str, str] | None:
    row = session.execute(query).first() if is_id(id_) else None
    return None if row is None else (row[0], row[1])
