"""The outbox: what has to leave the database (webhooks, cancel keys), stored by the transaction
that decided it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.ids import new_id
from gonogo_storage.tables import OutboxRow

KEEP = timedelta(days=7)


@dataclass(frozen=True)
class Letter:
    """One undelivered row."""

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
    """Store something to deliver; a second one with the same `dedupe` is none."""
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
    but: Sequence[str] = (),
    now: datetime | None = None,
    limit: int = 100,
) -> list[Letter]:
    """What is to be delivered now, oldest first: of these topics, or of all `but` some."""
    query = (
        select(OutboxRow)
        .where(OutboxRow.due_at <= (now or utcnow()))
        .order_by(OutboxRow.due_at, OutboxRow.id)
        .limit(limit)
    )
    query = query.where(
        OutboxRow.topic.not_in(but) if topics is None else OutboxRow.topic.in_(topics)
    )
    return [Letter(row.id, row.topic, row.payload, row.tries) for row in session.scalars(query)]


def known(session: Session, dedupes: Sequence[str]) -> set[str]:
    """Which of these were ever added, and not yet cleared away."""
    return set(session.scalars(select(OutboxRow.dedupe).where(OutboxRow.dedupe.in_(dedupes))))


def claim(session: Session, letter_id: str) -> bool:
    """Lock a letter until the transaction ends; False when it is ticked off already (another
    process was faster) or gone.
    """
    row = session.get(OutboxRow, letter_id, with_for_update=True, populate_existing=True)
    return row is not None and row.due_at is not None


def delivered(session: Session, ids: list[str], *, now: datetime | None = None) -> None:
    """Tick off."""
    session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids))
        .values(due_at=None, done_at=now or utcnow(), error=None)
    )


def postponed(session: Session, letter_id: str, error: str, *, until: datetime) -> None:
    """A delivery failed: say why, and when to try again."""
    session.execute(
        update(OutboxRow)
        .where(OutboxRow.id == letter_id)
        .values(due_at=until, tries=OutboxRow.tries + 1, error=error)
    )


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Forget what was delivered long ago; the number of rows."""
    gone = session.execute(delete(OutboxRow).where(OutboxRow.done_at < (now or utcnow()) - KEEP))
    return int(getattr(gone, "rowcount", 0))
