"""The SQL of incoming deliveries, which are stored as received, once per sender's id."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo_service.ci.model import IncomingDeliveryRow, RuleOutcome
from gonogo_service.kit.database.encoding import storable
from gonogo_service.kit.database.ids import floor, is_id
from gonogo_service.kit.database.states import HookSource, IncomingState

D = IncomingDeliveryRow
KEEP_BODIES = timedelta(days=30)
MAX_ALIKE = 20
"""Earlier deliveries whose bodies are compared with one of the same event and size."""
LEVEL = 1
"""The zlib level: a payload shrinks to a fifth, in a millisecond."""


def store(
    session: Session, source: HookSource, delivery: str, event: str, body: bytes
) -> tuple[str, bool]:
    """Store a delivery to process; return our id of it, and whether it is new.

    A second delivery with the same sender's id is ignored.
    """
    row: dict[str, Any] = {
        "key": f"{source.value} {delivery}",
        "topic": event,
        "source": source.value,
        "delivery": delivery,
        "body": zlib.compress(body, LEVEL),
        "size": len(body),
        "outcome": [],
    }
    (new,) = D.add(session, [row])
    stored = session.scalars(select(D.id).where(D.key == row["key"])).one()
    return stored, stored == new


def body_of(row: IncomingDeliveryRow) -> bytes | None:
    """Return the body as received; None: it is deleted."""
    return None if row.body is None else zlib.decompress(row.body)


def same_before(session: Session, row: IncomingDeliveryRow, repository: str) -> str | None:
    """Return the id of an earlier delivery with the same event and body that started something.

    It is None if there is none, or its body is already deleted.
    """
    alike = (D.event == row.event, D.size == row.size, D.state == IncomingState.started.value)
    recent = D.id >= floor(row.received_at - KEEP_BODIES)  # older ones have no body
    query = select(D).where(D.repository == repository, recent, D.id != row.id, *alike)
    for earlier in session.scalars(query.order_by(D.id.desc()).limit(MAX_ALIKE)):
        if body_of(earlier) == body_of(row):
            return earlier.id
    return None


def ended(
    row: IncomingDeliveryRow,
    state: IncomingState,
    *,
    reason: str | None = None,
    repository: str | None = None,
    outcome: Sequence[RuleOutcome] = (),
) -> None:
    """Set the outcome of a delivery that the caller has locked."""
    row.finish(state.value)
    row.reason, row.repository = storable(reason), repository
    row.outcome = list(outcome)


def get(session: Session, incoming_id: str) -> IncomingDeliveryRow | None:
    """Return a delivery, or None."""
    return session.get(D, incoming_id) if is_id(incoming_id) else None


def purge(session: Session, *, now: datetime) -> int:
    """Delete the bodies of old deliveries; return their number.

    The rows stay, so that a redelivery starts nothing.
    """
    old = (D.ended_at < now - KEEP_BODIES, D.body.is_not(None))
    emptied = session.execute(update(D).where(*old).values(body=None))
    return int(getattr(emptied, "rowcount", 0))
