"""Things that need attention: open flags, and red jobs in the runs of the last day.

All reads are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import store
from gonogo_service.flags.model import OPEN, FlagRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.suites import run_changes
from gonogo_service.suites.model import RunRow
from gonogo_service.suites.run_changes import ChangedJob
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import Variant, newest_builds

NIGHT = timedelta(days=1)
MAX_RUNS = 200
"""Maximum number of the last day's runs that are read, newest first."""
MAX_FLAGS = 5000
"""Maximum number of open flags whose newest build is looked up, newest first."""


@dataclass(frozen=True)
class ShownFlag:
    """A flag with its test's canonical form, and the newest build of its variant with results."""

    flag: FlagRow
    test: Mapping[str, Any]
    newest_build: str | None

    @property
    def gone(self) -> bool:
        """Return whether the newest build of the flag's variant doesn't have it any more."""
        return self.flag.kind.is_gone(self.flag.build, self.newest_build)


@dataclass(frozen=True)
class OpenFlags:
    """The open flags of one kind: their numbers, and the latest of them."""

    kind: FlagKind
    count: int
    gone: int
    """Number of those that the newest build doesn't have any more; `count` includes them."""
    latest: tuple[ShownFlag, ...]
    """The latest that the newest build still has, then the latest others."""


@dataclass(frozen=True)
class Night:
    """The runs of the last day: their number, how many have ended, and their red jobs."""

    runs: int
    ended: int
    red: tuple[ChangedJob, ...]
    whole: bool
    """True if all runs were read."""
    suspect: int
    """Number of jobs of ended runs that are at the edge of what rounding explains."""


def open_flags(session: Session, *, latest: int) -> tuple[list[OpenFlags], int]:
    """Return the open flags by kind, in the order of triage, and the number of acknowledged flags.

    Each kind has its `latest` flags that the newest build still has, and as many that it doesn't
    have any more.
    """
    counts, acknowledged = store.open_by_kind(session)
    newest: dict[Variant, str] = {}
    # split before they are cut, so that old flags never hide behind new ones
    ids: dict[tuple[FlagKind, bool], list[str]] = {}
    if counts:
        columns = FlagRow.id, FlagRow.kind, FlagRow.build, FlagRow.test_key, FlagRow.branch
        query = select(*columns, FlagRow.arch, FlagRow.board).where(FlagRow.state.in_(OPEN))
        rows = session.execute(query.order_by(FlagRow.id.desc()).limit(MAX_FLAGS)).all()
        newest = newest_builds(session, {Variant.of(row) for row in rows})
        for row in rows:
            gone = row.kind.is_gone(row.build, newest.get(Variant.of(row)))
            ids.setdefault((row.kind, gone), []).append(row.id)
    chosen = [flag_id for part in ids.values() for flag_id in part[:latest]]
    records = (
        select(FlagRow, TestSpecRow.test)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.id.in_(chosen))
        .order_by(FlagRow.updated_at.desc(), FlagRow.id.desc())
    )
    shown: dict[FlagKind, list[ShownFlag]] = {}
    for flag, test in session.execute(records) if chosen else ():
        shown.setdefault(flag.kind, []).append(ShownFlag(flag, test, newest.get(Variant.of(flag))))
    kinds = [
        OpenFlags(
            kind,
            number,
            len(ids.get((kind, True), ())),
            tuple(sorted(shown.get(kind, ()), key=lambda flag: flag.gone)),
        )
        for kind, number in counts.items()
    ]
    return kinds, acknowledged


def night(session: Session, *, now: datetime) -> Night:
    """Return the runs of the last day with their red jobs, the worst first.

    Newly red jobs come before those whose test was red in the run before, too.
    """
    query = select(RunRow).where(RunRow.id >= floor(now - NIGHT)).order_by(RunRow.id.desc())
    rows = run_changes.read(session, query.limit(MAX_RUNS + 1))
    runs = [run for run, _ in rows[:MAX_RUNS]]
    red = [job for _, changes in rows[:MAX_RUNS] for job in changes.jobs if job.change.is_red]
    red.sort(key=lambda job: (job.change.rank, job.verdict.rank))
    return Night(
        len(runs),
        sum(run.finished_at is not None for run in runs),
        tuple(red),
        len(rows) <= MAX_RUNS,
        sum(run.job_counts.get(Verdict.suspect, 0) for run in runs),
    )
