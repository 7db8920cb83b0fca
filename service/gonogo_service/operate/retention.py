"""Retention: remove old artifacts and results per seed of jobs that nothing needs any more.

Each tier has its age. A job, its verdict, its counts and its sums (results/model.py) always stay.
Rows are deleted in blocks, each in a transaction of its own, so that nobody waits for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from gonogo_service.bisections.model import BisectionRow, ProbeRow
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs import closing
from gonogo_service.jobs.model import ArtifactRow, AttemptRow, EventRow, JobLabelRow, JobRow
from gonogo_service.kit import audit
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.ids import floor, is_id
from gonogo_service.kit.database.states import (
    FINAL_JOB,
    LISTED_KINDS,
    BisectionState,
    JobKind,
    JobState,
    RunState,
)
from gonogo_service.results.model import ResultRow, SourceRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.model import AssessmentRow

MAX_JOBS = 10_000
"""Jobs of a tier that one pass handles; the next one continues."""
BLOCK = 5_000
"""Seeds whose rows are deleted in one transaction."""
ROW_BYTES = 700
"""About what a row takes (benchmarks/ingest.py)."""
KEEP_LABEL = "keep"
"""A job with this label loses nothing."""
_ARRIVALS = ("progress", "verdict")
"""The events that go with the rows; those of the job's states stay."""


class Tier(StrEnum):
    """A kind of data with an age of its own; the values are in the names of settings, too."""

    artifacts = "artifacts"  # artifacts and logs
    seeds = "seeds"  # results per seed, and the events of their arrival


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


@dataclass(frozen=True)
class Amount:
    """Something that is removed; `bytes` is about right."""

    jobs: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.jobs + other.jobs, self.rows + other.rows, self.bytes + other.bytes)


@dataclass
class Removed:
    """The result of a pass, or of its estimate."""

    tiers: dict[Tier, Amount] = field(default_factory=lambda: {tier: Amount() for tier in Tier})
    complete: bool = True
    """Whether nothing is left to remove."""

    def __bool__(self) -> bool:
        return any(amount.jobs for amount in self.tiers.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: the tiers by name."""
        return {tier.value: asdict(amount) for tier, amount in self.tiers.items()}


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
                removed.tiers[tier] += _measure(current, tier, job_id)
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
    with reading(engine) as current:
        left_over = list(current.scalars(_left_over()))
    for job_id in left_over:  # of a pass that was killed
        _delete_rows(engine, job_id, keep_going)
    for tier in Tier:
        with reading(engine) as current:
            jobs = list(islice(_candidates(current, tier, policy, now), MAX_JOBS))
        removed.complete = removed.complete and len(jobs) < MAX_JOBS
        for job_id in jobs:
            if not keep_going():
                removed.complete = False
                break
            with session(engine) as current:
                removed.tiers[tier] += _forget(current, tier, job_id, now=now)
            if tier is Tier.seeds:
                _delete_rows(engine, job_id, keep_going)
    if removed:
        days = {tier.value: days for tier, days in policy.days.items()}
        with session(engine) as current:
            audit.record(
                current,
                actor=actor,
                action="retention.removed",
                subject="jobs",
                detail={**removed.to_json(), "days": days},
            )
    return removed


def _measure(current: Session, tier: Tier, job_id: str) -> Amount:
    if tier is Tier.seeds:
        query = select(func.count()).where(ResultRow.job_id == job_id)
        rows = current.scalar(query) or 0
        return Amount(1, rows, ROW_BYTES * rows)
    amount = Amount(1)
    logs = func.length(AttemptRow.log_tail)
    for counted in (
        select(func.count(logs), func.sum(logs)).where(AttemptRow.job_id == job_id),
        select(func.count(), func.sum(ArtifactRow.size)).where(ArtifactRow.job_id == job_id),
    ):
        rows, content = current.execute(counted).one()
        amount += Amount(0, rows, int(content or 0))
    return amount


def _forget(current: Session, tier: Tier, job_id: str, *, now: datetime) -> Amount:
    """Note in a job that a tier is gone, and remove it; rows of seeds are deleted after that."""
    job = closing.lock(current, job_id)
    name = f"{tier}_removed_at"
    if job is None or not JobState(job.state).final or getattr(job, name) is not None:
        return Amount()
    amount = _measure(current, tier, job_id)
    if tier is Tier.seeds:
        current.execute(delete(SourceRow).where(SourceRow.job_id == job_id))
        arrivals = EventRow.job_id == job_id, EventRow.type.in_(_ARRIVALS)
        current.execute(delete(EventRow).where(*arrivals))
    else:
        current.execute(delete(ArtifactRow).where(ArtifactRow.job_id == job_id))
        logs = update(AttemptRow).where(AttemptRow.job_id == job_id).values(log_tail=None)
        current.execute(logs.execution_options(synchronize_session=False))
    setattr(job, name, now)
    job.version += 1
    return amount


def _delete_rows(engine: Engine, job_id: str, keep_going: Callable[[], bool]) -> None:
    """Delete the rows of a job that nobody reads any more, in blocks, the last seeds first."""
    table = ResultRow
    with reading(engine) as current:
        left = current.scalar(select(func.max(table.arrival)).where(table.job_id == job_id)) or 0
    while left > 0 and keep_going():
        left -= BLOCK
        with session(engine) as current:
            current.execute(delete(table).where(table.job_id == job_id, table.arrival > left))


def _left_over() -> Any:
    rows = exists().where(ResultRow.job_id == JobRow.id)
    return select(JobRow.id).where(JobRow.seeds_removed_at.is_not(None), rows)


def _candidates(current: Session, tier: Tier, policy: Policy, now: datetime) -> Iterator[str]:
    """Yield the jobs whose tier is too old and not needed, oldest first."""
    before = policy.before(tier, now)
    if before is None:
        return
    table = JobRow
    removed_at: InstrumentedAttribute[datetime | None] = getattr(table, f"{tier}_removed_at")
    conditions: list[ColumnElement[bool]] = [
        removed_at.is_(None),
        table.state.in_(FINAL_JOB),
        table.finished_at < before,
        table.id < floor(before),
        _has_newer(),
        ~exists().where(JobLabelRow.job_id == table.id, JobLabelRow.name == KEEP_LABEL),
    ]
    if tier is Tier.seeds:
        conditions += [table.kind.in_(LISTED_KINDS), table.done > 0]
    needed = needed_jobs(current)
    query = select(table.id, table.build).where(*conditions).order_by(table.id)
    for job_id, build in current.execute(query):
        is_pinned = any(fnmatchcase(build, pattern) for pattern in policy.builds)
        if job_id not in needed and not is_pinned:
            yield job_id


def _has_newer() -> ColumnElement[bool]:
    """Return whether a job is neither the newest of its variant, nor the one that grades it.

    These two stay: pages, comparisons and waivers read them, however old they are. Runs of a
    bisection are none of them.
    """
    job, newer = JobRow, aliased(JobRow)
    is_probe, of_newer = (
        exists().where(ProbeRow.job_id == one.id).correlate(job, newer) for one in (job, newer)
    )
    same = [
        getattr(newer, name) == getattr(job, name)
        for name in ("test_key", "branch", "arch", "board", "kind")
    ]
    same += [
        newer.reference.is_(None),
        ~of_newer,
        newer.state.in_((JobState.finished, JobState.cancelled)),
        or_(newer.done > 0, newer.kind == JobKind.gauge),
    ]
    by_build = tuple_(newer.build_sequence, newer.id) > tuple_(job.build_sequence, job.id)
    has_both = and_(exists().where(*same, newer.id > job.id), exists().where(*same, by_build))
    return or_(job.reference.is_not(None), is_probe, has_both)


def needed_jobs(session: Session) -> frozenset[str]:
    """Return the jobs that are evidence of an open flag, or part of an open run or bisection.

    The jobs that the grades of tests were computed from are among them, too.
    """
    needed: set[str] = set()
    flags = select(FlagRow.first_job, FlagRow.last_job, FlagRow.quiet_after, FlagRow.evidence)
    for *jobs, evidence in session.execute(flags.where(FlagRow.state != FlagState.resolved)):
        needed.update(job for job in jobs if job is not None)
        needed.update(ids_in(evidence))
    probes = select(ProbeRow.job_id).join(BisectionRow, BisectionRow.id == ProbeRow.bisection_id)
    needed.update(session.scalars(probes.where(BisectionRow.state == BisectionState.running)))
    members = select(RunJobRow.job_id).join(RunRow, RunRow.id == RunJobRow.run_id)
    needed.update(
        session.scalars(members.where(RunRow.state.in_([s for s in RunState if not s.final])))
    )
    needed.update(session.scalars(select(AssessmentRow.job_id)))
    return frozenset(needed)


def ids_in(value: Any) -> Iterator[str]:
    """Yield every text within a JSON value that is an id."""
    if isinstance(value, str):
        if is_id(value):
            yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from ids_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from ids_in(member)
