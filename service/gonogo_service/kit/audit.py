"""The audit log: who did what to what, written in the transaction of the action.

Entries are only ever added.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, Session, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id


class AuditRow(Base):
    """An entry of the audit log."""

    __tablename__ = "audit"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    detail: Mapped[dict[str, Any] | None]


def record(
    session: Session, *, actor: str, action: str, subject: str, detail: dict[str, Any] | None = None
) -> None:
    """Add an entry.

    `action` is noun.verb ("token.revoked"). `subject` is the id or name of the object.
    """
    entry = {"actor": actor, "action": action, "subject": subject, "detail": detail}
    session.add(AuditRow(id=new_id(), at=utcnow(), **entry))
