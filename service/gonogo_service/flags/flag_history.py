"""The history of flags: a row per change that matters to people, and messages to subscribers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.flags.evidence_kinds import FlagDetail
from gonogo_service.flags.model import FlagChangeRow, FlagRow
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.database.states import FlagState
from gonogo_service.kit.outbox import outbox

BACKGROUND = "background"
"""The actor of changes that follow from results or from the time."""
MAX_CHANGES = 200


@dataclass(frozen=True)
class FlagEntry:
    """One change of a flag; `actor` is a token's name, or `background` for automatic changes."""

    version: int
    at: datetime
    actor: str
    what: Literal["opened", "reopened", "resolved", "expired", "changed"]
    before: FlagState | None
    after: FlagState
    reason: str | None
    detail: Annotated[dict[str, Any], Documented(FlagDetail)] | None


def resolved_at(session: Session, flag_id: str) -> datetime | None:
    """Return when a flag was last resolved; None if it never was."""
    table = FlagChangeRow
    query = select(table.at).where(table.flag_id == flag_id, table.what == "resolved")
    return session.scalar(query.order_by(table.version.desc()).limit(1))


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


def of(session: Session, flag_id: str) -> list[FlagEntry]:
    """Return the newest changes of a flag, newest first."""
    query = (
        select(FlagChangeRow)
        .where(FlagChangeRow.flag_id == flag_id)
        .order_by(FlagChangeRow.version.desc())
        .limit(MAX_CHANGES)
    )
    return [
        from_object(
            FlagEntry,
            row,
            before=None if row.before is None else FlagState(row.before),
            after=FlagState(row.after),
        )
        for row in session.scalars(query)
    ]
