"""Things that need attention: open flags, and red jobs in the runs of the last day.

All reads are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, func, select, union_all
from sqlalchemy.orm import Session, aliased

from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_storage.db.ids import floor
from gonogo_storage.db.states import FlagState, JobState
from gonogo_storage.flags import triage
from gonogo_storage.rollups.variants import Variant, newest_builds
from gonogo_storage.tables import FlagRow, JobRow, RunJobRow, RunRow, TestSpecRow

RED = (Verdict.error, Verdict.crash, Verdict.hang, Verdict.fail, Verdict.fail_by_tolerance)
NIGHT = timedelta(days=1)
MAX_RUNS = 200
"""Maximum number of the last day's runs that are read, newest first."""
MAX_RED = 400
"""Maximum number of their red jobs that are compared with earlier jobs."""


@dataclass(frozen=True)
class FlagRecord:
    """A flag about a test, with its evidence as ingest wrote it."""

    id: str
    kind: str
    state: str
    test_key: str
    kernel: str
    build: str
    jobs: int
    last_job: str
    owner: str | None
    reason: str | None
    opened_at: datetime
    updated_at: datetime
    evidence: Mapping[str, Any]
    test: Mapping[str, Any]
    newest_build: str | None
    """The newest build of the flag's variant that has results."""


@dataclass(frozen=True)
class OpenFlags:
    """The open flags of one kind: their number, and the latest of them."""

    kind: str
    count: int
    latest: tuple[FlagRecord, ...]


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


def flags(session: Session, *, latest: int) -> tuple[list[OpenFlags], int]:
    """Return the open flags by kind, and the number of acknowledged flags.

    The kinds are in triage's order; each has its `latest` flags.
    """
    counted = select(FlagRow.kind, FlagRow.state, func.count()).where(
        FlagRow.state.in_(triage.STATES["unresolved"])
    )
    counts: Counter[str] = Counter()
    kinds_and_states: list[tuple[str, str]] = []
    acknowledged = 0
    for kind, state, number in session.execute(counted.group_by(FlagRow.kind, FlagRow.state)):
        if state == FlagState.acknowledged:
            acknowledged += number
        else:
            counts[kind] += number
            kinds_and_states.append((kind, state))
    known = [kind for kind in triage.ORDER if kind in counts]
    order = [*known, *sorted(kind for kind in counts if kind not in known)]
    records = _latest(session, kinds_and_states, latest)
    return [
        OpenFlags(str(kind), counts[kind], tuple(records[kind][:latest])) for kind in order
    ], acknowledged


def _latest(
    session: Session, kinds_and_states: Sequence[tuple[str, str]], limit: int
) -> dict[str, list[FlagRecord]]:
    """Return flags by kind, the latest evidence first.

    They are the latest of each kind and state by their ids, for which there is an index.
    """
    by_kind: dict[str, list[FlagRecord]] = {}
    if not kinds_and_states:
        return by_kind
    parts = [
        select(FlagRow.id)
        .where(FlagRow.state == state, FlagRow.kind == kind)
        .order_by(FlagRow.id.desc())
        .limit(limit)
        .subquery()
        for kind, state in kinds_and_states
    ]
    ids = union_all(*(select(part.c.id) for part in parts))
    joined = ("test", "newest_build")
    names = [name for name in FlagRecord.__dataclass_fields__ if name not in joined]
    query = (
        select(FlagRow, TestSpecRow.canonical)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.id.in_(ids))
    )
    rows = session.execute(query.order_by(FlagRow.updated_at.desc(), FlagRow.id.desc())).all()
    newest = newest_builds(session, [_variant(row) for row, _ in rows])
    for row, test in rows:
        facts = {name: getattr(row, name) for name in names}
        record = FlagRecord(**facts, test=test, newest_build=newest.get(_variant(row)))
        by_kind.setdefault(row.kind, []).append(record)
    return by_kind


def _variant(row: FlagRow) -> Variant:
    return Variant(row.test_key, row.branch, row.arch, row.board)


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
        RedJob(
            row.id,
            row.run_id,
            row.suite,
            row.name,
            row.build,
            row.verdict,
            row.before,
            row.diagnosis or row.error,
        )
        for row in session.execute(query)
        if row.state == JobState.finished
    ]
    return sorted(jobs, key=lambda job: not job.new)
