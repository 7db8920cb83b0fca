"""What needs someone: findings that nobody has looked at, and what is red in the runs of the last
day. Bounded reads only.
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
from gonogo_storage.tables import FlagRow, JobRow, RunJobRow, RunRow, TestSpecRow

RED = (Verdict.error, Verdict.crash, Verdict.hang, Verdict.fail, Verdict.fail_by_tolerance)
NIGHT = timedelta(days=1)
MOST_RUNS = 200
"""Runs of the last day that are looked at, newest first."""
MOST_RED = 400
"""Red jobs of these that are compared with those before."""


@dataclass(frozen=True)
class FlagRecord:
    """A finding about a test, with its evidence as ingest wrote it."""

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


@dataclass(frozen=True)
class KindOfFlag:
    """The findings of one kind that nobody has looked at: how many, and the latest of them."""

    kind: str
    count: int
    latest: tuple[FlagRecord, ...]


@dataclass(frozen=True)
class RedJob:
    """A job of a run that ended red; `before` is the verdict of the test's last job before the run,
    None: it had none.
    """

    job: str
    run: str
    suite: str
    name: str
    build: str
    verdict: str
    before: str | None
    words: str | None
    """Its diagnosis, or its error."""

    @property
    def new(self) -> bool:
        """Whether the test wasn't red the last time."""
        return self.before not in RED


@dataclass(frozen=True)
class Night:
    """The runs of the last day: how many, how many of them are over, and what is red in them."""

    runs: int
    ended: int
    red: tuple[RedJob, ...]
    whole: bool
    """Whether every run and every red job was looked at."""


def flags(session: Session, *, each: int) -> tuple[list[KindOfFlag], int]:
    """(Unseen findings by kind, as triage orders them, with the latest `each` of every kind; how
    many others someone has taken on).
    """
    counted = select(FlagRow.kind, FlagRow.state, func.count()).where(
        FlagRow.state.in_(triage.STATES["unresolved"])
    )
    counts: Counter[str] = Counter()
    there: list[tuple[str, str]] = []
    taken = 0
    for kind, state, number in session.execute(counted.group_by(FlagRow.kind, FlagRow.state)):
        if state == FlagState.acknowledged:
            taken += number
        else:
            counts[kind] += number
            there.append((kind, state))
    known = [kind for kind in triage.ORDER if kind in counts]
    order = [*known, *sorted(kind for kind in counts if kind not in known)]
    latest = _latest(session, there, each)
    return [
        KindOfFlag(str(kind), counts[kind], tuple(latest[kind][:each])) for kind in order
    ], taken


def _latest(
    session: Session, there: Sequence[tuple[str, str]], each: int
) -> dict[str, list[FlagRecord]]:
    """By kind, the latest evidence first: of each kind and state the latest by their ids, for which
    there is an index.
    """
    found: dict[str, list[FlagRecord]] = {}
    if not there:
        return found
    parts = [
        select(FlagRow.id)
        .where(FlagRow.state == state, FlagRow.kind == kind)
        .order_by(FlagRow.id.desc())
        .limit(each)
        .subquery()
        for kind, state in there
    ]
    ids = union_all(*(select(part.c.id) for part in parts))
    names = [name for name in FlagRecord.__dataclass_fields__ if name != "test"]
    query = (
        select(FlagRow, TestSpecRow.canonical)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.id.in_(ids))
    )
    for row, test in session.execute(query.order_by(FlagRow.updated_at.desc(), FlagRow.id.desc())):
        found.setdefault(row.kind, []).append(
            FlagRecord(**{name: getattr(row, name) for name in names}, test=test)
        )
    return found


def night(session: Session, *, now: datetime) -> Night:
    """What ended red in the runs of the last day, worst first, what is new before what was red the
    last time too.
    """
    query = select(
        RunRow.id, RunRow.name, RunRow.state, RunRow.job_counts, RunRow.finished_at
    ).where(RunRow.id >= floor(now - NIGHT))
    found = session.execute(query.order_by(RunRow.id.desc()).limit(MOST_RUNS + 1)).all()
    runs = found[:MOST_RUNS]
    # a run that is over knows what its jobs gave: most nights most of them need not be opened
    looked = [
        run.id
        for run in runs
        if run.finished_at is None or any(verdict in run.job_counts for verdict in RED)
    ]
    red = _red(session, looked)
    ended = sum(run.finished_at is not None for run in runs)
    return Night(
        len(runs), ended, tuple(red[:MOST_RED]), len(found) <= MOST_RUNS and len(red) <= MOST_RED
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
            JobRow.diagnosis["words"].as_string().label("said"),
            before.label("before"),
        )
        .join(RunJobRow, RunJobRow.job_id == JobRow.id)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        .where(
            RunJobRow.run_id.in_(runs), JobRow.verdict.in_(RED)
        )  # not by state: its index would be taken, and leads to every job
        .order_by(rank, JobRow.id.desc())
        .limit(MOST_RED + 1)
    )
    found = [
        RedJob(
            row.id,
            row.run_id,
            row.suite,
            row.name,
            row.build,
            row.verdict,
            row.before,
            row.said or row.error,
        )
        for row in session.execute(query)
        if row.state == JobState.finished
    ]
    return sorted(found, key=lambda job: not job.new)
