"""Seeds by day and verdict over all tests, from the roll-ups.

Past days are summed once and cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Integer, cast, func, select, true
from sqlalchemy.orm import Session

from gonogo_storage.db.engine import is_postgres
from gonogo_storage.rollups.tallies import WHOLE
from gonogo_storage.tables import DayRollupRow

RECOUNT = timedelta(hours=1)
"""Past days change only when roll-ups are rebuilt or catch up; pages show that after this time."""
GRACE = timedelta(hours=1)
"""Yesterday's last transactions may commit this long after midnight; until then it isn't cached."""


@dataclass
class Memory:
    """The cached totals of past days of one process; a new one reads all days once."""

    counted_at: datetime | None = None
    days: dict[date, Counter[str]] = field(default_factory=dict)


def read(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, Mapping[str, int]]]:
    """Return the last `days` UTC days in order, each with its seeds by verdict.

    It updates `memory`.
    """
    today = now.astimezone(UTC).date()
    window = [today - timedelta(days=back) for back in reversed(range(days))]
    if memory.counted_at is None or not timedelta(0) <= now - memory.counted_at < RECOUNT:
        memory.days, memory.counted_at = {}, now
    cached = memory.days  # another thread may replace memory.days meanwhile
    first_open = (now - GRACE).astimezone(UTC).date()  # the first day that may still change
    first = next((day for day in window if day not in cached), today)
    totals = _totals(session, first)
    cached.update({day: totals.get(day, Counter()) for day in window if first <= day < first_open})
    return [(day, totals[day] if day in totals else cached.get(day, Counter())) for day in window]


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
