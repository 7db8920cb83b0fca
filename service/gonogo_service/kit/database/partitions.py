"""Monthly partitions of `seed_results` on PostgreSQL: created ahead of time, dropped when empty.

SQLite has one table and needs none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.kit.database.ids import floor

MONTHS_AHEAD = 3
LOCK_TIMEOUT_S = 2
"""A drop locks the whole table for a moment. It gives up where that would make others wait."""
_NAME = re.compile(r"seed_results_(\d{4})_(\d{2})")


@dataclass(frozen=True)
class Month:
    """A partition: the rows of the jobs with ids from `low` to below `high`."""

    name: str
    low: str
    high: str


def ensure(
    connection: Connection, *, now: datetime | None = None, months: int = MONTHS_AHEAD
) -> list[str]:
    """Create the missing partitions of this month and the next `months`; return their names.

    A month whose rows are already in the default partition gets none: its rows stay readable there.
    """
    if not is_postgres(connection):
        return []
    moment = (now or utcnow()).astimezone(UTC)
    created = []
    for ahead in range(months + 1):
        low, high = _month(moment, ahead), _month(moment, ahead + 1)
        name = f"seed_results_{low:%Y_%m}"
        if connection.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is not None:
            continue
        bounds = {"low": floor(low), "high": floor(high)}
        in_default = text(
            "SELECT EXISTS (SELECT 1 FROM seed_results_default"
            " WHERE job_id >= CAST(:low AS uuid) AND job_id < CAST(:high AS uuid))"
        )
        if connection.scalar(in_default, bounds):
            continue
        # DDL takes no parameters. The name and both bounds come from dates, not from users.
        connection.execute(
            text(
                f"CREATE TABLE {name} PARTITION OF seed_results"
                f" FOR VALUES FROM ('{bounds['low']}') TO ('{bounds['high']}')"
            )
        )
        created.append(name)
    return created


def months_before(connection: Connection, moment: datetime) -> list[Month]:
    """Return the partitions of months that ended before a moment; none on SQLite."""
    if not is_postgres(connection):
        return []
    names = connection.scalars(
        text(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid"
            " WHERE inhparent = to_regclass('seed_results') ORDER BY child.relname"
        )
    )
    months = []
    for name in names:
        if (match := _NAME.fullmatch(name)) is None:
            continue  # the default partition
        begin = datetime(int(match[1]), int(match[2]), 1, tzinfo=UTC)
        month = Month(name, floor(begin), floor(_month(begin, 1)))
        if month.high <= floor(moment):
            months.append(month)
    return months


def drop(connection: Connection, month: Month) -> None:
    """Drop a partition with its rows.

    Raises OperationalError where the table is in use for longer than LOCK_TIMEOUT_S.
    """
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
    connection.execute(text(f"DROP TABLE {month.name}"))  # the name is one of ours


def _month(moment: datetime, ahead: int) -> datetime:
    """Return the first instant of the month that is `ahead` months after the moment's."""
    count = moment.year * 12 + moment.month - 1 + ahead
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
