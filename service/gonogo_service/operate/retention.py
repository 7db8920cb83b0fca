"""Retention: remove old artifacts, seed rows and roll-ups of jobs that nothing needs any more.

Each tier has its age. A job, its verdict and its counts always stay. Seed rows leave their sums
behind (results/rollups/archive.py), so roll-ups stay equal to a rebuild. One job is one
transaction. On PostgreSQL a month whose jobs have all lost their rows is dropped as a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Engine, Select, and_, exists, or_, select, tuple_
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit import audit
from gonogo_service.kit.database import dialect, partitions
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import LISTED_KINDS, JobKind, JobState
from gonogo_service.operate import needed_jobs, tiers
from gonogo_service.operate.tiers import Amount
from gonogo_service.results.rollups import rebuild
from gonogo_service.results.rows import SeedResultRow

MAX_JOBS = 10_000
"""Jobs of a tier that one pass handles; the next one continues."""
KEEP_LABEL = "keep"
"""A job with this label loses nothing."""
_ENDED = tuple(state for state in JobState if state.final)


class Tier(StrEnum):
    """A kind of data with an age of its own; the values are in the names of settings, too."""

    artifacts = "artifacts"  # artifacts and logs
    seeds = "seeds"  # results per seed, and the events of their arrival
    rollups = "rollups"  # the statistics that seed rows have left behind


@dataclass(frozen=True)
class Policy:
    """The days that each tier stays after a job's end; 0: for ever."""

    days: dict[Tier, int]
    builds: tuple[str, ...] = ()
    """Patterns of builds whose jobs lose nothing."""

    def before(self, tier: Tier, now: datetime) -> datetime | None:
        """Return the time before which a job must have ended; None: the tier stays for ever."""
        days = self.days.get(tier, 0)
        return now - timedelta(days=days) if days else None


@dataclass
class Removed:
    """The result of a pass, or of its estimate."""

    tiers: dict[Tier, Amount] = field(default_factory=lambda: {tier: Amount() for tier in Tier})
    partitions: list[str] = field(default_factory=list)
    """The partitions that were dropped."""
    complete: bool = True
    """Whether nothing is left to remove."""

    def __bool__(self) -> bool:
        return bool(self.partitions) or any(amount.jobs for amount in self.tiers.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, the tiers by name beside the partitions."""
        amounts = {tier.value: asdict(amount) for tier, amount in self.tiers.items()}
        return {**amounts, "partitions": self.partitions}


def current_time(engine: Engine) -> datetime:
    """Return the time by which ages are judged: the earlier of this machine's and the database's.

    One clock that is years ahead must not remove everything.
    """
    with reading(engine) as current:
        of_database = datetime.fromtimestamp(dialect.database_time(current), UTC)
    return min(utcnow(), of_database)


def estimate(engine: Engine, policy: Policy, *, now: datetime) -> Removed:
    """Return what `prune` would remove."""
    removed = Removed()
    for tier in Tier:
        with reading(engine) as current:
            for job_id in _candidates(current, tier, policy, now):
                removed.tiers[tier] += tiers.MEASURES[tier](current, job_id)
    return removed


def prune(
    engine: Engine,
    policy: Policy,
    *,
    now: datetime,
    actor: str,
    keep_going: Callable[[], bool] = lambda: True,
) -> Removed:
    """Remove what is older than the policy allows, and record it in the audit.

    Safe beside everything else, and beside itself. `keep_going` returning false ends it early.
    """
    removed = Removed()
    for tier in Tier:
        with reading(engine) as current:
            jobs = list(islice(_candidates(current, tier, policy, now), MAX_JOBS))
        removed.complete = removed.complete and len(jobs) < MAX_JOBS
        before = policy.before(tier, now)
        months = _months(engine, before) if tier is Tier.seeds and before else []
        for job_id in jobs:
            if not keep_going():
                removed.complete = False
                break
            removed.tiers[tier] += _remove(engine, tier, job_id, months, now=now)
        if months and removed.complete:
            removed.partitions = _drop(engine, months, keep_going)
    rebuild.run_requested(engine, keep_going=keep_going)
    if removed:
        with session(engine) as current:
            audit.record(
                current,
                actor=actor,
                action="retention.removed",
                subject="jobs",
                detail={
                    **removed.to_json(),
                    "days": {tier.value: days for tier, days in policy.days.items()},
                },
            )
    return removed


def _remove(
    engine: Engine, tier: Tier, job_id: str, months: list[partitions.Month], *, now: datetime
) -> Amount:
    if tier is Tier.seeds:
        rebuild.catch_up_job(engine, job_id)
        in_month = any(month.low <= job_id < month.high for month in months)
        remove = tiers.forget_seeds if in_month else tiers.remove_seeds
    else:
        remove = tiers.remove_artifacts if tier is Tier.artifacts else tiers.remove_rollups
    with session(engine) as current:
        return remove(current, job_id, now=now)


def _candidates(current: Session, tier: Tier, policy: Policy, now: datetime) -> Iterator[str]:
    """Yield the jobs whose tier is too old and not needed, oldest first."""
    before = policy.before(tier, now)
    if before is None:
        return
    table = JobRow
    removed_at: InstrumentedAttribute[datetime | None] = getattr(table, f"{tier}_removed_at")
    conditions: list[ColumnElement[bool]] = [
        removed_at.is_(None),
        table.state.in_(_ENDED),
        table.finished_at < before,
        table.id < floor(before),
        _has_newer(),
        ~exists().where(JobLabelRow.job_id == table.id, JobLabelRow.name == KEEP_LABEL),
    ]
    if tier is Tier.seeds:
        conditions += [table.kind.in_(LISTED_KINDS), table.done > 0]
    if tier is Tier.rollups:
        conditions.append(table.seeds_removed_at.is_not(None))
    needed = needed_jobs.of(current)
    query = select(table.id, table.build).where(*conditions).order_by(table.id)
    for job_id, build in current.execute(query):
        is_pinned = any(fnmatchcase(build, pattern) for pattern in policy.builds)
        if job_id not in needed and not is_pinned:
            yield job_id


def _has_newer() -> ColumnElement[bool]:
    """Return whether a job is neither the newest of its variant, nor the one that grades it.

    These two stay: pages, comparisons and waivers read them, however old they are.
    """
    job, newer = JobRow, aliased(JobRow)
    same = [
        getattr(newer, name) == getattr(job, name)
        for name in ("test_key", "branch", "arch", "board", "kind")
    ]
    same += [
        newer.reference.is_(None),
        newer.state.in_((JobState.finished, JobState.cancelled)),
        or_(newer.done > 0, newer.kind == JobKind.gauge),
    ]
    by_build = tuple_(newer.build_sequence, newer.id) > tuple_(job.build_sequence, job.id)
    has_both = and_(exists().where(*same, newer.id > job.id), exists().where(*same, by_build))
    return or_(job.reference.is_not(None), has_both)


def _with_rows(jobs: Select[str]) -> Select[str]:
    """Return those of the jobs whose seed rows are needed."""
    return jobs.where(
        JobRow.done > 0, JobRow.kind.in_(LISTED_KINDS), JobRow.seeds_removed_at.is_(None)
    )


def _months(engine: Engine, before: datetime) -> list[partitions.Month]:
    with engine.connect() as connection:
        return partitions.months_before(connection, before)


def _drop(
    engine: Engine, months: list[partitions.Month], keep_going: Callable[[], bool]
) -> list[str]:
    """Drop the months whose jobs have all lost their rows; delete rows one by one in others."""
    dropped: list[str] = []
    for month in months:
        of_month = select(JobRow.id).where(JobRow.id >= month.low, JobRow.id < month.high)
        with reading(engine) as current:
            is_needed = current.scalar(_with_rows(of_month).limit(1)) is not None
            left = of_month.where(
                JobRow.seeds_removed_at.is_not(None),
                exists().where(SeedResultRow.job_id == JobRow.id),
            )
            jobs = list(current.scalars(left)) if is_needed else []
        for job_id in jobs:
            if not keep_going():
                return dropped
            with session(engine) as current:
                tiers.delete_seed_rows(current, job_id)
        if not is_needed:
            try:
                with session(engine) as current:
                    partitions.drop(current.connection(), month)
                    if current.scalar(_with_rows(of_month).limit(1)) is not None:
                        current.rollback()  # an import brought one meanwhile
                        continue
            except OperationalError:  # in use: the next pass tries again
                continue
            dropped.append(month.name)
    return dropped
