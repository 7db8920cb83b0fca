"""The outbox: messages about work outside the database, such as webhooks and cancel keys.

A message is stored in the transaction that decides on the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.outbox.due import Backoff, DueTable
from gonogo_service.kit.outbox.model import OutboxRow

OUTBOX = DueTable(OutboxRow, Backoff((5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)))
KEEP = timedelta(days=7)


@dataclass(frozen=True)
class OutboxMessage:
    """A message that is not delivered yet."""

    id: str
    topic: str
    payload: dict[str, Any]
    tries: int


def add(
    session: Session,
    topic: str,
    dedupe: str,
    payload: dict[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store a message; a second one with the same `dedupe` is ignored."""
    now = now or utcnow()
    row = {
        "id": new_id(),
        "topic": topic,
        "dedupe": dedupe,
        "payload": payload,
        "created_at": now,
        "due_at": now,
        "tries": 0,
    }
    insert_once(session, OutboxRow, [row])


def due(
    session: Session,
    *,
    topics: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    now: datetime | None = None,
    limit: int = 100,
) -> list[OutboxMessage]:
    """Return the messages to deliver now, oldest first: of `topics`, or of all but `exclude`."""
    query = select(OutboxRow).where(
        OutboxRow.topic.not_in(exclude) if topics is None else OutboxRow.topic.in_(topics)
    )
    rows = session.scalars(OUTBOX.due(query, now=now, limit=limit))
    return [OutboxMessage(row.id, row.topic, row.payload, row.tries) for row in rows]


def known(session: Session, dedupes: Sequence[str]) -> set[str]:
    """Return those of the `dedupe` values whose messages are still stored, delivered or not."""
    return set(session.scalars(select(OutboxRow.dedupe).where(OutboxRow.dedupe.in_(dedupes))))


def delivered(session: Session, ids: Sequence[str], *, now: datetime | None = None) -> bool:
    """Mark messages as delivered; return whether any of them was still waiting.

    It locks them until the transaction ends: another process that has read them as due waits, and
    then finds none waiting.
    """
    marked = session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids), OutboxRow.due_at.is_not(None))
        .values(due_at=None, done_at=now or utcnow(), error=None)
        .execution_options(synchronize_session=False)
    )
    return bool(getattr(marked, "rowcount", 0))


def postponed(
    session: Session, message_id: str, error: str, *, now: datetime | None = None
) -> None:
    """Record why a delivery failed; it is retried after a growing delay, and never given up."""
    row = OUTBOX.locked(session, message_id)
    if row is not None:
        OUTBOX.postponed(row, now=now)
        row.error = storable(error)
        session.flush()


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Delete messages that were delivered long ago; return their number."""
    deleted = session.execute(delete(OutboxRow).where(OutboxRow.done_at < (now or utcnow()) - KEEP))
    return int(getattr(deleted, "rowcount", 0))
