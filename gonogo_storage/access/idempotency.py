"""Answers kept under Idempotency-Keys, written in the same transaction as what they answer for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import is_postgres
from gonogo_storage.tables import IdempotencyRow

KEPT = timedelta(hours=24)


@dataclass(frozen=True)
class Kept:
    """What was answered before: `body` is the hash of the request's body, `response` what `answer`
    stored.
    """

    body: str
    status: int
    response: dict[str, Any]


def claim(session: Session, scope: str, body: str) -> Kept | None:
    """Take the key `scope` for a request with that body hash; None = it is ours, else the answer
    that was given before.

    Of two requests at once the second waits here until the first one's transaction ends
    (PostgreSQL: on the unique index; SQLite: on the write lock), and then sees its answer, or, if
    the first failed, takes the key itself.
    """
    now = utcnow()
    session.execute(delete(IdempotencyRow).where(IdempotencyRow.expires_at <= now))
    values = {
        "scope": scope,
        "body": body,
        "status": 0,
        "response": {},
        "created_at": now,
        "expires_at": now + KEPT,
    }
    insert = postgresql.insert if is_postgres(session) else sqlite.insert
    taken = session.execute(
        insert(IdempotencyRow)
        .values(**values)
        .on_conflict_do_nothing()
        .returning(IdempotencyRow.scope)
    ).first()
    if taken is not None:
        return None
    row = session.scalars(select(IdempotencyRow).where(IdempotencyRow.scope == scope)).one()
    return Kept(row.body, row.status, row.response)


def answer(session: Session, scope: str, status: int, response: dict[str, Any]) -> None:
    """Store the answer of the request that claimed the key."""
    session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.scope == scope)
        .values(status=status, response=response)
    )
