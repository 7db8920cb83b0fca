"""The results of variants on their last builds, and how often their seeds failed lately.

All reads are bounded. The API process imports this module, so it must not import NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    Integer,
    Select,
    bindparam,
    case,
    func,
    select,
)
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.bisections.model import ProbeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, DailyRow
from gonogo_service.tests.variants import COLUMNS, ENDED, NAMES, Variant

_NEWEST_JOBS = 48
"""The newest jobs of a variant that are read: its last builds, some of which ran twice."""
_MAX_VARIANTS = 50
NO_START, _NO_END = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
WEEK, MONTH = 7, 30
"""Days of the two rates."""
_PROBE = select(ProbeRow.job_id).where(ProbeRow.job_id == JobRow.id).correlate(JobRow).exists()
STANDING = ENDED & ~_PROBE
"""The jobs whose results say how a test stands: a bisection runs old builds again."""


class BuildResult(NamedTuple):
    """A build of a variant: its seeds by verdict over the variant's newest jobs."""

    build: str
    counts: Mapping[str, int]
    at: datetime
    job: str
    """The job whose verdict it is; the newest one where none was judged."""
    verdict: str | None
    """The worst verdict of its jobs that were judged; None where none was."""
    hollow: int
    """Hollow seeds, or tests of a selection, of all its jobs."""


@dataclass(frozen=True)
class FailureRate:
    """The failed seeds among those that passed or failed; hangs, crashes and errors don't count."""

    failed: int = 0
    runs: int = 0


def results(
    session: Session,
    variants: Collection[Variant],
    builds: int,
    *,
    since: datetime | None = None,
    before: datetime | None = None,
) -> dict[Variant, tuple[BuildResult, ...]]:
    """Return the last `builds` builds of each variant in their order, the newest last.

    since, before: only jobs that were submitted in this time count. The runs of a bisection are
    left out: it runs old builds again.
    """
    by_variant: dict[Variant, tuple[BuildResult, ...]] = {}
    for batch in batched(sorted(variants), _MAX_VARIANTS):
        values = {
            "since": NO_START if since is None else floor(since),
            "before": _NO_END if before is None else floor(before),
            "jobs": min(_NEWEST_JOBS, builds + 12),
        }
        rows = of_each(
            session, _newest_jobs, COLUMNS, [astuple(variant) for variant in batch], values
        )
        builds_by_place: dict[int, dict[tuple[int, str], list[BuildResult]]] = {}
        for place, sequence, *columns in rows:
            job = BuildResult(*columns)
            of_variant = builds_by_place.setdefault(place, {})
            of_variant.setdefault((sequence, job.build), []).append(job)
        for place, of_variant in builds_by_place.items():
            # The emulator's builds have one sequence number; there the newest job decides.
            order = sorted(of_variant.items(), key=lambda item: (item[0][0], item[1][0].at))
            by_variant[batch[place]] = tuple(_merged(jobs) for _, jobs in order[-builds:])
    return by_variant


def _merged(jobs: Sequence[BuildResult]) -> BuildResult:
    """Return the result of a build from those of its jobs, which come newest first."""
    newest, *older = jobs
    if not older:
        return newest
    judged = ((Verdict(job.verdict).rank, job) for job in jobs if job.verdict is not None)
    _, worst = min(judged, key=itemgetter(0), default=(0, newest))
    counts = Counter[str]()
    for job in jobs:
        counts.update(job.counts)
    hollow = sum(job.hollow for job in jobs)
    return BuildResult(newest.build, counts, newest.at, worst.job, worst.verdict, hollow)


def _newest_jobs(given: Given) -> Select[*tuple[Any, ...]]:
    """Return the query of a variant's newest jobs."""
    table = JobRow
    columns = (
        table.build_sequence,
        table.build,
        table.counts,
        table.created_at,
        table.id,
        table.verdict,
        table.hollow,
    )
    return (
        select(*columns)
        .where(
            *(getattr(table, name) == given(name) for name in NAMES),
            STANDING,
            table.id >= bindparam("since", type_=IdType),
            table.id < bindparam("before", type_=IdType),
        )
        .order_by(table.id.desc())
        .limit(bindparam("jobs", type_=Integer))
    )


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
