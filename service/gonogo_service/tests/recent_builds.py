"""The results of tests by variant and build: one query, which every page and answer reads.

Matrix, strips, tiles, lists, badges, flags and comparisons of days count what it counts: the seeds
of ended jobs, all jobs of a build together. A bisection's runs are left out, because it runs old
builds again. All reads are bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Integer,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.classes import LOST
from gonogo.reports.red_hollow import RED
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import IdType, VerdictType
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow
from gonogo_service.tests.variants import COLUMNS, ENDED, NAMES, Variant

_NEWEST_JOBS = 48
"""The newest jobs of a variant that are read: its last builds, some of which ran twice."""
_MAX_VARIANTS = 50
NO_START, _NO_END = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
WEEK, MONTH = 7, 30
"""Days of the two rates."""
JOBS = (
    JobRow.id,
    *(getattr(JobRow, name) for name in NAMES),
    JobRow.build_sequence,
    JobRow.build,
    JobRow.verdict,
    JobRow.hollow,
    JobRow.finished_at,
)
"""The columns of the jobs that `per_build` reads."""
SEEDS = tuple(f"n{place}" for place, _ in enumerate(WORST_FIRST))
"""The names of the columns with the seeds of each verdict."""
FLAGS = "hollow", "wrong", "false_alarm", "red", "flaky", "lost"
"""The facts of a Standing that are true or not."""


@dataclass(frozen=True)
class Standing:
    """A summary of a test's results on a build, or on several builds or variants."""

    hollow: bool
    """Some seed, or test of a selection, passes only by tolerance."""
    wrong: bool
    """Some seed fails, and rounding doesn't explain it."""
    false_alarm: bool
    """Some seed fails that rounding explains."""
    red: bool
    """Some seed fails (wrong, a false alarm, or not judged), hangs or crashes."""
    flaky: bool
    """Seeds of one build pass and fail."""
    lost: bool
    """Some seed crashed, hung or met an error."""
    verdict: str | None
    """The worst verdict of its jobs; None where none was judged."""
    job: str
    """The newest job with that verdict."""
    at: datetime
    """When the last of its jobs ended."""
    build: str
    """The build; of several the one that ran last, or ""."""

    @property
    def urgency(self) -> int:
        """Return how much it needs attention: 4 hollow, 3 red, 2 flaky, 1 lost, 0 none."""
        kinds = self.lost, self.flaky, self.red and not self.flaky, self.hollow
        return max(place * kind for place, kind in enumerate(kinds, 1))


@dataclass(frozen=True)
class BuildResult(Standing):
    """The results of a variant on one build."""

    counts: Mapping[str, int]
    """Its seeds by verdict."""


def per_build(jobs: Subquery) -> Select[Any]:
    """Return the query of the results of jobs by variant and build; `jobs` have the columns JOBS.

    `worst` is how bad the worst verdict of a job is (two digits), then the newest job with it; n0,
    n1, ... are the seeds by verdict, null for none.
    """
    # in few words: psycopg reads a statement of more than 4 kB anew each time
    job, block = jobs.c, aliased(JobBlockRow, name="b")
    ranks: Mapping[Any, Any] = {
        literal_column(f"'{one}'"): literal_column(f"'{99 - one.rank}'") for one in Verdict
    }
    badness = case(ranks, value=job.verdict, else_=literal_column("'00'"))
    failed, passed = (func.sum(one) > literal_column("0") for one in (block.failed, block.passed))
    place = *(job[name] for name in NAMES), job.build_sequence, job.build
    return (
        select(
            *place,
            func.max(job.finished_at).label("at"),
            func.max(badness.concat(cast(job.id, Text))).label("worst"),
            (func.max(job.hollow) > literal_column("0")).label("hollow"),
            failed.label("red"),
            and_(failed, passed).label("flaky"),
            *(
                func.sum(block.n)
                .filter(block.verdict == literal(verdict, VerdictType, literal_execute=True))
                .label(name)
                for name, verdict in zip(SEEDS, WORST_FIRST, strict=True)
            ),
        )
        .outerjoin(block, and_(block.job_id == job.id, block.output == WHOLE))
        .group_by(*place)
    )


def result(row: Sequence[Any]) -> tuple[Variant, BuildResult]:
    """Return the variant and the result of a row of `per_build`."""
    _, build, at, worst, hollow, red, flaky, *numbers = row[len(NAMES) :]
    seeds = zip(WORST_FIRST, numbers, strict=True)
    counts = {str(verdict): int(number) for verdict, number in seeds if number}
    badness = int(worst[:2])
    return Variant(*row[: len(NAMES)]), BuildResult(
        hollow=bool(hollow),
        wrong=Verdict.fail in counts,
        false_alarm=Verdict.fail_by_tolerance in counts,
        red=bool(red) or not counts.keys().isdisjoint(RED),
        flaky=bool(flaky),
        lost=not counts.keys().isdisjoint(LOST),
        verdict=WORST_FIRST[99 - badness] if badness else None,
        job=str(UUID(worst[2:])),
        at=at,
        build=build,
        counts=counts,
    )


def results(
    session: Session,
    variants: Collection[Variant],
    builds: int,
    *,
    since: datetime | None = None,
    before: datetime | None = None,
) -> dict[Variant, tuple[BuildResult, ...]]:
    """Return the last `builds` builds of each variant in their order, the newest last.

    since, before: only jobs that were submitted in this time count.
    """
    by_variant: dict[Variant, list[tuple[tuple[int, str], BuildResult]]] = {}
    for batch in batched(sorted(variants), _MAX_VARIANTS):
        values = {
            "since": NO_START if since is None else floor(since),
            "before": _NO_END if before is None else floor(before),
            "jobs": min(_NEWEST_JOBS, builds + 12),
        }
        places = [astuple(variant) for variant in batch]
        for _, *row, newest in of_each(session, _last_builds, COLUMNS, places, values):
            variant, one = result(row)
            sequence = row[len(NAMES)]
            # The emulator's builds have one sequence number; there the newest job decides.
            by_variant.setdefault(variant, []).append(((sequence, newest), one))
    return {
        variant: tuple(one for _, one in sorted(some, key=itemgetter(0))[-builds:])
        for variant, some in by_variant.items()
    }


def _last_builds(given: Given) -> Select[*tuple[Any, ...]]:
    """Return the query of the results of a variant's last builds, each with its newest job.

    They are the builds of its newest jobs, and each counts with all of its jobs.
    """
    table = JobRow
    of_variant = (
        *(getattr(table, name) == given(name) for name in NAMES),
        ENDED,
        table.id >= bindparam("since", type_=IdType),
        table.id < bindparam("before", type_=IdType),
    )
    newest = (
        select(table.build_sequence, table.build, table.id)
        .where(*of_variant)
        .order_by(table.build_sequence.desc(), table.id.desc())
        .limit(bindparam("jobs", type_=Integer))
        .subquery()
        .c
    )
    place = newest.build_sequence, newest.build
    last = func.max(cast(newest.id, Text)).label("newest")
    builds = select(*place, last).group_by(*place).subquery()
    same = table.build_sequence == builds.c.build_sequence, table.build == builds.c.build
    jobs = select(*JOBS, builds.c.newest).join(builds, and_(*same)).where(*of_variant).subquery()
    return per_build(jobs).add_columns(func.max(jobs.c.newest).label("newest"))


@dataclass(frozen=True)
class FailureRate:
    """The failed seeds among those that passed or failed; hangs, crashes and errors don't count."""

    failed: int = 0
    runs: int = 0


def failure_rates(
    session: Session, test_keys: Collection[str], now: datetime
) -> dict[Variant, tuple[FailureRate, FailureRate]]:
    """Return the failure rates of the last WEEK and MONTH days of each variant of these tests.

    A day is a UTC day, and today is one of them.
    """
    table = DailyRow
    today = now.astimezone(UTC).date()
    lately = table.day > today - timedelta(days=WEEK)

    def seeds(number: Any) -> list[Any]:
        return [
            func.coalesce(func.sum(case((lately, number), else_=0)), 0),
            func.coalesce(func.sum(number), 0),
        ]

    variant = table.test_key, table.branch, table.arch, table.board
    query = (
        select(*variant, *seeds(table.failed), *seeds(table.passed))
        .where(
            table.test_key.in_(list(test_keys)),
            table.output == WHOLE,
            table.day > today - timedelta(days=MONTH),
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
