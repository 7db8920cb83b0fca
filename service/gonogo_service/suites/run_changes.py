"""The tests of runs, each against the run before: the last of its suite on the same branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ScalarSelect, Select, func, or_, select
from sqlalchemy.orm import Session, aliased

from gonogo.reports.red_hollow import RED
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import FINAL_JOB, RunState
from gonogo_service.suites.model import RunJobRow, RunRow


class JobChange(Described):
    """How a job of a run compares with its test's job in the run before; the worst come first."""

    newly_red = "newly_red", "Red, and not red in the run before.", "Newly red", "fail"
    red = "red", "Red as in the run before.", "Red as before", "fail"
    newly_hollow = (
        "newly_hollow",
        "A hollow pass, and none in the run before.",
        "Newly hollow",
        "pass_by_tolerance",
    )
    hollow = "hollow", "Hollow as in the run before.", "Hollow as before", "pass_by_tolerance"
    fixed = "fixed", "Red or hollow in the run before, and a pass now.", "Fixed", "pass"

    @property
    def is_red(self) -> bool:
        """Return whether the job is red."""
        return self in (JobChange.newly_red, JobChange.red)


NEWS = JobChange.newly_red, JobChange.newly_hollow, JobChange.fixed


@dataclass(frozen=True)
class ChangedJob:
    """A job that is red, hollow or fixed."""

    run: str
    suite: str
    job: str
    name: str
    build: str
    verdict: Verdict
    change: JobChange
    before: Verdict | None
    """The verdict of its test in the run before; None: it did not run there"""
    words: str | None
    """The diagnosis or the error"""


@dataclass(frozen=True)
class RunChanges:
    """A run against the run before it."""

    before: str | None = None
    """The run before; None: it is the first of its suite on its branch"""
    jobs: Sequence[ChangedJob] = field(default_factory=tuple)
    """The worst first"""

    @property
    def news(self) -> dict[JobChange, list[ChangedJob]]:
        """Return the jobs that changed, by change."""
        by_change = {kind: [one for one in self.jobs if one.change is kind] for kind in NEWS}
        return {kind: some for kind, some in by_change.items() if some}


def read(session: Session, query: Select[RunRow]) -> list[tuple[RunRow, RunChanges]]:
    """Return the runs of a query with their changes; a job that has not ended is in none.

    A test is compared on the same build, or else on the build of the same place in the run before.
    """
    runs = session.execute(query.add_columns(_before())).all()
    jobs = _bad_tests(session, [*{id_ for run, before in runs for id_ in (run.id, before) if id_}])
    changes = []
    for run, before in runs:
        earlier = jobs.get(before, {})
        changed = [
            one
            for place, members in jobs.get(run.id, {}).items()
            for number, job in enumerate(members)
            if (one := _changed(job, _same(earlier.get(place, []), job.build, number)))
        ]
        changed.sort(key=lambda one: (one.change.rank, one.verdict.rank))
        changes.append((run, RunChanges(before, changed)))
    return changes


def of_last_day(session: Session, now: datetime, limit: int) -> list[tuple[RunRow, RunChanges]]:
    """Return the newest `limit` runs of the last day with their changes."""
    query = select(RunRow).where(RunRow.id >= floor(now - timedelta(days=1)))
    return read(session, query.order_by(RunRow.id.desc()).limit(limit))


def _before() -> ScalarSelect[str]:
    """Return the last finished run of a run's suite before it, on its branch."""
    earlier = aliased(RunRow)
    same = earlier.name == RunRow.name, _branch(earlier) == _branch(RunRow)
    query = select(earlier.id).where(*same, earlier.id < RunRow.id)
    query = query.where(earlier.state == RunState.finished).order_by(earlier.id.desc()).limit(1)
    return query.correlate(RunRow).scalar_subquery()


def _branch(run: Any) -> ScalarSelect[str]:
    """Return the branch of a run's first job."""
    first = select(JobRow.branch).join(RunJobRow, RunJobRow.job_id == JobRow.id)
    first = first.where(RunJobRow.run_id == run.id).order_by(RunJobRow.number).limit(1)
    return first.correlate(run).scalar_subquery()


def _bad_tests(
    session: Session, runs: Sequence[str]
) -> dict[str, dict[tuple[str, ...], list[Any]]]:
    """Return run -> (test, arch, board) -> its jobs in order, of tests that are bad in some run."""
    of_runs = among(session, RunJobRow.run_id, runs)
    joined = RunJobRow.job_id == JobRow.id
    bad = or_(JobRow.red > 0, JobRow.hollow > 0, JobRow.verdict.in_(RED))
    keys = select(JobRow.test_key).join(RunJobRow, joined).where(of_runs, bad)
    words = func.coalesce(JobRow.diagnosis["words"].as_string(), JobRow.error).label("words")
    of_run = RunJobRow.run_id, RunJobRow.name, RunRow.name.label("suite")
    of_test = JobRow.test_key, JobRow.arch, JobRow.board, JobRow.build
    of_job = JobRow.id, JobRow.verdict, JobRow.red, JobRow.hollow, words
    query = select(*of_run, *of_test, *of_job).join(RunJobRow, joined)
    query = query.join(RunRow, RunRow.id == RunJobRow.run_id)
    query = query.where(of_runs, JobRow.test_key.in_(keys), JobRow.state.in_(FINAL_JOB))
    jobs: dict[str, dict[tuple[str, ...], list[Any]]] = {}
    for job in session.execute(query.order_by(RunJobRow.run_id, RunJobRow.number)):
        place = job.test_key, job.arch, job.board
        jobs.setdefault(job.run_id, {}).setdefault(place, []).append(job)
    return jobs


def _same(earlier: Sequence[Any], build: str, number: int) -> Any | None:
    """Return the job of the run before that a job is compared with, among those of its test."""
    of_build = [job for job in earlier if job.build == build]
    return (of_build or earlier[number : number + 1] or [None])[-1]


def _changed(job: Any, before: Any | None) -> ChangedJob | None:
    if job.verdict is None:
        return None
    (red, hollow), (was_red, was_hollow) = _badness(job), _badness(before)
    conditions = {
        JobChange.newly_red: red and not was_red,
        JobChange.red: red,
        JobChange.newly_hollow: hollow and not was_hollow,
        JobChange.hollow: hollow,
        JobChange.fixed: (was_red or was_hollow) and job.verdict == Verdict.pass_,
    }
    change = next((kind for kind, holds in conditions.items() if holds), None)
    if change is None:
        return None
    about = job.run_id, job.suite, job.id, job.name, job.build, job.verdict
    return ChangedJob(*about, change, before and before.verdict, job.words)


def _badness(job: Any | None) -> tuple[bool, bool]:
    """Return whether a job is red, and whether it is hollow."""
    return job is not None and (job.red > 0 or job.verdict in RED), bool(job and job.hollow)
