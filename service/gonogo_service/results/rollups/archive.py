"""The sums of jobs whose seed rows retention removed, kept so that a rebuild gives the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from gonogo_service.results.rollups.tallies import Tally
from gonogo_service.results.rows import ArchivedTallyRow

Days = dict[date, dict[tuple[str, str], Tally]]
"""Sums by day, then by (device, output)."""


def read(session: Session, job_id: str) -> Days:
    """Return a job's kept sums."""
    table = ArchivedTallyRow
    query = select(table.day, table.device, table.output, *Tally.of(table))
    days: Days = {}
    for row in session.execute(query.where(table.job_id == job_id)):
        days.setdefault(row.day, {})[row.device, row.output] = Tally.stored(row)
    return days


def add(into: Days, more: Days) -> None:
    """Add sums to others."""
    for day, sums in more.items():
        of_day = into.setdefault(day, {})
        for place, tally in sums.items():
            of_day[place] = of_day[place] + tally if place in of_day else tally


def write(
    session: Session, job_id: str, days: Mapping[date, Mapping[tuple[str, str], Tally]]
) -> None:
    """Store a job's sums, in the transaction that removes its rows."""
    rows = [
        {"job_id": job_id, "day": day, "device": device, "output": output, **tally.columns()}
        for day, sums in days.items()
        for (device, output), tally in sums.items()
    ]
    if rows:
        session.execute(insert(ArchivedTallyRow), rows)
