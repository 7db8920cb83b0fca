"""Rules about deliveries, each in its newest version; gonogo/ci/rules.py defines their meaning."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.ci.model import CiRuleRow


def get(session: Session, name: str) -> CiRuleRow | None:
    """Return a rule in use, or None."""
    row = session.get(CiRuleRow, name)
    return None if row is None or row.archived_at is not None else row


def in_use(session: Session) -> list[CiRuleRow]:
    """Return all rules in use, by name."""
    query = select(CiRuleRow).where(CiRuleRow.archived_at.is_(None)).order_by(CiRuleRow.name)
    return list(session.scalars(query))
