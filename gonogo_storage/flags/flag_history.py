"""The history of flags: a row per change that matters to people, and messages to subscribers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp
from gonogo_storage.messages import outbox
from gonogo_storage.tables import FlagChangeRow, FlagRow

BACKGROUND = "background"
"""The actor of changes that follow from results or from the time."""
MAX_CHANGES = 200


def note(
    session: Session,
    row: FlagRow,
    what: str,
    before: str | None,
    *,
    actor: str,
    now: datetime,
    reason: str | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Add the latest change of a flag to its history.

    The flag already has its new version, which makes the row unique.
    """
    session.add(
        FlagChangeRow(
            flag_id=row.id,
            version=row.version,
            at=now,
            actor=actor,
            what=what,
            before=before,
            after=row.state,
            reason=reason,
            detail=detail,
        )
    )


def publish(session: Session, row: FlagRow, topic: str, *, now: datetime) -> None:
    """Add the message `flag.opened` or `flag.resolved` to the outbox, once per flag version."""
    outbox.add(
        session,
        topic,
        f"{topic}:{row.id}:{row.version}",
        {"flag": row.id, "version": row.version},
        now=now,
    )


def of(session: Session, flag_id: str) -> list[dict[str, Any]]:
    """Return the newest changes of a flag, newest first.

    [{"version", "at", "actor", "what", "before", "after", "reason", "detail"}]
    """
    query = (
        select(FlagChangeRow)
        .where(FlagChangeRow.flag_id == flag_id)
        .order_by(FlagChangeRow.version.desc())
        .limit(MAX_CHANGES)
    )
    return [
        {
            "version": row.version,
            "at": timestamp(row.at),
            "actor": row.actor,
            "what": row.what,
            "before": row.before,
            "after": row.after,
            "reason": row.reason,
            "detail": row.detail,
        }
        for row in session.scalars(query)
    ]
