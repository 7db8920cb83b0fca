"""Monthly partitions of `seed_results` on PostgreSQL, made ahead of time; SQLite has one table and
needs none of this.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, text

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import is_postgres
from gonogo_storage.db.ids import floor

MONTHS_AHEAD = 3


def ensure(
    connection: Connection, *, now: datetime | None = None, months: int = MONTHS_AHEAD
) -> list[str]:
    """Create the partitions of this month and the next ones that are missing; their names.

    A month whose rows are already in the default partition is left there: they stay readable, only
    less tidy.
    """
    if not is_postgres(connection):
        return []
    moment = (now or utcnow()).astimezone(UTC)
    made = []
    for ahead in range(months + 1):
        low, high = _month(moment, ahead), _month(moment, ahead + 1)
        name = f"seed_results_{low:%Y_%m}"
        if connection.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is not None:
            continue
        bounds = {"low": floor(low), "high": floor(high)}
        taken = text(
            "SELECT EXISTS (SELECT 1 FROM seed_results_default WHERE job_id >= CAST(:low AS uuid) AND job_id < CAST(:high AS uuid))"
        )
        if connection.scalar(taken, bounds):
            continue
        # DDL takes no parameters; both bounds and the name are made of digits here
        connection.execute(
            text(
                f"CREATE TABLE {name} PARTITION OF seed_results FOR VALUES FROM ('{bounds['low']}') TO ('{bounds['high']}')"
            )
        )
        made.append(name)
    return made


def _month(moment: datetime, ahead: int) -> datetime:
    """The first instant of the month that is so many months after the moment's."""
    count = moment.year * 12 + moment.month - 1 + ahead
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
