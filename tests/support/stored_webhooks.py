"""Webhooks with waiting messages, as they are stored."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gonogo_service.webhooks import deliveries
from gonogo_service.webhooks import store as webhooks


def with_messages(session: Session, count: int) -> str:
    """Store a webhook with so many messages that nobody tried to send yet; return its ID."""
    hook = webhooks.create(
        session,
        kind="standard",
        url="https://ci.example/hook",
        events=["job.finished"],
        description="",
        secret=None,
        actor="ada",
    )
    for number in range(count):
        deliveries.add(session, [hook.id], f"job.finished:{number}", "job.finished", {})
    return hook.id
