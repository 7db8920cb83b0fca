"""The SQL of webhooks: subscriptions, their messages, the log of tries, and how replays ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session, defer, selectinload

from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import floor, is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.kit.outbox.model import DueWorkRow
from gonogo_service.webhooks.model import MAX_ANSWER_CHARS, DeliveryRow, DeliveryTryRow, WebhookRow

KEEP = timedelta(days=30)
REPLAYED = "delivery.replayed"
"""The audit log's action for a message that is sent again."""
MAX_REPLAYS = 1000
"""Replayed messages that are counted: the newest ones."""


def create(session: Session, *, actor: str, **columns: Any) -> WebhookRow:
    """Store a new, active subscription."""
    now = utcnow()
    state = {"state": WebhookState.active, "version": 1, "created_at": now, "updated_at": now}
    row = WebhookRow(id=new_id(), created_by=actor, **state, **columns)
    session.add(row)
    session.flush()
    return row


def get(session: Session, webhook_id: str, *, locked: bool = False) -> WebhookRow | None:
    """Return a subscription, or None."""
    if not is_id(webhook_id):
        return None
    return session.get(WebhookRow, webhook_id, with_for_update=locked, populate_existing=locked)


def subscribed(session: Session, type_: str) -> list[WebhookRow]:
    """Return the active subscriptions to a type of event ("*" subscribes to every type)."""
    active = (
        select(WebhookRow).where(WebhookRow.state == WebhookState.active).order_by(WebhookRow.id)
    )
    return [row for row in session.scalars(active) if type_ in row.events or "*" in row.events]


def failing(session: Session) -> list[str]:
    """Return the active subscriptions whose newest message that was tried has not arrived."""
    newest = select(DeliveryRow.state).where(
        DeliveryRow.webhook == WebhookRow.id, DeliveryRow.tries > 0
    )
    last = newest.order_by(DeliveryRow.id.desc()).limit(1).correlate(WebhookRow).scalar_subquery()
    query = select(WebhookRow.id).where(
        WebhookRow.state == WebhookState.active, last != DeliveryState.delivered.value
    )
    return list(session.scalars(query.order_by(WebhookRow.id)))


def disable(session: Session, webhook_id: str, reason: str) -> None:
    """Disable a subscription, unless it was deleted meanwhile."""
    row = get(session, webhook_id, locked=True)
    if row is not None:
        row.state, row.reason = WebhookState.disabled, reason
        row.updated_at, row.version = utcnow(), row.version + 1
        cancel_waiting(session, row)


def cancel_waiting(session: Session, row: WebhookRow) -> None:
    """Cancel the waiting deliveries of a subscription."""
    waiting = update(DeliveryRow).where(
        DeliveryRow.webhook == row.id, DeliveryRow.state == DeliveryState.waiting.value
    )
    cancelled = {"state": DeliveryState.cancelled.value, "due_at": None, "ended_at": utcnow()}
    session.execute(waiting.values(cancelled))


def remove(session: Session, row: WebhookRow) -> None:
    """Delete a subscription and its deliveries."""
    _forget(session, DeliveryRow.webhook == row.id)
    session.delete(row)


def send(
    session: Session,
    webhook_ids: Iterable[str],
    event: str,
    type_: str,
    payload: dict[str, Any],
    *,
    now: datetime | None = None,
) -> list[str]:
    """Store a message for each subscription that has none for this event yet; return the ids."""
    rows = [
        {
            "webhook_id": webhook_id,
            "key": f"{webhook_id} {event}",
            "topic": type_,
            "payload": payload,
        }
        for webhook_id in webhook_ids
    ]
    return DeliveryRow.add(session, rows, now=now)


def tried(
    session: Session,
    delivery_id: str,
    outcome: DeliveryTryRow,
    *,
    ended: DeliveryState | None = None,
    at_least: timedelta | None = None,
) -> DeliveryRow | None:
    """Log a try that `ended` a message; None: it failed, and is repeated or given up.

    Returns None if the subscription was deleted meanwhile.
    """
    row = DeliveryRow.locked(session, delivery_id, ended=True)
    if row is None:
        return None
    if ended is DeliveryState.delivered or (ended is not None and row.due_at is not None):
        row.finish(ended.value, now=outcome.at)
    elif row.due_at is not None:
        row.postpone(outcome.error, now=outcome.at, at_least=at_least)
    else:  # it was canceled meanwhile, and stays so
        row.tries += 1
    outcome.delivery_id, outcome.number = row.id, row.tries
    outcome.error = storable(outcome.error)
    outcome.answer = (storable(outcome.answer) or "")[:MAX_ANSWER_CHARS] or None
    session.add(outcome)
    session.flush()
    return row


def list_deliveries(
    session: Session,
    webhook_id: str,
    *,
    state: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> Page[DeliveryRow]:
    """Return a subscription's deliveries without payloads, newest first. Raises BadCursor."""
    return newest_first(
        session,
        select(DeliveryRow).options(defer(DeliveryRow.payload), selectinload(DeliveryRow.last_try)),
        DeliveryRow.id,
        lambda row: row,
        limit=limit,
        cursor=cursor,
        filters={DeliveryRow.webhook: webhook_id, DeliveryRow.state: state},
    )


def get_delivery(
    session: Session, webhook_id: str, delivery_id: str, *, locked: bool = False
) -> DeliveryRow | None:
    """Return a delivery; None if the subscription doesn't have it."""
    if locked:
        row = DeliveryRow.locked(session, delivery_id, ended=True)
    else:
        row = session.get(DeliveryRow, delivery_id) if is_id(delivery_id) else None
    return row if row is not None and row.webhook == webhook_id else None


def waiting(session: Session, webhook_id: str) -> int:
    """Return the number of a subscription's waiting messages."""
    where = (DeliveryRow.webhook == webhook_id, DeliveryRow.due_at.is_not(None))
    return session.scalar(select(func.count()).select_from(DeliveryRow).where(*where)) or 0


def replays(session: Session, webhook_id: str, since: datetime) -> Counter[str]:
    """Count the messages of a webhook that were sent again since a moment, by how they ended.

    The keys: delivered, given_up, retried (a try failed), waiting (not tried since). A message that
    was sent again twice counts once, as it ended last.
    """
    newest = func.max(AuditRow.at)
    query = (
        select(AuditRow.subject, newest)
        .where(AuditRow.id >= floor(since), AuditRow.action == REPLAYED)
        .group_by(AuditRow.subject)
        .order_by(newest.desc())
        .limit(MAX_REPLAYS)
    )
    times = {str(subject): moment for subject, moment in session.execute(query)}
    tried = DeliveryRow.id, DeliveryRow.state, DeliveryTryRow.at
    states = (
        select(*tried)
        .outerjoin(DeliveryRow.last_try)
        .where(DeliveryRow.id.in_(list(times)), DeliveryRow.webhook == webhook_id)
    )
    counts: Counter[str] = Counter()
    for delivery_id, state, at in session.execute(states) if times else ():
        if state == DeliveryState.waiting:
            counts["waiting" if at is None or at < times[delivery_id] else "retried"] += 1
        else:
            counts["delivered" if state == DeliveryState.delivered else "given_up"] += 1
    return counts


def purge(session: Session, *, now: datetime) -> int:
    """Delete deliveries that ended long ago; return their number."""
    return _forget(session, DeliveryRow.ended_at < now - KEEP)


def _forget(session: Session, which: ColumnElement[bool]) -> int:
    """Delete deliveries and their tries (SQLite doesn't cascade here); return their number."""
    ids = select(DeliveryRow.id).where(which)
    for statement in (
        delete(DeliveryTryRow).where(DeliveryTryRow.delivery_id.in_(ids)),
        delete(DueWorkRow).where(DueWorkRow.id.in_(ids)),
    ):
        deleted = session.execute(statement.execution_options(synchronize_session=False))
    return int(getattr(deleted, "rowcount", 0))
