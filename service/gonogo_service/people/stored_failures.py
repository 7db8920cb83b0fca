"""Refused tokens and failed logins, counted for all processes, with a trace in the audit.

Nobody can fill a table with them: an hour has a row per address and known token, MAX_ROWS at the
most, and the audit has an entry for a row's first failure, its tenth, its hundredth, and so on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import case, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gonogo_service.kit import audit
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.people.model import AccessFailureRow

MAX_ROWS = 200
"""Rows of an hour with an address of their own; the failures of further addresses are in one."""
OTHERS = "others"
STORED_FOR = timedelta(days=7)


def record(
    session: Session, *, kind: str, client: str, prefix: str, reason: str, now: datetime
) -> int:
    """Count a failure; return how many there were in this minute, from there and for that token.

    `kind` is "token" or "login". `prefix` is that of a token that exists or existed, else "".
    """
    table, hour = AccessFailureRow, now.replace(minute=0, second=0, microsecond=0)
    minute = now.replace(second=0, microsecond=0)
    of_hour = table.hour == hour
    of_key = (table.kind == kind, table.client == client, table.prefix == prefix)
    if session.scalar(select(table.count).where(of_hour, *of_key)) is None:
        session.execute(delete(table).where(table.hour < hour - STORED_FOR))
        if (session.scalar(select(func.count()).where(of_hour)) or 0) >= MAX_ROWS:
            client, prefix = OTHERS, ""
    insert = (postgresql.insert if is_postgres(session) else sqlite.insert)(table).values(
        hour=hour,
        kind=kind,
        client=client,
        prefix=prefix,
        count=1,
        minute=minute,
        minute_count=1,
    )
    counted = insert.on_conflict_do_update(
        index_elements=[table.hour, table.kind, table.client, table.prefix],
        set_={
            "count": table.count + 1,
            "minute": minute,
            "minute_count": case((table.minute == minute, table.minute_count + 1), else_=1),
        },
    ).returning(table.count, table.minute_count)
    count, in_minute = session.execute(counted).one()
    if str(count).strip("0") == "1":
        detail = {"client": client, "prefix": prefix, "reason": reason, "in_this_hour": count}
        action = "login.failed" if kind == "login" else "token.refused"
        audit.record(session, actor=client, action=action, subject=prefix, detail=detail)
    return int(in_minute)
