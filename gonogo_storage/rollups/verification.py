"""Compare the roll-ups with what a rebuild would give, without writing anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.rollups import archive, rebuild, rollups
from gonogo_storage.rollups.rebuild import SLICE, Unit
from gonogo_storage.rollups.tallies import Tally
from gonogo_storage.tables import DayRollupRow, JobRow, JobTallyRow

_FURTHER = ("finished_at", "done", "seeds_removed_at", "rollups_removed_at")


def differences(session: Session, unit: Unit) -> Iterator[str]:
    """Yield what is wrong with the roll-ups of a unit and the tallies of its jobs, in words.

    Rows that aren't counted yet are no difference. The session must see one moment (`reading`).
    """
    expected: dict[str, Tally] = {}
    columns = [getattr(JobRow, name) for name in (*rollups.ON_JOB, *_FURTHER)]
    jobs = select(*columns).where(*unit.of(JobRow)).order_by(JobRow.id)
    for job in session.execute(jobs).all():
        upto = rollups.upto(session, job.id)
        days: archive.Days = {}
        if job.seeds_removed_at is not None:
            days = archive.read(session, job.id) if upto else {}
        else:
            for first in range(1, upto + 1, SLICE):
                last = min(upto, first + SLICE - 1)
                archive.add(days, rebuild.days_of(session, job, first, last))
        if not _same(_of_job(days), _tallies(session, job.id)):
            yield f"the statistics of job {job.id} are not those of its rows"
        if job.reference is None:
            for key, (_, tally) in rollups.by_key(job, days).items():
                expected[key] = expected[key] + tally if key in expected else tally
    table = DayRollupRow
    query = select(table.key, *Tally.of(table)).where(*unit.of(table), table.shadow.is_(False))
    if not _same(expected, {row.key: Tally.stored(row) for row in session.execute(query)}):
        yield (f"the sums by day of test {unit.test_key} on {unit.build} are not those of its rows")


def _of_job(days: archive.Days) -> dict[str, Tally]:
    whole: dict[str, Tally] = {}
    for parts in days.values():
        for (_, output), tally in parts.items():
            whole[output] = whole[output] + tally if output in whole else tally
    return whole


def _tallies(session: Session, job_id: str) -> dict[str, Tally]:
    table = JobTallyRow
    query = select(table.output, *Tally.of(table)).where(
        table.job_id == job_id, table.shadow.is_(False)
    )
    return {row.output: Tally.stored(row) for row in session.execute(query)}


def _same(left: dict[Any, Tally], right: dict[Any, Tally]) -> bool:
    return left.keys() == right.keys() and all(
        left[key].columns() == right[key].columns() for key in left
    )
