"""The results of variants on their last builds, and how often their seeds failed lately.

All reads are bounded. The API process imports this module, so it must not import NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    CompoundSelect,
    Integer,
    bindparam,
    case,
    func,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.orm import Session

from gonogo.flakiness.outcomes import Outcome
from gonogo_storage.db.columns import IdType
from gonogo_storage.db.ids import floor
from gonogo_storage.db.paging import batched
from gonogo_storage.db.states import JobState
from gonogo_storage.rollups.tallies import WHOLE
from gonogo_storage.rollups.variants import COUNTED, Variant
from gonogo_storage.tables import DayRollupRow, JobRow

_NEWEST_JOBS = 48
"""The newest jobs of a variant that are read: its last builds, some of which ran twice."""
_MAX_VARIANTS = 50
MAX_JOBS_OF_BUILD = 5000
"""The newest jobs of a build that are read."""
_NO_END = "ffffffff-ffff-ffff-ffff-ffffffffffff"
WEEK, MONTH = 7, 30
"""Days of the two rates."""


@dataclass(frozen=True)
class BuildResult:
    """A build of a variant: its seeds by verdict over the variant's newest jobs."""

    build: str
    counts: Mapping[str, int]
    at: datetime


@dataclass(frozen=True)
class FailureRate:
    """The failed ones of the seeds that passed or failed; hangs, crashes and errors are apart."""

    failed: int = 0
    runs: int = 0


def results(
    session: Session,
    variants: Collection[Variant],
    builds: int,
    *,
    before: datetime | None = None,
) -> dict[Variant, tuple[BuildResult, ...]]:
    """Return the last `builds` builds of each variant in their order, the newest last.

    before: only jobs that were submitted before this moment count.
    """
    by_variant: dict[Variant, tuple[BuildResult, ...]] = {}
    for batch in batched(sorted(variants), _MAX_VARIANTS):
        values = {
            f"{name}{number}": value
            for number, variant in enumerate(batch)
            for name, value in asdict(variant).items()
        }
        values["before"] = _NO_END if before is None else floor(before)
        values["jobs"] = min(_NEWEST_JOBS, builds + 12)
        merged: dict[int, dict[tuple[int, str], tuple[dict[str, int], datetime]]] = {}
        for number, build, sequence, counts, at in session.execute(_query(len(batch)), values):
            of_variant = merged.setdefault(number, {})
            total, _ = of_variant.setdefault((sequence, build), ({}, at))
            for verdict, seeds in counts.items():
                total[verdict] = total.get(verdict, 0) + seeds
        for number, of_variant in merged.items():
            by_variant[batch[number]] = tuple(
                BuildResult(place[1], *of_variant[place]) for place in sorted(of_variant)[-builds:]
            )
    return by_variant


@cache  # building the statement takes longer than running it
def _query(members: int) -> CompoundSelect[Any]:
    table, parts = JobRow, []
    for number in range(members):
        named = (
            getattr(table, name) == bindparam(f"{name}{number}")
            for name in ("test_key", "branch", "arch", "board")
        )
        place: Any = literal_column(str(number)).label("number")
        jobs = (
            select(place, table.build, table.build_sequence, table.counts, table.created_at)
            .where(
                *named,
                COUNTED,
                table.state.in_((JobState.finished, JobState.cancelled)),
                table.done > 0,
                table.id < bindparam("before", type_=IdType),
            )
            .order_by(table.id.desc())
            .limit(bindparam("jobs", type_=Integer))
        )
        parts.append(select(jobs.subquery()))
    return union_all(*parts)


@dataclass(frozen=True)
class EndedJob:
    """The newest ended job of a test on a build."""

    verdict: str | None
    hollow: int
    """Seeds, or tests of a selection, that are hollow passes."""


def of_build(session: Session, build: str) -> list[EndedJob]:
    """Return the newest ended job of each test and kind of board on a build."""
    table = JobRow
    query = (
        select(table.test_key, table.arch, table.board, table.verdict, table.hollow)
        .where(
            table.build == build,
            COUNTED,
            table.state.in_((JobState.finished, JobState.cancelled)),
            table.done > 0,
        )
        .order_by(table.id.desc())
        .limit(MAX_JOBS_OF_BUILD)
    )
    newest: dict[tuple[str, str, str], EndedJob] = {}
    for key, arch, board, verdict, hollow in session.execute(query):
        newest.setdefault((key, arch, board), EndedJob(verdict, hollow))
    return list(newest.values())


def failure_rates(
    session: Session, test_keys: Collection[str], now: datetime
) -> dict[Variant, tuple[FailureRate, FailureRate]]:
    """Return the failure rates of the last WEEK and MONTH days of each variant of these tests.

    A day is a UTC day, and today is one of them.
    """
    table = DayRollupRow
    today = now.astimezone(UTC).date()
    lately = table.day > today - timedelta(days=WEEK)

    def seeds(outcome: Outcome) -> list[Any]:
        number = table.outcomes[outcome.value].as_integer()
        return [
            func.coalesce(func.sum(case((lately, number), else_=0)), 0),
            func.coalesce(func.sum(number), 0),
        ]

    variant = table.test_key, table.branch, table.arch, table.board
    query = (
        select(*variant, *seeds(Outcome.failed), *seeds(Outcome.passed))
        .where(
            table.test_key.in_(list(test_keys)),
            table.output == WHOLE,
            table.day > today - timedelta(days=MONTH),
            table.shadow.is_(False),
        )
        .group_by(*variant)
    )
    rates = {}
    for *place, week, month, week_passed, month_passed in session.execute(query):
        rates[Variant(*place)] = (
            FailureRate(int(week), int(week + week_passed)),
            FailureRate(int(month), int(month + month_passed)),
        )
    return rates
