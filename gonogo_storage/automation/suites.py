"""Suites: named lists of job templates, each in its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.canonical import key_of
from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.paging import Page
from gonogo_storage.db.records import from_object
from gonogo_storage.tables import SuiteRow


@dataclass(frozen=True)
class Suite:
    """A suite in its newest version."""

    name: str
    version: int
    key: str
    """The digest of its content"""
    content: dict[str, Any]
    owner: str
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


def names(session: Session) -> list[str]:
    """Return the names of the suites that can run."""
    return list(session.scalars(select(SuiteRow.name).where(SuiteRow.archived_at.is_(None))))


def put(
    session: Session, name: str, content: dict[str, Any], *, owner: str, now: datetime
) -> tuple[Suite, bool]:
    """Create or replace the suite of that name.

    Returns (the suite, whether it has a new version); equal content makes no new version. An
    archived suite comes back with the next version.
    """
    key = key_of(content)
    fresh = {
        "name": name,
        "version": 0,
        "key": "",
        "content": content,
        "owner": owner,
        "created_at": now,
        "updated_at": now,
    }
    insert_once(session, SuiteRow, [fresh])
    row = session.execute(
        select(SuiteRow).where(SuiteRow.name == name).with_for_update()
    ).scalar_one()
    changed = row.key != key or row.archived_at is not None
    if changed:
        row.version += 1
        row.key, row.content, row.owner, row.updated_at, row.archived_at = (
            key,
            content,
            owner,
            now,
            None,
        )
        session.flush()
    return from_object(Suite, row), changed


def get(session: Session, name: str) -> Suite | None:
    """Return a suite, archived or not; None when there is none of that name."""
    row = session.get(SuiteRow, name)
    return None if row is None else from_object(Suite, row)


def list_(
    session: Session, *, archived: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[Suite]:
    """Return suites by name; archived ones only when `archived`."""
    query = select(SuiteRow).order_by(SuiteRow.name).limit(limit + 1)
    if not archived:
        query = query.where(SuiteRow.archived_at.is_(None))
    if cursor is not None:
        query = query.where(SuiteRow.name > cursor)
    return Page.cut(
        [from_object(Suite, row) for row in session.scalars(query)], limit, lambda suite: suite.name
    )


def archive(session: Session, name: str, *, now: datetime) -> tuple[Suite, bool] | None:
    """Archive a suite; its runs stay.

    Returns (the suite, whether it was in use until now); None when there is no such suite.
    """
    row = session.get(SuiteRow, name, with_for_update=True)
    if row is None:
        return None
    changed = row.archived_at is None
    if changed:
        row.archived_at = row.updated_at = now
        session.flush()
    return from_object(Suite, row), changed
