"""The audit log: who did what to what, written in the transaction of the action.

Entries join the chain at the transaction's end: one writer at a time may append, and a transaction
that took the chain's lock first and other locks later could wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import event, insert, select
from sqlalchemy.orm import Session

from gonogo_storage.access.audit_chain import BEFORE_THE_FIRST, CONTENT, Head, hash_of
from gonogo_storage.db import dialect
from gonogo_storage.db.encoding import decode, encode, timestamp, utcnow
from gonogo_storage.db.ids import new_id
from gonogo_storage.db.paging import Page, newest_first
from gonogo_storage.db.records import from_object
from gonogo_storage.tables import AuditRow

EXPORT_PAGE = 1000
_ROOM = 0x61756474
"""The room of the chain's lock; its letters are "audt"."""
_PENDING = "gonogo_audit"


def record(
    session: Session, *, actor: str, action: str, subject: str, detail: dict[str, Any] | None = None
) -> None:
    """Add an entry.

    `action` is noun.verb ("token.revoked"). `subject` is the id or name of the object.
    """
    session.info.setdefault(_PENDING, []).append(
        {"actor": actor, "action": action, "subject": subject, "detail": detail}
    )


@event.listens_for(Session, "before_commit")
def _append(session: Session) -> None:
    """Append the transaction's entries to the chain, which no other transaction can then touch."""
    pending = session.info.pop(_PENDING, None)
    if not pending:
        return
    session.flush()  # first: nothing may wait for a row's lock while it holds the chain's
    dialect.lock(session, _ROOM, "audit")
    last = head(session)
    rows = []
    for entry in pending:
        row = {
            "number": last.number + 1,
            "id": new_id(),
            # whole microseconds, and detail as the database gives it back: the hash is of that
            "at": utcnow(),
            **entry,
            "detail": None if entry["detail"] is None else decode(encode(entry["detail"])),
            "previous": last.hash,
        }
        row["hash"] = hash_of({**row, "at": timestamp(row["at"])})
        rows.append(row)
        last = Head(row["number"], row["hash"])
    session.execute(insert(AuditRow), rows)


@event.listens_for(Session, "after_rollback")
def _forget(session: Session) -> None:
    session.info.pop(_PENDING, None)


def head(session: Session) -> Head:
    """Return the chain's last entry; the number 0 and zeros before the first one."""
    query = select(AuditRow.number, AuditRow.hash).order_by(AuditRow.number.desc()).limit(1)
    last = session.execute(query).first()
    return Head(0, BEFORE_THE_FIRST) if last is None else Head(last.number, last.hash)


def export(session: Session, *, after: int = 0, limit: int = EXPORT_PAGE) -> list[dict[str, Any]]:
    """Return entries in the order of the chain, as an export writes them."""
    query = select(AuditRow).where(AuditRow.number > after).order_by(AuditRow.number).limit(limit)
    return [
        {**{name: getattr(row, name) for name in (*CONTENT, "hash")}, "at": timestamp(row.at)}
        for row in session.scalars(query)
    ]


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log, as its chain has it."""

    id: str
    number: int
    """Its place in the chain, from 1 without gaps"""
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any] | None
    previous: str
    """The hash of the entry before it"""
    hash: str
    """SHA-256 of its content and of `previous`"""


@dataclass(frozen=True)
class AuditFilter:
    """The filter of a list of entries."""

    action: str | None = None
    actor: str | None = None
    subject: str | None = None


def list_(
    session: Session,
    filters: AuditFilter | None = None,
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[AuditEntry]:
    """Return entries, newest first. Raises BadCursor."""
    filters = filters or AuditFilter()
    table = AuditRow
    columns = {
        table.action: filters.action,
        table.actor: filters.actor,
        table.subject: filters.subject,
    }
    entry = partial(from_object, AuditEntry)
    return newest_first(
        session, select(table), table.id, entry, limit=limit, cursor=cursor, filters=columns
    )
