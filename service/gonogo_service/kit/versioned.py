"""Named content in its newest version, which rules and suites have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.orm import Mapped, Session, mapped_column

from gonogo.spec.canonical import key_of
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import utcnow


class Versioned(Base):
    """The columns of content in its newest version; the same content makes no new version."""

    __abstract__ = True
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    key: Mapped[str] = mapped_column(doc="The digest of its content")
    content: Mapped[dict[str, Any]]
    owner: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]


V = TypeVar("V", bound=Versioned)


def put(
    session: Session, table: type[V], name: str, content: dict[str, Any], owner: str
) -> tuple[V, bool]:
    """Create or replace the content of that name.

    Returns (the content, whether it has a new version); equal content makes no new version.
    Archived content comes back with the next version.
    """
    key, now = key_of(content), utcnow()
    times = {"created_at": now, "updated_at": now}
    fresh = {"name": name, "version": 0, "key": "", "content": content, "owner": owner, **times}
    insert_once(session, table, [fresh])
    row = session.get_one(table, name, with_for_update=True, populate_existing=True)
    changed = row.key != key or row.archived_at is not None
    if changed:
        row.version += 1
        row.key, row.content, row.owner, row.updated_at = key, content, owner, now
        row.archived_at = None
        session.flush()
    return row, changed
