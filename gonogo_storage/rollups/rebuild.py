"""Roll-ups made of the stored rows: what isn't counted yet is caught up with, and all of a test is
made anew, beside a running ingest.

Every transaction is small: at most SLICE (seed, repeat) of one job. A rebuild counts into shadow
rows, which nobody reads, from each job's first row on; when they have caught up they take the place
of the others in one transaction. Killed, it leaves shadow rows behind that the next one drops.
Anyone may do either at any moment, several at once: `rolled.upto` says what is counted, and the
test's lock guards it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Engine, case, delete, func, or_, select, update
from sqlalchemy.orm import Session

from gonogo_storage.db.engine import reading, session
from gonogo_storage.db.ids import made_at
from gonogo_storage.rollups import rollups
from gonogo_storage.rollups.tallies import OF_OUTPUT, Tally, tallies
from gonogo_storage.tables import (
    DayRollupRow,
    EventRow,
    JobRow,
    JobTallyRow,
    RolledRow,
    SeedResultRow,
)

SLICE = 2000
"""(seed, repeat) of one transaction: some 6,000 rows, a tenth of a second."""
_UNIT = ("test_key", "executor", "build", "branch", "build_sequence", "arch", "board")
_ROW = (
    "seed", "repeat", "output", "arrival", "device", "seed_verdict", "seed_explanation", "duration_ms", "verdict", "explanation", "outcome",
    "nonfinite",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Unit:
    """What is made anew in one piece: a test on one build and one kind of board."""

    test_key: str
    executor: str
    build: str
    branch: str
    build_sequence: int
    arch: str
    board: str

    def of(self, table: type[JobRow] | type[DayRollupRow]) -> list[ColumnElement[bool]]:
        """The rows of a table that belong to it."""
        return [getattr(table, name) == getattr(self, name) for name in _UNIT]


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is; `seeds` are (seed, repeat) read so far."""

    units: int
    of: int
    seeds: int
    unit: Unit | None


def nothing(_: Progress) -> None:
    """Tell nobody."""


def behind(current: Session, *, limit: int = 1000, test_key: str | None = None) -> list[str]:
    """Jobs with rows that aren't counted, oldest first."""
    query = select(JobRow.id).outerjoin(
        RolledRow, (RolledRow.job_id == JobRow.id) & RolledRow.shadow.is_(False)
    )
    query = query.where(JobRow.done > func.coalesce(RolledRow.upto, 0))
    if test_key is not None:
        query = query.where(JobRow.test_key == test_key)
    return list(current.scalars(query.order_by(JobRow.id).limit(limit)))


def catch_up(
    engine: Engine, *, test_key: str | None = None, keep_on: Callable[[], bool] = lambda: True
) -> int:
    """Count all that isn't yet; how many (seed, repeat). Of nothing to do it costs one read."""
    seeds = 0
    while keep_on():
        with reading(engine) as current:
            jobs = behind(current, test_key=test_key)
        if not jobs:
            break
        for job_id in jobs:
            while keep_on():
                with session(engine) as current:
                    found = _slice(current, job_id, shadow=False)
                if not found:
                    break
                seeds += found
    return seeds


def rebuild(
    engine: Engine, *, test_key: str | None = None, tell: Callable[[Progress], None] = nothing
) -> Progress:
    """Make the roll-ups anew, of one test or of all; what it did. Pages read the old ones until the
    new ones of a unit are complete.
    """
    with reading(engine) as current:
        units = _units(current, test_key)
    seeds = 0
    for number, unit in enumerate(units):
        for found in _rebuild(engine, unit):
            seeds += found
            tell(Progress(number, len(units), seeds, unit))
    done = Progress(len(units), len(units), seeds, None)
    tell(done)
    return done


def _units(current: Session, test_key: str | None) -> list[Unit]:
    """Those that have jobs, and those that only have roll-ups."""
    found: set[Unit] = set()
    for table in (JobRow, DayRollupRow):
        query = select(*(getattr(table, name) for name in _UNIT)).distinct()
        if test_key is not None:
            query = query.where(table.test_key == test_key)
        found.update(Unit(*row) for row in current.execute(query))
    return sorted(found)


def _rebuild(engine: Engine, unit: Unit) -> Iterator[int]:
    """Yields the (seed, repeat) of each slice."""
    jobs = select(JobRow.id).where(*unit.of(JobRow))
    with session(engine) as current:
        rollups.lock(current, unit.test_key)
        current.execute(
            delete(DayRollupRow).where(*unit.of(DayRollupRow), DayRollupRow.shadow.is_(True))
        )
        for table in (JobTallyRow, RolledRow):
            current.execute(delete(table).where(table.job_id.in_(jobs), table.shadow.is_(True)))
    while True:
        with session(engine) as current:
            rollups.lock(current, unit.test_key)
            late = _late(current, unit)
            few = sum(late.values()) <= SLICE
            if few:  # nobody can store more of them before this commit
                last = sum(_slice(current, job_id, shadow=True) for job_id in late)
                _swap(current, unit)
        if few:
            yield last
            return
        for job_id in late:
            while True:
                with session(engine) as current:
                    found = _slice(current, job_id, shadow=True)
                if not found:
                    break
                yield found


def _late(current: Session, unit: Unit) -> dict[str, int]:
    """Jobs of the unit with rows that its shadow hasn't got, and how many (seed, repeat) that
    are.
    """
    missing = JobRow.done - func.coalesce(RolledRow.upto, 0)
    query = select(JobRow.id, missing).outerjoin(
        RolledRow, (RolledRow.job_id == JobRow.id) & RolledRow.shadow.is_(True)
    )
    found = current.execute(query.where(*unit.of(JobRow), missing > 0).order_by(JobRow.id))
    return {job_id: int(number) for job_id, number in found}


def _swap(current: Session, unit: Unit) -> None:
    """The shadow takes the place of what was there, the notes of how far the jobs are too."""
    jobs = select(JobRow.id).where(*unit.of(JobRow))
    current.execute(
        delete(DayRollupRow).where(*unit.of(DayRollupRow), DayRollupRow.shadow.is_(False))
    )
    # no need to look what the session holds: no entity of these was read
    plain = {"synchronize_session": False}
    current.execute(
        update(DayRollupRow)
        .where(*unit.of(DayRollupRow))
        .values(shadow=False)
        .execution_options(**plain)
    )
    for table in (JobTallyRow, RolledRow):
        current.execute(delete(table).where(table.job_id.in_(jobs), table.shadow.is_(False)))
        current.execute(
            update(table)
            .where(table.job_id.in_(jobs))
            .values(shadow=False)
            .execution_options(**plain)
        )


def _slice(current: Session, job_id: str, *, shadow: bool) -> int:
    """Count the next rows of a job; how many (seed, repeat), 0 when all are counted."""
    columns = [getattr(JobRow, name) for name in (*rollups.ON_JOB, "finished_at")]
    job = current.execute(select(*columns).where(JobRow.id == job_id)).one_or_none()
    if job is None:
        return 0
    rollups.lock(current, job.test_key)
    # read again, under the lock: whoever stores a row takes the lock before its commit, so what is
    # there now is all that isn't counted
    done = current.scalar(select(JobRow.done).where(JobRow.id == job_id)) or 0
    first = rollups.upto(current, job_id, shadow=shadow) + 1
    last = min(done, first + SLICE - 1)
    if last < first:
        return 0
    days: dict[date, dict[tuple[str, str], Tally]] = {}
    calendar = _calendar(current, job_id, first, last, otherwise=job.finished_at or made_at(job_id))
    for day, rows in groupby(
        _rows(current, job_id, first, last), key=lambda row: calendar(row["arrival"])
    ):
        there = days.setdefault(day, {})  # a clock that went back: the same day again, later
        for place, tally in tallies(rows).items():
            there[place] = there.get(place, Tally()) + tally
    rollups.merge(current, job, days, shadow=shadow)
    rollups.advance(current, job_id, last, shadow=shadow)
    return last - first + 1


def _calendar(
    current: Session, job_id: str, first: int, last: int, *, otherwise: datetime
) -> Callable[[int], date]:
    """Arrival -> the UTC day of the transaction that stored it: its job's first `progress` event
    that has counted so many.

    `otherwise`: of rows that no event tells of.
    """
    done = EventRow.data["done"].as_integer()
    query = select(done, EventRow.at).where(
        EventRow.job_id == job_id, EventRow.type == "progress", done >= first
    )
    # every event has counted at least one more than that before it
    rows = current.execute(query.order_by(EventRow.number).limit(last - first + 1))
    told = [(int(count), at.astimezone(UTC).date()) for count, at in rows]
    marks = [count for count, _ in told]

    def day(arrival: int) -> date:
        place = bisect_left(marks, arrival)
        return told[place][1] if place < len(told) else otherwise.astimezone(UTC).date()

    return day


def _rows(current: Session, job_id: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Result rows in order of their arrival; the large JSON column only where a number is
    missing.
    """
    table = SeedResultRow
    gap = or_(*(getattr(table, name).is_(None) for name in OF_OUTPUT))
    columns = [getattr(table, name) for name in (*_ROW, *OF_OUTPUT)]
    query = select(*columns, case((gap, table.statistics)).label("statistics"))
    query = query.where(table.job_id == job_id, table.arrival.between(first, last)).order_by(
        table.arrival, table.output
    )
    return (dict(row) for row in current.execute(query).mappings())
