"""Seeds by day and verdict over all tests, from the roll-ups.

Past days are summed once and cached.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from functools import partial

from sqlalchemy import Integer, cast, func, select, true
from sqlalchemy.orm import Session

from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.results.rollups.tallies import WHOLE
from gonogo_service.results.rows import DayRollupRow
from gonogo_service.tests import recent_days


class Memory(recent_days.Memory[Counter[str]]):
    """The cached totals of past days of one process; a new one reads all days once."""


def read(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, Counter[str]]]:
    """Return the last `days` UTC days in order, each with its seeds by verdict.

    It updates `memory`.
    """
    return recent_days.read(memory, partial(_totals, session), Counter, days=days, now=now)


def _totals(session: Session, since: date) -> dict[date, Counter[str]]:
    table = DayRollupRow
    # PostgreSQL has json_each_text(json), SQLite json_each(text); both return key and value.
    count = (func.json_each_text if is_postgres(session) else func.json_each)(
        table.counts
    ).table_valued("key", "value")
    query = (
        select(table.day, count.c.key, func.sum(cast(count.c.value, Integer)))
        .select_from(table)
        .join(count, true())
    )
    query = query.where(
        table.day >= since, table.output == WHOLE, table.shadow.is_(False)
    ).group_by(table.day, count.c.key)
    totals: dict[date, Counter[str]] = {}
    for day, verdict, seeds in session.execute(query):
        totals.setdefault(day, Counter())[str(verdict)] = int(seeds)
    return totals
