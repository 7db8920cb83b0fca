"""Webhook subscriptions: their events, targets and secrets.

Secrets are encrypted; this module never sees their plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.paging import Page, newest_first
from gonogo_storage.db.states import DeliveryState, WebhookState
from gonogo_storage.messages import deliveries
from gonogo_storage.tables import DeliveryRow, WebhookRow


@dataclass(frozen=True)
class Webhook:
    """A subscription; the secrets are ciphertext."""

    id: str
    kind: str
    target: str
    events: tuple[str, ...]
    description: str
    secret: str | None
    old_secret: str | None
    old_until: datetime | None
    state: WebhookState
    reason: str | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    version: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON without the secrets."""
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "events": list(self.events),
            "description": self.description,
            "state": self.state.value,
            "reason": self.reason,
            "created_by": self.created_by,
            "created_at": timestamp(self.created_at),
            "updated_at": timestamp(self.updated_at),
            "old_secret_until": timestamp(self.old_until),
            "version": self.version,
        }


def create(
    session: Session,
    *,
    kind: str,
    target: str,
    events: Sequence[str],
    description: str,
    secret: str | None,
    actor: str,
) -> Webhook:
    """Store a new, active subscription."""
    now = utcnow()
    row = WebhookRow(
        id=new_id(),
        kind=kind,
        target=target,
        events=list(events),
        description=description,
        secret=secret,
        state=WebhookState.active.value,
        created_by=actor,
        created_at=now,
        updated_at=now,
        version=1,
    )
    session.add(row)
    session.flush()
    return _webhook(row)


def get(session: Session, webhook_id: str) -> Webhook | None:
    """Return a subscription, or None."""
    row = session.get(WebhookRow, webhook_id) if is_id(webhook_id) else None
    return None if row is None else _webhook(row)


def list_(session: Session, *, limit: int = 50, cursor: str | None = None) -> Page[Webhook]:
    """Return subscriptions, newest first. Raises BadCursor."""
    query = newest_first(select(WebhookRow), WebhookRow.id, limit=limit, cursor=cursor, filters={})
    return Page.cut([_webhook(row) for row in session.scalars(query)], limit, lambda item: item.id)


def subscribed(session: Session, type_: str) -> list[Webhook]:
    """Return the active subscriptions to a type of event ("*" subscribes to every type)."""
    rows = session.scalars(
        select(WebhookRow)
        .where(WebhookRow.state == WebhookState.active.value)
        .order_by(WebhookRow.id)
    )
    return [_webhook(row) for row in rows if type_ in row.events or "*" in row.events]


def change(session: Session, webhook_id: str, fields: Mapping[str, Any]) -> Webhook | None:
    """Change fields of a subscription; None if it doesn't exist.

    The fields: target, events, description, state, reason, secret, old_secret, old_until. Disabling
    a subscription cancels its waiting deliveries.
    """
    row = (
        session.get(WebhookRow, webhook_id, with_for_update=True, populate_existing=True)
        if is_id(webhook_id)
        else None
    )
    if row is None:
        return None
    for name, value in fields.items():
        setattr(row, name, value)
    row.updated_at = utcnow()
    row.version += 1
    if row.state == WebhookState.disabled:
        waiting = update(DeliveryRow).where(
            DeliveryRow.webhook_id == row.id, DeliveryRow.state == DeliveryState.waiting.value
        )
        session.execute(
            waiting.values(
                state=DeliveryState.cancelled.value, due_at=None, ended_at=row.updated_at
            )
        )
    session.flush()
    return _webhook(row)


def delete(session: Session, webhook_id: str) -> Webhook | None:
    """Delete a subscription and its deliveries; None if it doesn't exist."""
    row = session.get(WebhookRow, webhook_id) if is_id(webhook_id) else None
    if row is None:
        return None
    deleted = _webhook(row)
    deliveries.forget(session, DeliveryRow.webhook_id == row.id)
    session.delete(row)
    session.flush()
    return deleted


def _webhook(row: WebhookRow) -> Webhook:
    return Webhook(
        id=row.id,
        kind=row.kind,
        target=row.target,
        events=tuple(row.events),
        description=row.description,
        secret=row.secret,
        old_secret=row.old_secret,
        old_until=row.old_until,
        state=WebhookState(row.state),
        reason=row.reason,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
    )
