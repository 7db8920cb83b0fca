"""Roll-ups: a test's sums per day, build, device and context, written by ingest and read by pages.

The invariant: the roll-ups contain a job's rows of arrival 1 to `rolled.upto`, each exactly once.
Code that changes roll-ups or `upto` locks the test (after the job, if it needs both). So two
ingests of different jobs of a test wait for each other, and no row is lost. Jobs that compare two
builds only have sums per job, because their verdicts aren't about float64.

The day is that of the transaction that stored the row, in UTC, by the clock of that process. The
job's `progress` event of the transaction records it, so that a rebuild gets the same day. If a
clock goes back, rows count into an earlier day, but none is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.ids import is_id
from gonogo_service.results.rollups.tallies import WHOLE, Tally, total
from gonogo_service.results.rows import DayRollupRow, JobTallyRow, RolledRow
from gonogo_service.results.seed_rows.batch import Batch
from gonogo_service.tests.variants import context_name

AXES = (
    "executor",
    "build",
    "branch",
    "build_sequence",
    "arch",
    "board",
    "context",
    "device",
    "day",
)
_OF_JOB = ("test_key", "executor", "build", "branch", "build_sequence", "arch", "board")
ON_JOB = ("id", *_OF_JOB, "context", "reference")
"""The columns of a job that `merge` reads."""
_KEY = ("test_key", *AXES, "output")
_ROOM = 0x676F6E72  # "gonr": the room of the locks


def of_builds(session: Session, test_key: str) -> dict[tuple[str, str, int], Tally]:
    """Return a test's counts of whole seeds by (build, branch, build_sequence); no sketches."""
    table = DayRollupRow
    builds = (table.build, table.branch, table.build_sequence)
    query = select(*builds, *Tally.of(table, sketches=False)).where(
        table.test_key == test_key, table.shadow.is_(False), table.output == WHOLE
    )
    tallies: dict[tuple[str, str, int], list[Tally]] = {}
    # Columns, not entities, so that later commits of other processes are seen.
    for row in session.execute(query):
        place = (row.build, row.branch, row.build_sequence)
        tallies.setdefault(place, []).append(Tally.stored(row))
    return {place: total(parts) for place, parts in tallies.items()}


def add(session: Session, job: JobRow, batch: Batch, *, first: int, now: datetime) -> None:
    """Count seeds that this transaction stored, from arrival `first`.

    The caller holds the job's lock. If earlier rows of the job aren't counted yet, these aren't
    either: rebuild.catch_up counts them all, in order. That happens if an
    older version stored rows, or during a rebuild.
    """
    sums = count(batch)  # before the lock, so that others don't wait for arithmetic
    lock(session, job.test_key)
    if upto(session, job.id) == first - 1:
        merge(session, job, {now.astimezone(UTC).date(): sums})
        advance(session, job.id, first - 1 + len(batch))


def count(batch: Batch) -> dict[tuple[str, str], Tally]:
    """Return the sums by (device, output) of seeds."""
    # Imported here because it loads NumPy, which the API doesn't need.
    from gonogo_service.results.rollups import counting

    return counting.tallies(batch)


def lock(session: Session, test_key: str) -> None:
    """Lock a test's roll-ups until the transaction ends.

    Lock the job first if both are needed, and only one test per transaction.
    """
    dialect.lock(session, _ROOM, test_key)


def upto(session: Session, job_id: str, *, shadow: bool = False) -> int:
    """Return the last counted arrival of a job; 0 if none is counted."""
    arrival = session.scalar(
        select(RolledRow.upto).where(RolledRow.job_id == job_id, RolledRow.shadow.is_(shadow))
    )
    return arrival or 0


def advance(session: Session, job_id: str, arrival: int, *, shadow: bool = False) -> None:
    """Store the last counted arrival of a job."""
    dialect.upsert(session, RolledRow, [{"job_id": job_id, "shadow": shadow, "upto": arrival}])


def key_of(axes: Mapping[str, Any]) -> str:
    """Return the id of a roll-up: 128 bits of the SHA-256 of its axes."""
    text = "\x1f".join(f"{len(value)}:{value}" for value in (str(axes[name]) for name in _KEY))
    return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))


def merge(
    session: Session,
    job: Any,
    days: Mapping[date, Mapping[tuple[str, str], Tally]],
    *,
    shadow: bool = False,
) -> None:
    """Add a job's sums by day, device and output to the stored sums of the job and its test.

    It costs a read and an upsert for each. `job` is its row, or its columns in ON_JOB. The caller
    holds the test's lock.
    """
    whole: dict[str, Tally] = {}
    for parts in days.values():
        for (_, output), tally in parts.items():
            whole[output] = whole[output] + tally if output in whole else tally
    table = JobTallyRow
    query = select(table.output, *Tally.of(table)).where(
        table.job_id == job.id, table.shadow.is_(shadow), table.output.in_(list(whole))
    )
    stored = {row.output: Tally.stored(row) for row in session.execute(query)}
    rows = [
        {
            "job_id": job.id,
            "output": output,
            "shadow": shadow,
            **(stored[output] + tally if output in stored else tally).columns(),
        }
        for output, tally in whole.items()
    ]
    dialect.upsert(session, JobTallyRow, rows)
    if job.reference is None:
        _merge_days(session, job, days, shadow)


def by_key(
    job: Any, days: Mapping[date, Mapping[tuple[str, str], Tally]]
) -> dict[str, tuple[dict[str, Any], Tally]]:
    """Return a job's sums by the id of the roll-up that they belong to, with its axes."""
    places = {name: getattr(job, name) for name in _OF_JOB} | {"context": context_name(job.context)}
    sums: dict[str, tuple[dict[str, Any], Tally]] = {}
    for day, parts in days.items():
        for (device, output), tally in parts.items():
            axes = {**places, "device": device, "day": day, "output": output}
            sums[key_of(axes)] = axes, tally
    return sums


def _merge_days(
    session: Session, job: Any, days: Mapping[date, Mapping[tuple[str, str], Tally]], shadow: bool
) -> None:
    sums = by_key(job, days)
    table = DayRollupRow
    query = select(table.key, *Tally.of(table)).where(
        table.key.in_(list(sums)), table.shadow.is_(shadow)
    )
    stored = {row.key: Tally.stored(row) for row in session.execute(query)}
    rows = [
        {
            "key": key,
            "shadow": shadow,
            **axes,
            **(stored[key] + tally if key in stored else tally).columns(),
        }
        for key, (axes, tally) in sums.items()
    ]
    dialect.upsert(session, DayRollupRow, rows)


def of_job(session: Session, job_id: str) -> dict[str, Tally] | None:
    """Return a job's sums by output ('' for whole seeds).

    It is None while some rows of the job aren't counted, or if there is no such job.
    """
    done = session.scalar(select(JobRow.done).where(JobRow.id == job_id)) if is_id(job_id) else None
    if done is None or upto(session, job_id) < done:
        return None
    table = JobTallyRow
    query = (
        select(table.output, *Tally.of(table))
        .where(table.job_id == job_id, table.shadow.is_(False))
        .order_by(table.output)
    )
    return {row.output: Tally.stored(row) for row in session.execute(query)}
