"""Incoming webhook deliveries, stored as received, once per sender's id.

The background processes them later.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import select, update
from sqlalchemy.orm import Session, defer

from gonogo_service.ci.model import IncomingDeliveryRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import floor, is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import HookSource, IncomingState
from gonogo_service.kit.outbox.due import Backoff, DueTable

INCOMING = DueTable(IncomingDeliveryRow, Backoff((5, 60, 300, 1800, 3600), max_tries=20))
"""Only a bug in the processing postpones a delivery."""
KEEP_BODIES = timedelta(days=30)
MAX_ALIKE = 20
"""Earlier deliveries whose bodies are compared with one of the same event and size."""
LEVEL = 1
"""The zlib level: a payload shrinks to a fifth, in a millisecond."""


@dataclass(frozen=True)
class RuleOutcome:
    """The work that a rule started for a delivery, or the reason why it started nothing."""

    rule: str
    commit_checks: list[str]
    started: bool
    reason: str | None


@dataclass(frozen=True)
class IncomingDelivery:
    """A delivery; `delivery` is the sender's ID."""

    id: str
    source: HookSource
    delivery: str
    event: str
    repository: str | None
    size: int
    state: IncomingState
    reason: str | None
    outcome: list[RuleOutcome]
    """For each matching rule"""
    tries: int
    due_at: datetime | None
    received_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class WaitingDelivery(IncomingDelivery):
    """A delivery to process, with its body as received."""

    body: bytes


AnyDelivery = TypeVar("AnyDelivery", bound=IncomingDelivery)


def store(
    session: Session,
    source: HookSource,
    delivery: str,
    event: str,
    body: bytes,
    *,
    now: datetime | None = None,
) -> tuple[str, bool]:
    """Store a delivery to process; return our id of it, and whether it is new.

    A second delivery with the same sender's id is ignored.
    """
    now = now or utcnow()
    row: dict[str, Any] = {
        "id": new_id(),
        "source": source.value,
        "delivery": delivery,
        "event": event,
        "body": zlib.compress(body, LEVEL),
        "size": len(body),
        "state": IncomingState.waiting.value,
        "outcome": [],
        "tries": 0,
        "due_at": now,
        "received_at": now,
    }
    insert_once(session, IncomingDeliveryRow, [row])
    incoming_id = session.scalar(
        select(IncomingDeliveryRow.id).where(
            IncomingDeliveryRow.source == source.value, IncomingDeliveryRow.delivery == delivery
        )
    )
    return str(incoming_id), incoming_id == row["id"]


def same_before(session: Session, waiting: WaitingDelivery, repository: str) -> str | None:
    """Return the id of an earlier delivery with the same event and body that started something.

    It is None if there is none, or its body is already deleted.
    """
    alike = (
        IncomingDeliveryRow.event == waiting.event,
        IncomingDeliveryRow.size == len(waiting.body),
        IncomingDeliveryRow.state == IncomingState.started.value,
    )
    # Older ones have no body.
    recent = IncomingDeliveryRow.id >= floor(waiting.received_at - KEEP_BODIES)
    query = select(IncomingDeliveryRow.id, IncomingDeliveryRow.body).where(
        IncomingDeliveryRow.repository == repository,
        recent,
        IncomingDeliveryRow.id != waiting.id,
        *alike,
    )
    for incoming_id, body in session.execute(
        query.order_by(IncomingDeliveryRow.id.desc()).limit(MAX_ALIKE)
    ):
        if body is not None and zlib.decompress(body) == waiting.body:
            return str(incoming_id)
    return None


def due(session: Session, *, now: datetime | None = None, limit: int = 100) -> list[str]:
    """Return the ids of the deliveries to process now, in the order of arrival."""
    return list(session.scalars(INCOMING.due(select(IncomingDeliveryRow.id), now=now, limit=limit)))


def read(session: Session, incoming_id: str) -> WaitingDelivery | None:
    """Return a waiting delivery; None if it is already processed."""
    return _waiting(session.get(IncomingDeliveryRow, incoming_id))


def lock(session: Session, incoming_id: str) -> WaitingDelivery | None:
    """Lock a waiting delivery and return it; None if it is already processed.

    The caller then calls `ended` or `postponed` in the same transaction.
    """
    return _waiting(INCOMING.locked(session, incoming_id))


def ended(
    session: Session,
    incoming_id: str,
    state: IncomingState,
    *,
    reason: str | None = None,
    repository: str | None = None,
    outcome: Sequence[RuleOutcome] = (),
) -> None:
    """Store the outcome of a delivery that the caller has locked."""
    row = session.get_one(IncomingDeliveryRow, incoming_id)
    row.state, row.reason, row.ended_at = state.value, storable(reason), utcnow()
    row.repository, row.outcome = repository, [asdict(of_rule) for of_rule in outcome]
    INCOMING.done(row)
    session.flush()


def postponed(
    session: Session, incoming_id: str, reason: str, *, now: datetime | None = None
) -> None:
    """Record why a delivery could not be processed; it is retried, and given up at last."""
    row = INCOMING.locked(session, incoming_id)
    if row is not None:
        now = now or utcnow()
        row.reason = storable(reason)
        if not INCOMING.postponed(row, now=now):
            row.state, row.ended_at = IncomingState.failed.value, now
        session.flush()


def again(session: Session, incoming_id: str) -> IncomingDelivery | None:
    """Process a delivery again; None if it doesn't exist or its body is deleted.

    A delivery that started something stays as it is.
    """
    row = INCOMING.locked(session, incoming_id, ended=True)
    if row is None or row.body is None:
        return None
    if row.state in (IncomingState.ignored, IncomingState.failed):
        row.state, row.due_at = IncomingState.waiting.value, utcnow()
        row.reason = row.ended_at = None
        session.flush()
    return _delivery(IncomingDelivery, row)


def list_(
    session: Session,
    *,
    source: str | None = None,
    state: str | None = None,
    event: str | None = None,
    repository: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[IncomingDelivery]:
    """Return deliveries without their bodies, newest first. Raises BadCursor."""
    filters = {
        IncomingDeliveryRow.source: source,
        IncomingDeliveryRow.state: state,
        IncomingDeliveryRow.event: event,
        IncomingDeliveryRow.repository: repository,
    }
    table = IncomingDeliveryRow
    return newest_first(
        session,
        select(table).options(defer(table.body)),
        table.id,
        partial(_delivery, IncomingDelivery),
        limit=limit,
        cursor=cursor,
        filters=filters,
    )


def look(session: Session, incoming_id: str) -> tuple[IncomingDelivery, bytes | None] | None:
    """Return a delivery and its body (None: deleted), or None if there is no such delivery."""
    row = session.get(IncomingDeliveryRow, incoming_id) if is_id(incoming_id) else None
    if row is None:
        return None
    body = None if row.body is None else zlib.decompress(row.body)
    return _delivery(IncomingDelivery, row), body


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Delete the bodies of old deliveries; return their number.

    The rows stay, so that a redelivery starts nothing.
    """
    old = (
        IncomingDeliveryRow.ended_at < (now or utcnow()) - KEEP_BODIES,
        IncomingDeliveryRow.body.is_not(None),
    )
    emptied = session.execute(update(IncomingDeliveryRow).where(*old).values(body=None))
    return int(getattr(emptied, "rowcount", 0))


def _waiting(row: IncomingDeliveryRow | None) -> WaitingDelivery | None:
    if row is None or row.state != IncomingState.waiting or row.body is None:
        return None
    return _delivery(WaitingDelivery, row, body=zlib.decompress(row.body))


def _delivery(shape: type[AnyDelivery], row: IncomingDeliveryRow, **others: Any) -> AnyDelivery:
    return from_object(
        shape,
        row,
        source=HookSource(row.source),
        state=IncomingState(row.state),
        outcome=[RuleOutcome(**of_rule) for of_rule in row.outcome],
        **others,
    )
