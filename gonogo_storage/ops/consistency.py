"""Checks of the stored data: what one table says is what the others hold. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from gonogo_storage.access import audit, audit_chain
from gonogo_storage.db.engine import is_postgres, reading
from gonogo_storage.db.paging import batched
from gonogo_storage.db.states import LISTED_KINDS
from gonogo_storage.jobs import artifacts
from gonogo_storage.rollups import rebuild, verification
from gonogo_storage.tables import (
    ArtifactRow,
    GaugeResultRow,
    GaugeRow,
    JobRow,
    RunJobRow,
    RunRow,
    SeedResultRow,
)

MAX_PROBLEMS = 20
"""Problems of a check that are named; it ends there."""
_AT_ONCE = 200


@dataclass(frozen=True)
class Check:
    """A check, and how what it finds is mended."""

    name: str
    sentence: str
    """The rule that the data must follow."""
    remedy: str
    problems: Callable[[Engine], Iterator[str]]


def run(engine: Engine, check: Check) -> list[str]:
    """Return the first problems that a check finds."""
    return list(islice(check.problems(engine), MAX_PROBLEMS))


def counts(engine: Engine) -> Iterator[str]:
    """Compare the counts of each job with its rows."""
    with reading(engine) as session:
        jobs = list(session.scalars(select(JobRow.id).order_by(JobRow.id)))
    for ids in batched(jobs, _AT_ONCE):
        with reading(engine) as session:  # both of one moment, while ingest goes on
            yield from _counts(session, ids)


def _counts(session: Session, ids: Sequence[str]) -> Iterator[str]:
    table = SeedResultRow
    counted = select(table.job_id, table.verdict, func.count()).where(table.job_id.in_(ids))
    by_job: dict[str, dict[str, int]] = {}
    for job, verdict, number in session.execute(counted.group_by(table.job_id, table.verdict)):
        by_job.setdefault(str(job), {})[verdict] = number
    columns = JobRow.id, JobRow.done, JobRow.counts
    query = select(*columns).where(
        JobRow.id.in_(ids), JobRow.kind.in_(LISTED_KINDS), JobRow.seeds_removed_at.is_(None)
    )
    for job, done, stored in session.execute(query):
        rows = by_job.get(job, {})
        if done != sum(rows.values()):
            yield f"job {job} counts {done} seeds, and has {sum(rows.values())}"
        elif rows != {verdict: number for verdict, number in stored.items() if number}:
            yield f"job {job} counts the verdicts {stored}, and has {rows}"


def gauges(engine: Engine) -> Iterator[str]:
    """Compare the counts of each gauge with its rows."""
    rows = select(func.count()).where(GaugeResultRow.gauge_id == GaugeRow.id).scalar_subquery()
    with reading(engine) as session:
        for gauge, done, number in session.execute(select(GaugeRow.id, GaugeRow.done, rows)):
            if done != number:
                yield f"gauge {gauge} counts {done} results, and has {number}"


def runs(engine: Engine) -> Iterator[str]:
    """Compare the number of jobs of each run with its jobs."""
    members = select(func.count()).where(RunJobRow.run_id == RunRow.id).scalar_subquery()
    with reading(engine) as session:
        for run_id, count, number in session.execute(select(RunRow.id, RunRow.job_count, members)):
            if count != number:
                yield f"run {run_id} counts {count} jobs, and has {number}"


def rollups(engine: Engine) -> Iterator[str]:
    """Compare the roll-ups with a rebuild."""
    with reading(engine) as session:
        units = rebuild.units(session)
    for unit in units:
        with reading(engine) as session:
            yield from verification.differences(session, unit)


def artifact_digests(engine: Engine) -> Iterator[str]:
    """Compare each artifact with the digest that was stored with it."""
    table = ArtifactRow
    query = select(table.job_id, table.id, table.digest, table.content)
    with reading(engine) as session:
        result = session.execute(query.execution_options(yield_per=_AT_ONCE))
        for job, artifact, digest, content in result:
            if not artifacts.is_intact(content, digest):
                yield f"artifact {artifact} of job {job} is not the one that was stored"


def audit_log(engine: Engine) -> Iterator[str]:
    """Walk along the audit's chain."""

    def entries(session: Session) -> Iterator[dict[str, object]]:
        last = 0
        while page := audit.export(session, after=last):
            yield from page
            last = page[-1]["number"]

    with reading(engine) as session:
        problem = audit_chain.verify(entries(session)).problem
    if problem is not None:
        yield problem


def storage(engine: Engine) -> Iterator[str]:
    """Ask SQLite whether its file is intact; PostgreSQL checks its pages by itself."""
    if is_postgres(engine):
        return
    with reading(engine) as session:
        trouble = session.scalar(text(f"PRAGMA integrity_check({MAX_PROBLEMS})"))
        if trouble != "ok":
            yield str(trouble).splitlines()[0]
        for table, _, parent, _ in session.execute(text("PRAGMA foreign_key_check")):
            yield f"a row of {table} names a row of {parent} that isn't there"


_RESTORE = "restore a backup into an empty database: `gonogo db restore FILE`"
CHECKS: tuple[Check, ...] = (
    Check("counts", "a job's counts are those of its rows", _RESTORE, counts),
    Check("gauges", "a gauge's count is that of its rows", _RESTORE, gauges),
    Check("runs", "a run's number of jobs is that of its jobs", _RESTORE, runs),
    Check(
        "roll-ups",
        "roll-ups are those of a rebuild",
        "run `gonogo rollups rebuild`",
        rollups,
    ),
    Check(
        "artifacts",
        "an artifact has the digest that it was stored with",
        "somebody or a disk changed it: " + _RESTORE,
        artifact_digests,
    ),
    Check(
        "audit",
        "the audit's chain is whole",
        "somebody changed it: compare it with an export that you keep elsewhere",
        audit_log,
    ),
    Check("file", "SQLite's file is intact, and so are its references", _RESTORE, storage),
)
