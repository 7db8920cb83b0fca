"""Seeds by day and verdict over all tests, from the roll-ups. Days that are over are summed up once
and remembered.
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
"""A day that is over changes only when roll-ups are made anew or caught up with; that is noticed
after so long."""
GRACE = timedelta(hours=1)
"""So long after midnight yesterday's last transactions may still commit: until then it is read each
time."""


@dataclass
class Memory:
    """The days that are over, as one process has summed them up. A new one reads all of them
    once.
    """

    counted_at: datetime | None = None
    days: dict[date, Counter[str]] = field(default_factory=dict)


def read(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, Mapping[str, int]]]:
    """The last `days` UTC days in order, today last, each with its seeds by verdict. Brings
    `memory` up to date.
    """
    today = now.astimezone(UTC).date()
    wanted = [today - timedelta(days=back) for back in reversed(range(days))]
    if memory.counted_at is None or not timedelta(0) <= now - memory.counted_at < RECOUNT:
        memory.days, memory.counted_at = {}, now
    remembered = memory.days  # another thread may put a fresh one in its place
    settled = (now - GRACE).astimezone(UTC).date()  # the first day that may still change
    first = next((day for day in wanted if day not in remembered), today)
    found = _counted(session, first)
    remembered.update({day: found.get(day, Counter()) for day in wanted if first <= day < settled})
    return [(day, found[day] if day in found else remembered.get(day, Counter())) for day in wanted]


def _counted(session: Session, since: date) -> dict[date, Counter[str]]:
    table = DayRollupRow
    # postgresql: json_each_text(json), sqlite: json_each(text); both give the columns key and value
    each = (func.json_each_text if is_postgres(session) else func.json_each)(
        table.counts
    ).table_valued("key", "value")
    query = (
        select(table.day, each.c.key, func.sum(cast(each.c.value, Integer)))
        .select_from(table)
        .join(each, true())
    )
    query = query.where(
        table.day >= since, table.output == WHOLE, table.shadow.is_(False)
    ).group_by(table.day, each.c.key)
    found: dict[date, Counter[str]] = {}
    for day, verdict, seeds in session.execute(query):
        found.setdefault(day, Counter())[str(verdict)] = int(seeds)
    return found
