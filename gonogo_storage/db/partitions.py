"""Monthly partitions of `seed_results` on PostgreSQL, created ahead of time.

SQLite has one table and needs none.
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


def _month(moment: datetime, ahead: int) -> datetime:
    """Return the first instant of the month that is `ahead` months after the moment's."""
    count = moment.year * 12 + moment.month - 1 + ahead
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
