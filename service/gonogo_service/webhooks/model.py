"""Webhooks, deliveries and their tries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.outbox.due_columns import DueColumns, due_index


class WebhookRow(Base):
    """A subscription.

    Secrets are encrypted with a key derived from GONOGO_SECRET_KEY: a key that signs, or the URL of
    a message to people. `old_secret` also signs until `old_secret_until`.
    """

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[str]
    url: Mapped[str] = mapped_column("target")
    events: Mapped[list[Any]]
    description: Mapped[str]
    secret: Mapped[str | None]
    old_secret: Mapped[str | None]
    old_secret_until: Mapped[datetime | None] = mapped_column("old_until")
    state: Mapped[str]
    reason: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    version: Mapped[int]


class DeliveryRow(DueColumns, Base):
    """One message to one subscription.

    Its id is the `webhook-id` of every try, so that a receiver recognizes repetitions.
    """

    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    webhook_id: Mapped[str] = mapped_column(IdType, ForeignKey("webhooks.id", ondelete="CASCADE"))
    event: Mapped[str]  # identifies the event: type, object and version; once per subscription
    type: Mapped[str]
    payload: Mapped[dict[str, Any]]
    state: Mapped[str]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("webhook_id", "event"),
        due_index("webhook_deliveries"),
        Index("ix_webhook_deliveries_webhook", "webhook_id", "id"),
    )


class DeliveryTryRow(Base):
    """One try of a delivery: the receiver's answer, or why it was unreachable."""

    __tablename__ = "webhook_tries"
    delivery_id: Mapped[str] = mapped_column(
        IdType, ForeignKey("webhook_deliveries.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    status: Mapped[int | None]
    error: Mapped[str | None]
    answer: Mapped[str | None]
    duration_ms: Mapped[float]
