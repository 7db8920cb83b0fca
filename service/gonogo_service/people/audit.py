"""The audit log: who did what to what, written in the transaction of the action.

Entries are only ever added.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.people.model import AuditRow

EXPORT_PAGE = 1000


def record(
    session: Session, *, actor: str, action: str, subject: str, detail: dict[str, Any] | None = None
) -> None:
    """Add an entry.

    `action` is noun.verb ("token.revoked"). `subject` is the id or name of the object.
    """
    session.add(
        AuditRow(
            id=new_id(), at=utcnow(), actor=actor, action=action, subject=subject, detail=detail
        )
    )


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log."""

    id: str
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any] | None


def export(session: Session, *, after: str | None = None) -> list[dict[str, Any]]:
    """Return EXPORT_PAGE entries, oldest first, as an export writes them.

    `after` is the id of the last one that was written.
    """
    query = select(AuditRow).order_by(AuditRow.id).limit(EXPORT_PAGE)
    if after is not None:
        query = query.where(AuditRow.id > after)
    return [
        asdict(from_object(AuditEntry, row)) | {"at": timestamp(row.at)}
        for row in session.scalars(query)
    ]


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
