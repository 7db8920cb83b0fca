"""The outbox: messages about work outside the database, such as webhooks and cancel keys.

A message is stored in the transaction that decides on the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow

KEEP = timedelta(days=7)


def add(
    session: Session,
    topic: str,
    dedupe: str,
    payload: dict[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store a message; a second one with the same `dedupe` is ignored."""
    OutboxRow.add(session, [{"topic": topic, "key": dedupe, "payload": payload}], now=now)


def due(
    session: Session,
    *,
    topics: Sequence[str] | None = None,
    now: datetime | None = None,
    limit: int = 100,
) -> Sequence[OutboxRow]:
    """Return the messages to deliver now, oldest first: of `topics`, or of all."""
    query = OutboxRow.due(now=now, limit=limit)
    query = query if topics is None else query.where(OutboxRow.topic.in_(topics))
    return session.scalars(query).all()


def known(session: Session, dedupes: Sequence[str]) -> set[str]:
    """Return those of the `dedupe` values whose messages are still stored, delivered or not."""
    return set(session.scalars(select(OutboxRow.key).where(OutboxRow.key.in_(dedupes))))


def delivered(session: Session, ids: Sequence[str], *, now: datetime | None = None) -> bool:
    """Mark messages as delivered; return whether any of them was still waiting.

    It locks them until the transaction ends: another process that has read them as due waits, and
    then finds none waiting.
    """
    marked = session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids), OutboxRow.due_at.is_not(None))
        .values(state="done", due_at=None, ended_at=now or utcnow(), reason=None)
        .execution_options(synchronize_session=False)
    )
    return bool(getattr(marked, "rowcount", 0))


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Delete messages that were delivered long ago; return their number."""
    old = OutboxRow.ended_at < (now or utcnow()) - KEEP
    deleted = session.execute(
        delete(OutboxRow).where(old).execution_options(synchronize_session=False)
    )
    return int(getattr(deleted, "rowcount", 0))
