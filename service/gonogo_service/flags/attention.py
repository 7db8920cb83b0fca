"""Things that need attention: open flags, and red jobs in the runs of the last day.

All reads are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session, aliased

from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_service.bisections.model import ProbeRow
from gonogo_service.flags import triage
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.store import Flag, of_row
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import LISTED_KINDS, FlagKind, FlagState, JobState
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import Variant, newest_builds

RED = (Verdict.error, Verdict.crash, Verdict.hang, Verdict.fail, Verdict.fail_by_tolerance)
NIGHT = timedelta(days=1)
MAX_RUNS = 200
"""Maximum number of the last day's runs that are read, newest first."""
MAX_RED = 400
"""Maximum number of their red jobs that are compared with earlier jobs."""
MAX_FLAGS = 5000
"""Maximum number of open flags whose newest build is looked up, newest first."""
LOST = (Verdict.error, Verdict.crash, Verdict.hang)
MAX_LOST = 1000
"""Maximum number of jobs without a result that are counted."""


@dataclass(frozen=True)
class FlagRecord(Flag):
    """A flag with its test."""

    test: Mapping[str, Any]
    newest_build: str | None
    """The newest build of the flag's variant that has results."""

    @property
    def gone(self) -> bool:
        """Return whether the newest build of the flag's variant doesn't have it any more."""
        return is_gone(self.kind, self.build, self.newest_build)


@dataclass(frozen=True)
class OpenFlags:
    """The open flags of one kind: their numbers, and the latest of them."""

    kind: str
    count: int
    gone: int
    """Number of those that the newest build doesn't have any more; `count` includes them."""
    latest: tuple[FlagRecord, ...]
    """The latest that the newest build still has."""
    latest_gone: tuple[FlagRecord, ...]


@dataclass(frozen=True)
class RedJob:
    """A job of a run that ended red."""

    job: str
    run: str
    suite: str
    name: str
    build: str
    verdict: str
    before: str | None
    """The verdict of the test's last job before the run, if there is one."""
    words: str | None
    """The diagnosis or the error."""

    @property
    def new(self) -> bool:
        """Return whether the test wasn't red the last time."""
        return self.before not in RED


@dataclass(frozen=True)
class Night:
    """The runs of the last day: their number, how many have ended, and their red jobs."""

    runs: int
    ended: int
    red: tuple[RedJob, ...]
    whole: bool
    """True if all runs and all red jobs were read."""
    suspect: int
    """Number of jobs of ended runs that are at the edge of what rounding explains."""


def is_gone(kind: str, build: str, newest: str | None) -> bool:
    """Return whether the newest build of a flag's variant doesn't have it any more.

    `build` is that of the flag's evidence. A gauge measures a test, whatever the build.
    """
    return newest is not None and kind != FlagKind.blunt_test and build != newest


def flags(session: Session, *, latest: int) -> tuple[list[OpenFlags], int]:
    """Return the open flags by kind, and the number of acknowledged flags.

    The kinds are in triage's order; each has its `latest` flags that the newest build still has,
    and as many that it doesn't have any more.
    """
    counted = select(FlagRow.kind, FlagRow.state, func.count()).where(
        FlagRow.state.in_(triage.STATES["unresolved"])
    )
    counts: Counter[str] = Counter()
    acknowledged = 0
    for kind, state, number in session.execute(counted.group_by(FlagRow.kind, FlagRow.state)):
        if state == FlagState.acknowledged:
            acknowledged += number
        else:
            counts[kind] += number
    known = [kind for kind in triage.ORDER if kind in counts]
    order = [*known, *sorted(kind for kind in counts if kind not in known)]
    still, gone, newest = _split(session) if counts else ({}, {}, {})
    # The flags are split before they are cut, so that old flags never hide behind new ones.
    records = _records(
        session,
        [flag for by_kind in (still, gone) for ids in by_kind.values() for flag in ids[:latest]],
        newest,
    )
    return [
        OpenFlags(
            str(kind),
            counts[kind],
            len(gone.get(kind, ())),
            *(
                tuple(record for record in records.get(kind, ()) if record.id in chosen)
                for chosen in (still.get(kind, ())[:latest], gone.get(kind, ())[:latest])
            ),
        )
        for kind in order
    ], acknowledged


def _split(
    session: Session,
) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[Variant, str]]:
    """Return the open flags by kind, newest first: those that are still there, and the others.

    The newest build of each variant comes with them.
    """
    table = FlagRow
    columns = table.id, table.kind, table.build, table.test_key, table.branch
    query = (
        select(*columns, table.arch, table.board)
        .where(table.state.in_(triage.STATES["open"]))
        .order_by(table.id.desc())
        .limit(MAX_FLAGS)
    )
    rows = session.execute(query).all()
    newest = newest_builds(session, {Variant.of(row) for row in rows})
    still: dict[str, list[str]] = {}
    gone: dict[str, list[str]] = {}
    for row in rows:
        past = is_gone(row.kind, row.build, newest.get(Variant.of(row)))
        (gone if past else still).setdefault(row.kind, []).append(row.id)
    return still, gone, newest


def _records(
    session: Session, ids: Sequence[str], newest: Mapping[Variant, str]
) -> dict[str, list[FlagRecord]]:
    """Return these flags by kind, the latest evidence first."""
    by_kind: dict[str, list[FlagRecord]] = {}
    if not ids:
        return by_kind
    query = (
        select(FlagRow, TestSpecRow.canonical)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.id.in_(ids))
    )
    rows = session.execute(query.order_by(FlagRow.updated_at.desc(), FlagRow.id.desc())).all()
    for row, test in rows:
        record = from_object(
            FlagRecord, of_row(row), test=test, newest_build=newest.get(Variant.of(row))
        )
        by_kind.setdefault(row.kind, []).append(record)
    return by_kind


def night(session: Session, *, now: datetime) -> Night:
    """Return the runs of the last day with their red jobs, the worst first.

    Newly red jobs come before those whose test was red the last time, too.
    """
    query = select(
        RunRow.id, RunRow.name, RunRow.state, RunRow.job_counts, RunRow.finished_at
    ).where(RunRow.id >= floor(now - NIGHT))
    rows = session.execute(query.order_by(RunRow.id.desc()).limit(MAX_RUNS + 1)).all()
    runs = rows[:MAX_RUNS]
    # An ended run stores its jobs' verdicts, so that the jobs of most runs need not be read.
    maybe_red = [
        run.id
        for run in runs
        if run.finished_at is None or any(verdict in run.job_counts for verdict in RED)
    ]
    red = _red(session, maybe_red)
    ended = sum(run.finished_at is not None for run in runs)
    return Night(
        len(runs),
        ended,
        tuple(red[:MAX_RED]),
        len(rows) <= MAX_RUNS and len(red) <= MAX_RED,
        sum(run.job_counts.get(Verdict.suspect, 0) for run in runs),
    )


def lost_outside_runs(session: Session, *, now: datetime) -> dict[str, int]:
    """Return the number of the last day's jobs outside of runs that errored, crashed or hung.

    Jobs that fail are not among them: the tests by day count these.
    """
    table = JobRow
    in_run = select(RunJobRow.job_id).where(RunJobRow.job_id == table.id).exists()
    probe = select(ProbeRow.job_id).where(ProbeRow.job_id == table.id).exists()
    query = (
        select(table.verdict)
        .where(
            table.id >= floor(now - NIGHT),
            table.verdict.in_(LOST),
            table.kind.in_(LISTED_KINDS),
            ~in_run,
            ~probe,
        )
        .limit(MAX_LOST)
    )
    return Counter(session.scalars(query))


def _red(session: Session, runs: Sequence[str]) -> list[RedJob]:
    if not runs:
        return []
    earlier = aliased(JobRow)
    before = (
        select(earlier.verdict)
        .where(
            earlier.test_key == JobRow.test_key,
            earlier.branch == JobRow.branch,
            earlier.arch == JobRow.arch,
            earlier.board == JobRow.board,
            earlier.id < RunJobRow.run_id,  # jobs of a run have later ids than their run
            earlier.state == JobState.finished,
        )
        .order_by(earlier.id.desc())
        .limit(1)
        .correlate(JobRow, RunJobRow)
        .scalar_subquery()
    )
    rank: Any = case(
        {str(verdict): verdict.rank for verdict in WORST_FIRST},
        value=JobRow.verdict,
        else_=len(WORST_FIRST),
    )
    query = (
        select(
            JobRow.id,
            RunJobRow.run_id,
            RunRow.name.label("suite"),
            RunJobRow.name,
            JobRow.build,
            JobRow.verdict,
            JobRow.error,
        )
        .add_columns(
            JobRow.state,
            JobRow.diagnosis["words"].as_string().label("diagnosis"),
            before.label("before"),
        )
        .join(RunJobRow, RunJobRow.job_id == JobRow.id)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        # Not by state: the database would use its index, which leads to every job.
        .where(RunJobRow.run_id.in_(runs), JobRow.verdict.in_(RED))
        .order_by(rank, JobRow.id.desc())
        .limit(MAX_RED + 1)
    )
    jobs = [
        from_object(RedJob, row, job=row.id, run=row.run_id, words=row.diagnosis or row.error)
        for row in session.execute(query)
        if row.state == JobState.finished
    ]
    return sorted(jobs, key=lambda job: not job.new)
