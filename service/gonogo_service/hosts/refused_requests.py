"""Refused requests of hosts: counted by reason, audited at most once an hour, flagged."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.hosts.model import HostRow, RefusedRequestRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable

AUDIT_EVERY = timedelta(hours=1)
"""A flood of refused requests must not fill the audit log."""
MAX_DETAIL = 500
FLAGGED = frozenset({"sender", "conflict"})
"""The reasons that only a wrong or hostile host gives."""


def record(session: Session, sender: str, reason: str, detail: str, *, now: datetime) -> None:
    """Count a refused request. `sender` is the host."""
    detail = (storable(detail) or "")[:MAX_DETAIL]
    long_ago = now - 2 * AUDIT_EVERY
    first = {
        "sender": sender,
        "reason": reason,
        "count": 0,
        "detail": detail,
        "last_at": now,
        "audited_at": long_ago,
    }
    insert_once(session, RefusedRequestRow, [first])
    row = session.get_one(
        RefusedRequestRow, (sender, reason), with_for_update=True, populate_existing=True
    )
    row.count += 1
    row.detail, row.last_at = detail, now
    if now - row.audited_at >= AUDIT_EVERY:
        row.audited_at = now
        audit.record(
            session,
            actor=f"host:{sender}",
            action="request.refused",
            subject=sender,
            detail={"reason": reason, "detail": detail, "count": row.count},
        )
    if reason in FLAGGED:
        host = session.scalar(select(HostRow).where(HostRow.name == sender).with_for_update())
        if host is not None:
            host.flagged_at, host.flag_reason = now, detail


def counts(session: Session) -> dict[tuple[str, str], int]:
    """Return the numbers of refused requests by (sender, reason)."""
    query = select(RefusedRequestRow.sender, RefusedRequestRow.reason, RefusedRequestRow.count)
    return {(sender, reason): count for sender, reason, count in session.execute(query)}
