"""Webhook subscriptions: their events, targets and secrets.

Secrets are encrypted; this module never sees their plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.webhooks import deliveries
from gonogo_service.webhooks.model import DeliveryRow, WebhookRow

Kind = Literal["standard", "message"]


@dataclass(frozen=True)
class Webhook:
    """A subscription without its secrets."""

    id: str
    kind: Kind
    url: str
    """An http(s) address; for `message` the beginning of the apprise URL, which is a secret"""
    events: list[str]
    description: str
    state: WebhookState
    reason: str | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    old_secret_until: datetime | None
    version: int


@dataclass(frozen=True)
class SigningWebhook(Webhook):
    """A subscription with its secrets, as ciphertext."""

    secret: str | None
    old_secret: str | None


AnyWebhook = TypeVar("AnyWebhook", bound=Webhook)


def create(
    session: Session,
    *,
    kind: Kind,
    url: str,
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
        url=url,
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
    return _webhook(Webhook, row)


def get(session: Session, webhook_id: str) -> Webhook | None:
    """Return a subscription, or None."""
    row = session.get(WebhookRow, webhook_id) if is_id(webhook_id) else None
    return None if row is None else _webhook(Webhook, row)


def signing(session: Session, webhook_id: str) -> SigningWebhook | None:
    """Return a subscription with its secrets, or None."""
    row = session.get(WebhookRow, webhook_id) if is_id(webhook_id) else None
    return None if row is None else _webhook(SigningWebhook, row)


def list_(session: Session, *, limit: int = 50, cursor: str | None = None) -> Page[Webhook]:
    """Return subscriptions, newest first. Raises BadCursor."""
    shape = partial(_webhook, Webhook)
    return newest_first(
        session, select(WebhookRow), WebhookRow.id, shape, limit=limit, cursor=cursor
    )


def subscribed(session: Session, type_: str) -> list[Webhook]:
    """Return the active subscriptions to a type of event ("*" subscribes to every type)."""
    rows = session.scalars(
        select(WebhookRow)
        .where(WebhookRow.state == WebhookState.active.value)
        .order_by(WebhookRow.id)
    )
    return [_webhook(Webhook, row) for row in rows if type_ in row.events or "*" in row.events]


def failing(session: Session) -> list[str]:
    """Return the active subscriptions whose newest message that was tried has not arrived."""
    sent = DeliveryRow
    newest = select(sent.state).where(sent.webhook_id == WebhookRow.id, sent.tries > 0)
    last = newest.order_by(sent.id.desc()).limit(1).correlate(WebhookRow).scalar_subquery()
    active = WebhookRow.state == WebhookState.active.value
    query = select(WebhookRow.id).where(active, last != DeliveryState.delivered.value)
    return list(session.scalars(query.order_by(WebhookRow.id)))


def change(session: Session, webhook_id: str, fields: Mapping[str, Any]) -> Webhook | None:
    """Change fields of a subscription; None if it doesn't exist.

    The fields: url, events, description, state, reason, secret, old_secret, old_secret_until.
    Disabling a subscription cancels its waiting deliveries.
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
    return _webhook(Webhook, row)


def delete(session: Session, webhook_id: str) -> Webhook | None:
    """Delete a subscription and its deliveries; None if it doesn't exist."""
    row = session.get(WebhookRow, webhook_id) if is_id(webhook_id) else None
    if row is None:
        return None
    deleted = _webhook(Webhook, row)
    deliveries.forget(session, DeliveryRow.webhook_id == row.id)
    session.delete(row)
    session.flush()
    return deleted


def _webhook(shape: type[AnyWebhook], row: WebhookRow) -> AnyWebhook:
    return from_object(shape, row, state=WebhookState(row.state))
