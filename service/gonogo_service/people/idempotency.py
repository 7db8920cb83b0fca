"""Stored responses to requests with an Idempotency-Key, written in the request's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.people.model import IdempotencyRow

TIME_TO_LIVE = timedelta(hours=24)


@dataclass(frozen=True)
class StoredResponse:
    """The response to an earlier request; `body` is the hash of that request's body."""

    body: str
    status: int
    response: dict[str, Any]


def claim(session: Session, scope: str, body: str) -> StoredResponse | None:
    """Claim the key `scope` for a request with that body hash.

    Returns None if the caller has the key now, otherwise the earlier response. A second concurrent
    request waits here until the first one's transaction ends (PostgreSQL: on the unique index;
    SQLite: on the write lock). Then it gets the first one's response, or the key if that failed.
    """
    now = utcnow()
    session.execute(delete(IdempotencyRow).where(IdempotencyRow.expires_at <= now))
    values = {
        "scope": scope,
        "body": body,
        "status": 0,
        "response": {},
        "created_at": now,
        "expires_at": now + TIME_TO_LIVE,
    }
    insert = postgresql.insert if is_postgres(session) else sqlite.insert
    claimed = session.execute(
        insert(IdempotencyRow)
        .values(**values)
        .on_conflict_do_nothing()
        .returning(IdempotencyRow.scope)
    ).first()
    if claimed is not None:
        return None
    row = session.scalars(select(IdempotencyRow).where(IdempotencyRow.scope == scope)).one()
    return StoredResponse(row.body, row.status, row.response)


def answer(session: Session, scope: str, status: int, response: dict[str, Any]) -> None:
    """Store the response to the request that claimed the key."""
    session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.scope == scope)
        .values(status=status, response=response)
    )
