"""Messages to subscriptions: stored once per event and subscription, tried until they are taken,
with a log of every try.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import storable, timestamp, utcnow
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import DeliveryState
from gonogo_storage.tables import DeliveryRow, DeliveryTryRow

KEEP = timedelta(days=30)
MOST_ANSWER_CHARS = 1000


@dataclass(frozen=True)
class Delivery:
    """A message that is due."""

    id: str
    webhook_id: str
    type: str
    payload: dict[str, Any]
    tries: int


@dataclass(frozen=True)
class Try:
    """What came of one try: an HTTP status, or the error that there was none."""

    at: datetime
    duration_ms: float
    status: int | None = None
    error: str | None = None
    answer: str | None = None


def add(
    session: Session,
    webhook_ids: Iterable[str],
    event: str,
    type_: str,
    payload: dict[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store a message for each subscription; one that has this event already gets no second one."""
    now = now or utcnow()
    rows = [
        {
            "id": new_id(),
            "webhook_id": each,
            "event": event,
            "type": type_,
            "payload": payload,
            "state": DeliveryState.waiting.value,
            "tries": 0,
            "due_at": now,
            "created_at": now,
        }
        for each in webhook_ids
    ]
    if rows:
        insert_once(session, DeliveryRow, rows)


def due(
    session: Session,
    *,
    without: Collection[str] = (),
    now: datetime | None = None,
    limit: int = 200,
) -> list[Delivery]:
    """What is to be sent now, the longest due first; not to the subscriptions `without`, whose
    messages may be more than all others.
    """
    query = (
        select(DeliveryRow)
        .where(DeliveryRow.due_at <= (now or utcnow()))
        .order_by(DeliveryRow.due_at, DeliveryRow.id)
        .limit(limit)
    )
    if without:
        query = query.where(DeliveryRow.webhook_id.not_in(without))
    return [
        Delivery(row.id, row.webhook_id, row.type, row.payload, row.tries)
        for row in session.scalars(query)
    ]


def tried(
    session: Session,
    delivery_id: str,
    outcome: Try,
    *,
    state: DeliveryState,
    again_at: datetime | None,
) -> None:
    """Log a try and what it means: delivered, failed for good, or waiting until `again_at`."""
    row = session.get(DeliveryRow, delivery_id, with_for_update=True, populate_existing=True)
    if row is None:  # its subscription was deleted meanwhile
        return
    row.tries += 1
    row.due_at = again_at if state is DeliveryState.waiting else None
    row.ended_at = None if state is DeliveryState.waiting else outcome.at
    row.state = state.value
    session.add(
        DeliveryTryRow(
            delivery_id=row.id,
            number=row.tries,
            at=outcome.at,
            status=outcome.status,
            error=storable(outcome.error),
            answer=(storable(outcome.answer) or "")[:MOST_ANSWER_CHARS] or None,
            duration_ms=outcome.duration_ms,
        )
    )
    session.flush()


def list_(
    session: Session,
    webhook_id: str,
    *,
    state: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """The deliveries of a subscription, newest first, without their tries. Raises BadCursor."""
    query = (
        select(DeliveryRow)
        .where(DeliveryRow.webhook_id == webhook_id)
        .order_by(DeliveryRow.id.desc())
        .limit(limit + 1)
    )
    if state is not None:
        query = query.where(DeliveryRow.state == state)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(DeliveryRow.id < cursor)
    return Page.cut(
        [_json(row) for row in session.scalars(query)], limit, lambda item: str(item["id"])
    )


def waiting(session: Session) -> dict[str, int]:
    """How many messages wait for each subscription that has any."""
    query = (
        select(DeliveryRow.webhook_id, func.count())
        .where(DeliveryRow.due_at.is_not(None))
        .group_by(DeliveryRow.webhook_id)
    )
    return {str(webhook_id): int(number) for webhook_id, number in session.execute(query)}


def look(session: Session, webhook_id: str, delivery_id: str) -> dict[str, Any] | None:
    """A delivery with its payload and all its tries; None if the subscription has no such one."""
    row = session.get(DeliveryRow, delivery_id) if is_id(delivery_id) else None
    if row is None or row.webhook_id != webhook_id:
        return None
    query = (
        select(DeliveryTryRow)
        .where(DeliveryTryRow.delivery_id == row.id)
        .order_by(DeliveryTryRow.number)
    )
    tries = [
        {
            "number": each.number,
            "at": timestamp(each.at),
            "status": each.status,
            "error": each.error,
            "answer": each.answer,
            "duration_ms": each.duration_ms,
        }
        for each in session.scalars(query)
    ]
    return {**_json(row), "payload": row.payload, "log": tries}


def replay(
    session: Session, webhook_id: str, delivery_id: str, *, now: datetime | None = None
) -> dict[str, Any] | None:
    """Send it again now, under the same id; None if the subscription has no such one."""
    row = (
        session.get(DeliveryRow, delivery_id, with_for_update=True, populate_existing=True)
        if is_id(delivery_id)
        else None
    )
    if row is None or row.webhook_id != webhook_id:
        return None
    row.state, row.due_at, row.ended_at = DeliveryState.waiting.value, now or utcnow(), None
    session.flush()
    return _json(row)


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Forget what ended long ago; the number of deliveries."""
    return forget(session, DeliveryRow.ended_at < (now or utcnow()) - KEEP)


def forget(session: Session, which: ColumnElement[bool]) -> int:
    """Delete deliveries and their tries (SQLite has no cascade here); the number of deliveries."""
    session.execute(
        delete(DeliveryTryRow).where(
            DeliveryTryRow.delivery_id.in_(select(DeliveryRow.id).where(which))
        )
    )
    gone = session.execute(delete(DeliveryRow).where(which))
    return int(getattr(gone, "rowcount", 0))


def _json(row: DeliveryRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "webhook": row.webhook_id,
        "type": row.type,
        "state": row.state,
        "tries": row.tries,
        "due_at": timestamp(row.due_at),
        "created_at": timestamp(row.created_at),
        "ended_at": timestamp(row.ended_at),
    }
