"""How the messages of a webhook ended that somebody sent again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks import deliveries
from gonogo_service.webhooks.model import DeliveryRow

ACTION = "delivery.replayed"
"""The audit log's action for a message that is sent again."""
MAX_MESSAGES = 1000
"""Messages that are counted: those that were sent again last."""


@dataclass(frozen=True)
class Replays:
    """Messages that were sent again, by how they ended."""

    delivered: int
    given_up: int
    retried: int
    """They failed and wait for another attempt."""
    waiting: int
    """No attempt was made since."""

    @property
    def total(self) -> int:
        """Return the number of messages."""
        return self.delivered + self.given_up + self.retried + self.waiting


def since(session: Session, webhook_id: str, moment: datetime) -> Replays:
    """Count the messages of a webhook that were sent again since a moment, by how they ended.

    A message that was sent again twice counts once, as it ended last.
    """
    replayed_at = func.max(AuditRow.at)
    query = (
        select(AuditRow.subject, replayed_at)
        .where(AuditRow.id >= floor(moment), AuditRow.action == ACTION)
        .group_by(AuditRow.subject)
        .order_by(replayed_at.desc())
        .limit(MAX_MESSAGES)
    )
    times = {str(delivery_id): at for delivery_id, at in session.execute(query)}
    states = select(DeliveryRow.id, DeliveryRow.state).where(
        DeliveryRow.id.in_(list(times)), DeliveryRow.webhook_id == webhook_id
    )
    rows = session.execute(states).all() if times else []
    tries = deliveries.last_tries(session, [delivery_id for delivery_id, _ in rows])
    delivered = given_up = retried = waiting = 0
    for delivery_id, state in rows:
        attempt = tries.get(delivery_id)
        tried = attempt is not None and attempt.at >= times[delivery_id]
        delivered += state == DeliveryState.delivered
        waiting += state == DeliveryState.waiting and not tried
        retried += state == DeliveryState.waiting and tried
        given_up += state not in (DeliveryState.delivered, DeliveryState.waiting)
    return Replays(delivered, given_up, retried, waiting)
