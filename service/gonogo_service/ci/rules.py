"""Rules about deliveries, each in its newest version; gonogo/ci/rules.py defines their meaning."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.ci.model import CiRuleRow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.suites import versioned
from gonogo_service.suites.versioned import Versioned


@dataclass(frozen=True)
class CiRule(Versioned):
    """A rule in its newest version."""


def put(
    session: Session, name: str, content: dict[str, Any], *, owner: str, now: datetime
) -> tuple[CiRule, bool]:
    """Create or replace the rule of that name.

    Returns (the rule, whether it has a new version); equal content makes no new version.
    """
    return versioned.put(session, CiRuleRow, CiRule, name, content, owner=owner, now=now)


def get(session: Session, name: str) -> CiRule | None:
    """Return a rule in use, or None."""
    row = session.get(CiRuleRow, name)
    return None if row is None or row.archived_at is not None else from_object(CiRule, row)


def list_(session: Session, *, limit: int = 50, cursor: str | None = None) -> Page[CiRule]:
    """Return rules in use, by name."""
    return versioned.listed(session, CiRuleRow, CiRule, limit=limit, cursor=cursor)


def in_use(session: Session) -> list[CiRule]:
    """Return all rules in use, by name."""
    return [
        from_object(CiRule, row)
        for row in session.scalars(
            select(CiRuleRow).where(CiRuleRow.archived_at.is_(None)).order_by(CiRuleRow.name)
        )
    ]


def archive(session: Session, name: str, *, now: datetime) -> CiRule | None:
    """Archive a rule; None when there is no such one in use. The runs that it started stay."""
    row = session.get(CiRuleRow, name, with_for_update=True)
    if row is None or row.archived_at is not None:
        return None
    row.archived_at = row.updated_at = now
    row.version += 1
    session.flush()
    return from_object(CiRule, row)


def others(session: Session, names: Collection[str]) -> list[str]:
    """Return the names of the rules in use that are not among these."""
    return [
        name
        for name in session.scalars(select(CiRuleRow.name).where(CiRuleRow.archived_at.is_(None)))
        if name not in names
    ]
