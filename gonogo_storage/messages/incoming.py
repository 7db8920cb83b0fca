"""Deliveries that came in: kept as they came, once per sender's id, until the background has worked
them off.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import storable, timestamp, utcnow
from gonogo_storage.db.ids import floor, is_id, new_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import HookSource, InboundState
from gonogo_storage.tables import InboundRow

KEEP_BODIES = timedelta(days=30)
LEVEL = 1
"""Of zlib: a payload shrinks to a fifth, in a millisecond."""


@dataclass(frozen=True)
class Inbound:
    """A delivery that waits, with its body as it came."""

    id: str
    source: HookSource
    delivery: str
    event: str
    body: bytes
    tries: int
    received_at: datetime


def store(
    session: Session,
    source: HookSource,
    delivery: str,
    event: str,
    body: bytes,
    *,
    now: datetime | None = None,
) -> tuple[str, bool]:
    """Keep a delivery to be worked off; its id here, and whether it is new: of the same sender's id
    the first one stays.
    """
    now = now or utcnow()
    fresh: dict[str, Any] = {
        "id": new_id(),
        "source": source.value,
        "delivery": delivery,
        "event": event,
        "body": zlib.compress(body, LEVEL),
        "size": len(body),
        "state": InboundState.waiting.value,
        "outcome": [],
        "tries": 0,
        "due_at": now,
        "received_at": now,
    }
    insert_once(session, InboundRow, [fresh])
    found = session.scalar(
        select(InboundRow.id).where(
            InboundRow.source == source.value, InboundRow.delivery == delivery
        )
    )
    return str(found), found == fresh["id"]


def known(session: Session, source: HookSource, deliveries: Collection[str]) -> set[str]:
    """Those of the sender's ids that came in before."""
    query = select(InboundRow.delivery).where(
        InboundRow.source == source.value, InboundRow.delivery.in_(deliveries)
    )
    return set(session.scalars(query))


def same_before(
    session: Session, waiting: Inbound, repository: str, *, most: int = 20
) -> str | None:
    """An earlier delivery of the same event with the very same body that started something; None
    when none is known any more.
    """
    alike = (
        InboundRow.event == waiting.event,
        InboundRow.size == len(waiting.body),
        InboundRow.state == InboundState.started.value,
    )
    young = InboundRow.id >= floor(waiting.received_at - KEEP_BODIES)  # older ones have no body
    query = select(InboundRow.id, InboundRow.body).where(
        InboundRow.repository == repository, young, InboundRow.id != waiting.id, *alike
    )
    for inbound_id, body in session.execute(query.order_by(InboundRow.id.desc()).limit(most)):
        if body is not None and zlib.decompress(body) == waiting.body:
            return str(inbound_id)
    return None


def due(session: Session, *, now: datetime | None = None, limit: int = 100) -> list[str]:
    """Ids of what is to be worked off now, in the order of arrival."""
    query = (
        select(InboundRow.id)
        .where(InboundRow.due_at <= (now or utcnow()))
        .order_by(InboundRow.due_at, InboundRow.id)
        .limit(limit)
    )
    return list(session.scalars(query))


def read(session: Session, inbound_id: str) -> Inbound | None:
    """A delivery that waits; None if it is worked off."""
    return _waiting(session.get(InboundRow, inbound_id))


def lock(session: Session, inbound_id: str) -> Inbound | None:
    """The same, its row locked and freshly read: whoever has it says `ended` or `postponed` in the
    same transaction.
    """
    return _waiting(
        session.get(InboundRow, inbound_id, with_for_update=True, populate_existing=True)
    )


def ended(
    session: Session,
    inbound_id: str,
    state: InboundState,
    *,
    reason: str | None = None,
    repository: str | None = None,
    outcome: Sequence[dict[str, Any]] = (),
    now: datetime | None = None,
) -> None:
    """What became of a delivery that the caller has locked."""
    row = session.get_one(InboundRow, inbound_id)
    row.state, row.reason, row.repository, row.outcome = (
        state.value,
        storable(reason),
        repository,
        list(outcome),
    )
    row.due_at, row.ended_at = None, now or utcnow()
    row.tries += 1
    session.flush()


def postponed(session: Session, inbound_id: str, reason: str, until: datetime) -> None:
    """It could not be worked off: it is tried again later."""
    row = session.get(InboundRow, inbound_id, with_for_update=True, populate_existing=True)
    if row is not None and row.state == InboundState.waiting:
        row.tries += 1
        row.reason, row.due_at = storable(reason), until
        session.flush()


def again(
    session: Session, inbound_id: str, *, now: datetime | None = None
) -> dict[str, Any] | None:
    """Work a delivery off once more; None if there is none, or its body is forgotten. One that
    started something stays as it is.
    """
    row = (
        session.get(InboundRow, inbound_id, with_for_update=True, populate_existing=True)
        if is_id(inbound_id)
        else None
    )
    if row is None or row.body is None:
        return None
    if row.state in (InboundState.ignored, InboundState.failed):
        row.state, row.reason, row.ended_at, row.due_at = (
            InboundState.waiting.value,
            None,
            None,
            now or utcnow(),
        )
        session.flush()
    return _json(row)


def list_(
    session: Session,
    *,
    source: str | None = None,
    state: str | None = None,
    event: str | None = None,
    repository: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """Deliveries without their bodies, newest first. Raises BadCursor."""
    columns = [each for each in InboundRow.__table__.columns if each.name != "body"]
    query = select(*columns).order_by(InboundRow.id.desc()).limit(limit + 1)
    wanted = (
        (InboundRow.source, source),
        (InboundRow.state, state),
        (InboundRow.event, event),
        (InboundRow.repository, repository),
    )
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(InboundRow.id < cursor)
    return Page.cut(
        [_json(row) for row in session.execute(query)], limit, lambda item: str(item["id"])
    )


def look(session: Session, inbound_id: str) -> tuple[dict[str, Any], bytes | None] | None:
    """A delivery and its body (None: forgotten), or None."""
    row = session.get(InboundRow, inbound_id) if is_id(inbound_id) else None
    return (
        None
        if row is None
        else (_json(row), None if row.body is None else zlib.decompress(row.body))
    )


def purge(session: Session, *, now: datetime | None = None) -> int:
    """Forget the bodies of old deliveries; that they came is remembered, so that a redelivery
    starts nothing. The number of bodies.
    """
    old = (InboundRow.ended_at < (now or utcnow()) - KEEP_BODIES, InboundRow.body.is_not(None))
    gone = session.execute(update(InboundRow).where(*old).values(body=None))
    return int(getattr(gone, "rowcount", 0))


def newest(session: Session, source: HookSource) -> datetime | None:
    """When the last delivery came in."""
    query = (
        select(InboundRow.received_at)
        .where(InboundRow.source == source.value)
        .order_by(InboundRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def _waiting(row: InboundRow | None) -> Inbound | None:
    if row is None or row.state != InboundState.waiting or row.body is None:
        return None
    body = zlib.decompress(row.body)
    return Inbound(
        row.id, HookSource(row.source), row.delivery, row.event, body, row.tries, row.received_at
    )


def _json(row: Any) -> dict[str, Any]:
    same = (
        "id",
        "source",
        "delivery",
        "event",
        "repository",
        "size",
        "state",
        "reason",
        "outcome",
        "tries",
    )
    times = ("due_at", "received_at", "ended_at")
    return {
        **{name: getattr(row, name) for name in same},
        **{name: timestamp(getattr(row, name)) for name in times},
    }
