"""Webhooks with their messages, as they are stored."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DeliveryState, WebhookKind
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.model import DeliveryTryRow


def with_messages(session: Session, count: int) -> str:
    """Store a webhook with so many messages that nobody tried to send yet; return its ID."""
    about = {"kind": WebhookKind.standard, "url": "https://ci.example/hook", "description": ""}
    fields = {"events": ["job.finished"], "secret": None, "actor": "ada"}
    hook = webhooks.create(session, **about, **fields)
    for number in range(count):
        webhooks.send(session, [hook.id], f"job.finished:{number}", "job.finished", {})
    return hook.id


def store_tried(
    session: Session,
    hook: str,
    state: DeliveryState,
    *,
    type_: str = "job.finished",
    payload: dict[str, Any] | None = None,
    **attempt: Any,
) -> str:
    """Store a message that was tried once and ended so, or waits; return its ID."""
    event = f"{type_}:{new_id()}"
    (message,) = webhooks.send(session, [hook], event, type_, payload or {})
    outcome = DeliveryTryRow(**{"at": utcnow(), "duration_ms": 12.5, "status": 500, **attempt})
    ended = None if state is DeliveryState.waiting else state
    assert webhooks.tried(session, message, outcome, ended=ended) is not None
    return message
