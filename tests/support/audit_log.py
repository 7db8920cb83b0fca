"""The entries of the audit log, for tests."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.audit import AuditRow


def entries(session: Session, **fields: str) -> list[AuditRow]:
    """The entries with these fields, newest first."""
    query = select(AuditRow).filter_by(**fields).order_by(AuditRow.id.desc())
    return list(session.scalars(query))
