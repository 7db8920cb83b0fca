"""Named content in its newest version, which rules and suites have in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.canonical import key_of
from gonogo_service.ci.model import CiRuleRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.suites.model import SuiteRow


@dataclass(frozen=True)
class Versioned:
    """Content in its newest version."""

    name: str
    version: int
    key: str
    """The digest of its content"""
    content: dict[str, Any]
    owner: str
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


AnyVersioned = TypeVar("AnyVersioned", bound=Versioned)
Table = type[CiRuleRow] | type[SuiteRow]


def put(
    session: Session,
    table: Table,
    shape: type[AnyVersioned],
    name: str,
    content: dict[str, Any],
    *,
    owner: str,
    now: datetime,
) -> tuple[AnyVersioned, bool]:
    """Create or replace the content of that name.

    Returns (the content, whether it has a new version); equal content makes no new version.
    Archived content comes back with the next version.
    """
    key = key_of(content)
    times = {"created_at": now, "updated_at": now}
    fresh = {"name": name, "version": 0, "key": "", "content": content, "owner": owner, **times}
    insert_once(session, table, [fresh])
    row: Any = session.get_one(table, name, with_for_update=True, populate_existing=True)
    changed = row.key != key or row.archived_at is not None
    if changed:
        row.version += 1
        row.key, row.content, row.owner, row.updated_at = key, content, owner, now
        row.archived_at = None
        session.flush()
    return from_object(shape, row), changed


def listed(
    session: Session,
    table: Table,
    shape: type[AnyVersioned],
    *,
    archived: bool = False,
    limit: int,
    cursor: str | None,
) -> Page[AnyVersioned]:
    """Return a page by name; archived content only when `archived`. The cursor is a name."""
    query = select(table).order_by(table.name).limit(limit + 1)
    if not archived:
        query = query.where(table.archived_at.is_(None))
    if cursor is not None:
        query = query.where(table.name > cursor)
    items = [from_object(shape, row) for row in session.scalars(query)]
    return Page.cut(items, limit, lambda item: item.name)
