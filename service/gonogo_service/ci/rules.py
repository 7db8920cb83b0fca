"""Rules about deliveries, each in its newest version; gonogo/ci/rules.py defines their meaning."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.versioned import Versioned


class CiRuleRow(Versioned):
    """The newest version of a rule: which events of which repositories start what."""

    __tablename__ = "ci_rules"

    @property
    def description(self) -> str:
        """Return what it is for."""
        return str(self.content.get("description", ""))

    @property
    def enabled(self) -> bool:
        """Return whether it starts anything."""
        return bool(self.content.get("enabled", True))

    @property
    def events(self) -> list[Any]:
        """Return the events that it matches."""
        return list(self.content["events"])

    @property
    def repositories(self) -> list[str]:
        """Return the names and patterns of its repositories."""
        return list(self.content["repositories"])

    @property
    def suites(self) -> int:
        """Return the number of suites that it starts."""
        return len(self.content.get("suites") or ())

    @property
    def gauges(self) -> int:
        """Return the number of gauges that it starts."""
        return len(self.content.get("gauges") or ())


def get(session: Session, name: str) -> CiRuleRow | None:
    """Return a rule in use, or None."""
    row = session.get(CiRuleRow, name)
    return None if row is None or row.archived_at is not None else row


def in_use(session: Session) -> list[CiRuleRow]:
    """Return all rules in use, by name."""
    query = select(CiRuleRow).where(CiRuleRow.archived_at.is_(None)).order_by(CiRuleRow.name)
    return list(session.scalars(query))
