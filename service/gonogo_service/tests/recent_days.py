"""The last days of a figure that is counted from the daily sums: past days once, then cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Generic, TypeVar

Figure = TypeVar("Figure")
RECOUNT = timedelta(hours=1)
"""Past days change when a job is deleted or a clock goes back; pages show it after this time."""
GRACE = timedelta(hours=1)
"""Yesterday's last transactions may commit this long after midnight; until then it isn't cached."""


@dataclass
class Memory(Generic[Figure]):
    """The cached past days of one process; a new one reads all days once."""

    counted_at: datetime | None = None
    days: dict[date, Figure] = field(default_factory=dict)


def read(
    memory: Memory[Figure],
    count: Callable[[date], Mapping[date, Figure]],
    empty: Callable[[], Figure],
    *,
    days: int,
    now: datetime,
) -> list[tuple[date, Figure]]:
    """Return the last `days` UTC days in order, today last. It updates `memory`.

    count: counts the days from one on that have anything; `empty` is the figure of the others.
    """
    today = now.astimezone(UTC).date()
    window = [today - timedelta(days=back) for back in reversed(range(days))]
    if memory.counted_at is None or not timedelta(0) <= now - memory.counted_at < RECOUNT:
        memory.days, memory.counted_at = {}, now
    cached = memory.days  # another thread may replace memory.days meanwhile
    first_open = (now - GRACE).astimezone(UTC).date()  # the first day that may still change
    first = next((day for day in window if day not in cached), today)
    counted = count(first)
    cached.update({day: counted.get(day) or empty() for day in window if first <= day < first_open})
    return [(day, counted.get(day) or cached.get(day) or empty()) for day in window]
