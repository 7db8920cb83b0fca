"""Count stored results into the roll-ups: catch up, or rebuild them while ingest runs.

Every transaction is small: at most SLICE (seed, repeat) of one job. A rebuild counts each job from
its first row into shadow rows, which nobody reads. Once they have caught up, they replace the
others in one transaction. A killed rebuild leaves shadow rows, which the next one deletes. Several
processes may do either at the same time: `rolled.upto` records what is counted, and the test's lock
guards it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, func, select, update
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import EventRow, JobRow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.ids import made_at, new_id
from gonogo_service.kit.outbox import outbox
from gonogo_service.results.rollups import archive, rollups
from gonogo_service.results.rollups.tallies import READ, Tally
from gonogo_service.results.rows import DayRollupRow, JobTallyRow, RolledRow, SeedResultRow
from gonogo_service.results.seed_rows import stored
from gonogo_service.results.seed_rows.batch import Batch

SLICE = 2000
"""Number of (seed, repeat) per transaction: a tenth of a second."""
MAX_REQUESTS = 1000
"""Requested rebuilds that are read at once."""
REBUILD = "rollups.rebuild"
"""Topic of the message that requests the rebuild of a unit."""
_UNIT = ("test_key", "executor", "build", "branch", "build_sequence", "arch", "board")


@dataclass(frozen=True, order=True)
class Unit:
    """The unit of a rebuild: a test on one build and one kind of board."""

    test_key: str
    executor: str
    build: str
    branch: str
    build_sequence: int
    arch: str
    board: str

    @classmethod
    def of_job(cls, job: JobRow) -> Unit:
        """Return the unit that a job counts into."""
        return cls(*(getattr(job, name) for name in _UNIT))

    def of(self, table: type[JobRow] | type[DayRollupRow]) -> list[ColumnElement[bool]]:
        """Return the conditions that select the unit's rows of a table."""
        return [getattr(table, name) == getattr(self, name) for name in _UNIT]


@dataclass(frozen=True)
class Progress:
    """The progress of a rebuild."""

    units: int
    """Number of completed units."""
    total: int
    """Number of units."""
    seeds: int
    """Number of (seed, repeat) read so far."""
    unit: Unit | None


def ignore_progress(_: Progress) -> None:
    """Report no progress."""


def behind(current: Session, *, limit: int = 1000) -> list[str]:
    """Return the jobs with rows that aren't counted yet, oldest first."""
    query = select(JobRow.id).outerjoin(
        RolledRow, (RolledRow.job_id == JobRow.id) & RolledRow.shadow.is_(False)
    )
    query = query.where(JobRow.done > func.coalesce(RolledRow.upto, 0))
    return list(current.scalars(query.order_by(JobRow.id).limit(limit)))


def catch_up(engine: Engine, *, keep_going: Callable[[], bool] = lambda: True) -> int:
    """Count all rows that aren't counted yet; return the number of (seed, repeat).

    It costs one read if there is nothing to do. `keep_going` returning false stops it early.
    """
    seeds = 0
    while keep_going():
        with reading(engine) as current:
            jobs = behind(current)
        if not jobs:
            break
        for job_id in jobs:
            seeds += catch_up_job(engine, job_id, keep_going=keep_going)
    return seeds


def catch_up_job(
    engine: Engine, job_id: str, *, keep_going: Callable[[], bool] = lambda: True
) -> int:
    """Count a job's rows that aren't counted yet; return the number of (seed, repeat)."""
    seeds = 0
    while keep_going():
        with session(engine) as current:
            counted = _slice(current, job_id, shadow=False)
        if not counted:
            break
        seeds += counted
    return seeds


def request(current: Session, unit: Unit) -> None:
    """Request a rebuild of a unit, in the transaction that removes what it had counted."""
    outbox.add(current, REBUILD, f"{REBUILD}:{new_id()}", {"unit": asdict(unit)})


def run_requested(
    engine: Engine, *, most: int | None = None, keep_going: Callable[[], bool] = lambda: True
) -> int:
    """Rebuild the units that were requested; return their number.

    most: leave units with more (seed, repeat) than this to the background.
    """
    done = 0
    with reading(engine) as current:
        messages = outbox.due(current, topics=(REBUILD,), limit=MAX_REQUESTS)
    units: dict[Unit, list[str]] = {}
    for message in messages:
        units.setdefault(Unit(**message.payload["unit"]), []).append(message.id)
    for unit, ids in units.items():
        if not keep_going():
            break
        if most is not None:
            with reading(engine) as current:
                size = current.scalar(select(func.sum(JobRow.done)).where(*unit.of(JobRow)))
            if (size or 0) > most:
                continue
        for _ in rebuild_unit(engine, unit):
            pass
        # after it: a rebuild that is killed runs again
        with session(engine) as current:
            outbox.delivered(current, ids)
        done += 1
    return done


def rebuild(
    engine: Engine,
    *,
    test_key: str | None = None,
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> Progress:
    """Rebuild the roll-ups of one test or of all; return the final progress.

    Pages read a unit's old roll-ups until its new ones are complete.
    """
    with reading(engine) as current:
        counted_units = units(current, test_key)
    seeds = 0
    for number, unit in enumerate(counted_units):
        for counted in rebuild_unit(engine, unit):
            seeds += counted
            on_progress(Progress(number, len(counted_units), seeds, unit))
    done = Progress(len(counted_units), len(counted_units), seeds, None)
    on_progress(done)
    return done


def units(current: Session, test_key: str | None = None) -> list[Unit]:
    """Return the units that have jobs, and those that only have roll-ups."""
    distinct_units: set[Unit] = set()
    for table in (JobRow, DayRollupRow):
        query = select(*(getattr(table, name) for name in _UNIT)).distinct()
        if test_key is not None:
            query = query.where(table.test_key == test_key)
        distinct_units.update(Unit(*row) for row in current.execute(query))
    return sorted(distinct_units)


def rebuild_unit(engine: Engine, unit: Unit) -> Iterator[int]:
    """Rebuild a unit; yield the number of (seed, repeat) of each slice."""
    with session(engine) as current:
        rollups.lock(current, unit.test_key)
        forget_shadows(current, unit)
    while True:
        with session(engine) as current:
            rollups.lock(current, unit.test_key)
            uncounted = _uncounted(current, unit)
            is_last = sum(uncounted.values()) <= SLICE
            if is_last:  # the lock keeps others from storing more before this commit
                counted = sum(_slice(current, job_id, shadow=True) for job_id in uncounted)
                _swap(current, unit)
        if is_last:
            yield counted
            return
        for job_id in uncounted:
            while True:
                with session(engine) as current:
                    counted = _slice(current, job_id, shadow=True)
                if not counted:
                    break
                yield counted


def forget_shadows(current: Session, unit: Unit) -> None:
    """Delete what a rebuild has counted so far; one that runs begins again by itself.

    The caller holds the test's lock.
    """
    jobs = select(JobRow.id).where(*unit.of(JobRow))
    current.execute(
        delete(DayRollupRow).where(*unit.of(DayRollupRow), DayRollupRow.shadow.is_(True))
    )
    for table in (JobTallyRow, RolledRow):
        current.execute(delete(table).where(table.job_id.in_(jobs), table.shadow.is_(True)))


def _uncounted(current: Session, unit: Unit) -> dict[str, int]:
    """Return {job: number of (seed, repeat) that the unit's shadow rows lack}."""
    missing = JobRow.done - func.coalesce(RolledRow.upto, 0)
    query = select(JobRow.id, missing).outerjoin(
        RolledRow, (RolledRow.job_id == JobRow.id) & RolledRow.shadow.is_(True)
    )
    rows = current.execute(query.where(*unit.of(JobRow), missing > 0).order_by(JobRow.id))
    return {job_id: int(number) for job_id, number in rows}


def _swap(current: Session, unit: Unit) -> None:
    """Replace a unit's roll-ups, and the progress of its jobs, by the shadow rows."""
    jobs = select(JobRow.id).where(*unit.of(JobRow))
    current.execute(
        delete(DayRollupRow).where(*unit.of(DayRollupRow), DayRollupRow.shadow.is_(False))
    )
    # The session has read no entities of these tables, so nothing needs synchronizing.
    options = {"synchronize_session": False}
    current.execute(
        update(DayRollupRow)
        .where(*unit.of(DayRollupRow))
        .values(shadow=False)
        .execution_options(**options)
    )
    for table in (JobTallyRow, RolledRow):
        current.execute(delete(table).where(table.job_id.in_(jobs), table.shadow.is_(False)))
        current.execute(
            update(table)
            .where(table.job_id.in_(jobs))
            .values(shadow=False)
            .execution_options(**options)
        )


def _slice(current: Session, job_id: str, *, shadow: bool) -> int:
    """Count the next rows of a job; return the number of (seed, repeat), 0 if all are counted."""
    test_key = current.scalar(select(JobRow.test_key).where(JobRow.id == job_id))
    if test_key is None:
        return 0
    rollups.lock(current, test_key)
    # Read under the lock. Writers of results lock the test before they commit, so this sees all
    # rows that aren't counted. So does retention before it removes rows.
    further = ("finished_at", "done", "seeds_removed_at")
    columns = [getattr(JobRow, name) for name in (*rollups.ON_JOB, *further)]
    job = current.execute(select(*columns).where(JobRow.id == job_id)).one_or_none()
    if job is None:
        return 0
    first = rollups.upto(current, job_id, shadow=shadow) + 1
    archived = job.seeds_removed_at is not None
    last = job.done if archived else min(job.done, first + SLICE - 1)
    if last < first:
        return 0
    days = archive.read(current, job_id) if archived else days_of(current, job, first, last)
    rollups.merge(current, job, days, shadow=shadow)
    rollups.advance(current, job_id, last, shadow=shadow)
    return int(last - first + 1)


def days_of(current: Session, job: Any, first: int, last: int) -> archive.Days:
    """Return the sums by day of a job's rows from arrival `first` to `last`.

    `job` is its row, or its columns id and finished_at.
    """
    days: archive.Days = {}
    calendar = _calendar(current, job.id, first, last, otherwise=job.finished_at or made_at(job.id))
    for day, rows in groupby(
        _rows(current, job.id, first, last), key=lambda row: calendar(row["arrival"])
    ):
        sums = days.setdefault(day, {})  # a clock that went back can return to an earlier day
        for place, tally in rollups.count(Batch.of(list(rows))).items():
            sums[place] = sums.get(place, Tally()) + tally
    return days


def _calendar(
    current: Session, job_id: str, first: int, last: int, *, otherwise: datetime
) -> Callable[[int], date]:
    """Return a function from arrival to the UTC day of the transaction that stored the row.

    That is the day of the job's first `progress` event whose count reaches the arrival. `otherwise`
    is the time of rows without such an event.
    """
    done = EventRow.data["done"].as_integer()
    query = select(done, EventRow.at).where(
        EventRow.job_id == job_id, EventRow.type == "progress", done >= first
    )
    # Each event's count is larger than the one before it.
    rows = current.execute(query.order_by(EventRow.number).limit(last - first + 1))
    counted_days: list[tuple[int, date]] = [
        (int(count), at.astimezone(UTC).date()) for count, at in rows
    ]
    counts = [count for count, _ in counted_days]

    def day(arrival: int) -> date:
        index = bisect_left(counts, arrival)
        if index < len(counted_days):
            return counted_days[index][1]
        return otherwise.astimezone(UTC).date()

    return day


def _rows(current: Session, job_id: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Return seeds in the order of their arrival, with what tallies read of them."""
    table = SeedResultRow
    query = stored.query(table.job_id == job_id, table.arrival.between(first, last))
    for seed in stored.read(current, query.order_by(table.arrival), *READ):
        yield seed._asdict()
