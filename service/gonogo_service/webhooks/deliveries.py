"""Messages to subscriptions, and the log of their tries.

A message is stored once per event and subscription, and retried until it is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session, defer

from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.kit.outbox.due import Backoff, DueTable
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow

DELIVERIES = DueTable(
    DeliveryRow,
    Backoff((5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400), max_tries=10, jitter=0.1),
)
KEEP = timedelta(days=30)
MAX_ANSWER_CHARS = 1000


@dataclass(frozen=True)
class Delivery:
    """A message to a subscription; `id` is the header `webhook-id` of every try."""

    id: str
    webhook: str
    type: str
    state: DeliveryState
    tries: int
    due_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class EventMessage:
    """The payload of a message, as it was sent and signed."""

    type: str
    timestamp: datetime
    data: dict[str, Any]
    """The object as it was then; which fields it has depends on the type (docs/webhooks.md)"""


@dataclass(frozen=True)
class Message(Delivery):
    """A message with its payload."""

    payload: Annotated[dict[str, Any], Documented(EventMessage)]


@dataclass(frozen=True)
class Try:
    """One try: the receiver's status and the beginning of its answer, or an error."""

    at: datetime
    duration_ms: float
    status: int | None = None
    error: str | None = None
    answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedTry(Try):
    """A try with its number; the first is 1."""

    number: int


@dataclass(frozen=True)
class DeliveryDetails(Message):
    """A message with its payload and every try."""

    log: list[LoggedTry]


AnyDelivery = TypeVar("AnyDelivery", bound=Delivery)


def add(
    session: Session,
    webhook_ids: Iterable[str],
    event: str,
    type_: str,
    payload: dict[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store a message for each subscription that has no message for this event yet."""
    now = now or utcnow()
    rows = [
        {
            "id": new_id(),
            "webhook_id": webhook_id,
            "event": event,
            "type": type_,
            "payload": payload,
            "state": DeliveryState.waiting.value,
            "tries": 0,
            "due_at": now,
            "created_at": now,
        }
        for webhook_id in webhook_ids
    ]
    if rows:
        insert_once(session, DeliveryRow, rows)


def due(
    session: Session,
    *,
    without: Collection[str] = (),
    now: datetime | None = None,
    limit: int = 200,
) -> list[Message]:
    """Return the messages to send now, the longest due first.

    The subscriptions `without` are left out: their messages may outnumber all others.
    """
    query = select(DeliveryRow).where(DeliveryRow.webhook_id.not_in(without))
    return [
        _delivery(Message, row)
        for row in session.scalars(DELIVERIES.due(query, now=now, limit=limit))
    ]


def tried(
    session: Session,
    delivery_id: str,
    outcome: Try,
    *,
    state: DeliveryState,
    again_at: datetime | None,
) -> None:
    """Log a try and the new state: delivered, failed for good, or waiting until `again_at`."""
    row = DELIVERIES.locked(session, delivery_id, ended=True)
    if row is None:  # its subscription was deleted meanwhile
        return
    waits = row.due_at is not None
    DELIVERIES.done(row)
    if waits or state is DeliveryState.delivered:  # else it was canceled meanwhile, and stays so
        row.due_at = again_at
        row.ended_at = None if again_at is not None else outcome.at
        row.state = state.value
    session.add(
        DeliveryTryRow(
            delivery_id=row.id,
            number=row.tries,
            at=outcome.at,
            status=outcome.status,
            error=storable(outcome.error),
            answer=(storable(outcome.answer) or "")[:MAX_ANSWER_CHARS] or None,
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
) -> Page[Delivery]:
    """Return a subscription's deliveries, newest first, without their tries. Raises BadCursor."""
    filters = {DeliveryRow.webhook_id: webhook_id, DeliveryRow.state: state}
    return newest_first(
        session,
        select(DeliveryRow).options(defer(DeliveryRow.payload)),
        DeliveryRow.id,
        partial(_delivery, Delivery),
        limit=limit,
        cursor=cursor,
        filters=filters,
    )


def last_tries(session: Session, delivery_ids: Collection[str]) -> dict[str, Try]:
    """Return the last try of each of these messages; those that were never tried are left out."""
    table = DeliveryTryRow
    newest = (
        select(table.delivery_id, func.max(table.number).label("number"))
        .where(table.delivery_id.in_(list(delivery_ids)))
        .group_by(table.delivery_id)
        .subquery()
    )
    query = select(table).join(
        newest,
        (newest.c.delivery_id == table.delivery_id) & (newest.c.number == table.number),
    )
    return {
        row.delivery_id: Try(row.at, row.duration_ms, row.status, row.error, row.answer)
        for row in session.scalars(query)
    }


def waiting(session: Session) -> dict[str, int]:
    """Return the number of waiting messages by subscription; those without any are left out."""
    query = (
        select(DeliveryRow.webhook_id, func.count())
        .where(DeliveryRow.due_at.is_not(None))
        .group_by(DeliveryRow.webhook_id)
    )
    return {str(webhook_id): int(number) for webhook_id, number in session.execute(query)}


def look(session: Session, webhook_id: str, delivery_id: str) -> DeliveryDetails | None:
    """Return a delivery with payload and tries; None if the subscription doesn't have it."""
    row = session.get(DeliveryRow, delivery_id) if is_id(delivery_id) else None
    if row is None or row.webhook_id != webhook_id:
        return None
    query = (
        select(DeliveryTryRow)
        .where(DeliveryTryRow.delivery_id == row.id)
        .order_by(DeliveryTryRow.number)
    )
    tries = [from_object(LoggedTry, attempt) for attempt in session.scalars(query)]
    return _delivery(DeliveryDetails, row, log=tries)


def replay(session: Session, webhook_id: str, delivery_id: str) -> Delivery | None:
    """Send a delivery again under the same id; None if the subscription doesn't have it."""
    row = DELIVERIES.locked(session, delivery_id, ended=True)
    if row is None or row.webhook_id != webhook_id:
        return None
    row.state, row.due_at, row.ended_at = DeliveryState.waiting.value, utcnow(), None
    session.flush()
    return _delivery(Delivery, row)


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Delete deliveries that ended long ago; return their number."""
    return forget(session, DeliveryRow.ended_at < (now or utcnow()) - KEEP)


def forget(session: Session, which: ColumnElement[bool]) -> int:
    """Delete deliveries and their tries (SQLite doesn't cascade here); return their number."""
    session.execute(
        delete(DeliveryTryRow).where(
            DeliveryTryRow.delivery_id.in_(select(DeliveryRow.id).where(which))
        )
    )
    deleted = session.execute(delete(DeliveryRow).where(which))
    return int(getattr(deleted, "rowcount", 0))


def _delivery(shape: type[AnyDelivery], row: DeliveryRow, **others: Any) -> AnyDelivery:
    return from_object(shape, row, webhook=row.webhook_id, state=DeliveryState(row.state), **others)
