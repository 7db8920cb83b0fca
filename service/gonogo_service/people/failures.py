"""Refused tokens and failed logins: counted for all processes, limited, with a trace in the audit.

They are counted in the database, by the address that a trusted proxy names. What comes faster is
refused from this process's memory, so that nobody can make us write. Failures never block a valid
token: 190 random bits are guessed by nobody.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import case, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.kit.networks import network_of
from gonogo_service.kit.problems import Problem
from gonogo_service.people.model import AccessFailureRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from gonogo_service.people.auth import Refusal
    from gonogo_service.people.context import Context

MOST: Final = {"token": 30, "login": 10, "signature": 30}
"""Refused tokens, failed logins and rejected signatures of an address in a minute."""
MAX_ROWS = 200
"""Rows of an hour with an address of their own; the failures of further addresses are in one."""
OTHERS = "others"
STORED_FOR = timedelta(days=7)
_log = structlog.get_logger("gonogo.service")


class FailureLimits:
    """Counts failures: in the database for all processes, and in memory before that."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._counts = MinuteCounts()

    def rejected_signature(self, client: str) -> None:
        """Count a rejected signature in memory; raise Problem 429 when there are too many."""
        self._hit("signature", network_of(client))

    def rejected_code(self, client: str) -> None:
        """Count a rejected code of a host in memory; raise Problem 429 when there are too many."""
        self._hit("login", network_of(client))

    def refused(self, kind: str, client: str, refusal: Refusal) -> None:
        """Count a refused "token" or "login"; raise Problem 429 when there are too many."""
        network, now = network_of(client), utcnow()
        self._hit(kind, network, refusal.prefix)
        try:
            with self._context.session() as session:
                count = _record(session, kind, network, refusal, now)
        except SQLAlchemyError as problem:  # a full disk must not become a 500 for a stranger
            _log.warning("a failure can't be stored", error=str(problem).splitlines()[0])
            return
        if count > MOST[kind]:
            raise _too_many(MOST[kind], 60 - now.second)

    def _hit(self, kind: str, *key: str) -> None:
        if wait_s := self._counts.hit(MOST[kind], kind, *key):
            raise _too_many(MOST[kind], round(wait_s))


def _too_many(amount: int, wait_s: int) -> Problem:
    return Problem(
        429,
        f"Too many failures from this address (allowed: {amount} a minute).",
        slug="too-many-failures",
        headers={"Retry-After": str(max(1, wait_s))},
    )


def _record(session: Session, kind: str, client: str, refusal: Refusal, now: datetime) -> int:
    """Count a failure; return how many there were in this minute, from there and for that token.

    Nobody can fill a table: an hour has a row per address and known token, MAX_ROWS at the most,
    and the audit has an entry for a row's first failure, its tenth, its hundredth, and so on.
    """
    table, prefix = AccessFailureRow, refusal.prefix
    minute = now.replace(second=0, microsecond=0)
    hour = minute.replace(minute=0)
    of_hour = table.hour == hour
    of_key = (table.kind == kind, table.client == client, table.prefix == prefix)
    if session.scalar(select(table.count).where(of_hour, *of_key)) is None:
        session.execute(delete(table).where(table.hour < hour - STORED_FOR))
        if (session.scalar(select(func.count()).where(of_hour)) or 0) >= MAX_ROWS:
            client, prefix = OTHERS, ""
    key = {"hour": hour, "kind": kind, "client": client, "prefix": prefix}
    insert = (postgresql.insert if is_postgres(session) else sqlite.insert)(table)
    counted = (
        insert.values(**key, count=1, minute=minute, minute_count=1)
        .on_conflict_do_update(
            index_elements=[*key],
            set_={
                "count": table.count + 1,
                "minute": minute,
                "minute_count": case((table.minute == minute, table.minute_count + 1), else_=1),
            },
        )
        .returning(table.count, table.minute_count)
    )
    count, in_minute = session.execute(counted).one()
    if str(count).strip("0") == "1":
        reason = {"reason": refusal.reason, "in_this_hour": count}
        action = "login.failed" if kind == "login" else "token.refused"
        detail = {"client": client, "prefix": prefix, **reason}
        audit.record(session, actor=client, action=action, subject=prefix, detail=detail)
    return int(in_minute)
