"""Webhooks: subscriptions to events, the messages to them, and every try to send one."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from sqlalchemy import ForeignKey, Index, and_
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship, synonym

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import SECRET, IdType, JsonType, WordOf
from gonogo_service.kit.database.states import WebhookKind, WebhookState
from gonogo_service.kit.outbox.model import Backoff, DueWorkRow

MAX_ANSWER_CHARS = 1000


class WebhookRow(Base):
    """A subscription.

    Secrets are encrypted with a key derived from GONOGO_SECRET_KEY: a key that signs, or the URL of
    a message to people. `old_secret` also signs until `old_secret_until`.
    """

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[WebhookKind] = mapped_column(WordOf(WebhookKind))
    url: Mapped[str] = mapped_column(
        "target",
        doc="An http(s) address; for `message` the beginning of the apprise URL, which is a secret",
    )
    events: Mapped[list[str]] = mapped_column(JsonType)
    description: Mapped[str]
    secret: Mapped[str | None] = mapped_column(info=SECRET)
    old_secret: Mapped[str | None] = mapped_column(info=SECRET)
    old_secret_until: Mapped[datetime | None] = mapped_column("old_until")
    state: Mapped[WebhookState] = mapped_column(WordOf(WebhookState))
    reason: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    version: Mapped[int]


class DeliveryTryRow(Base):
    """One try of a delivery: the receiver's answer, or why it was unreachable."""

    __tablename__ = "webhook_tries"
    delivery_id: Mapped[str] = mapped_column(
        IdType, ForeignKey("due_work.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # the first is 1
    at: Mapped[datetime]
    status: Mapped[int | None]
    error: Mapped[str | None]
    answer: Mapped[str | None]  # its beginning
    duration_ms: Mapped[float]


class DeliveryRow(DueWorkRow):
    """A message to a subscription; its `id` is the header `webhook-id` of every try."""

    KIND: ClassVar[str] = "delivery"
    backoff: ClassVar[Backoff] = Backoff.after(
        5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400, tries=10, jitter=0.1
    )
    webhook: Mapped[str | None] = mapped_column(
        "webhook_id", IdType, ForeignKey("webhooks.id", ondelete="CASCADE")
    )
    type: Mapped[str] = synonym("topic")
    log: Mapped[list[DeliveryTryRow]] = relationship(order_by=DeliveryTryRow.number, viewonly=True)
    last_try: Mapped[DeliveryTryRow | None] = relationship(
        primaryjoin=lambda: and_(
            foreign(DeliveryTryRow.delivery_id) == DeliveryRow.id,
            DeliveryTryRow.number == DeliveryRow.tries,
        ),
        viewonly=True,
    )


_IS_DELIVERY = DeliveryRow.webhook.is_not(None)
Index(
    "ix_due_work_webhook",
    DeliveryRow.webhook,
    DeliveryRow.id,
    sqlite_where=_IS_DELIVERY,
    postgresql_where=_IS_DELIVERY,
)
