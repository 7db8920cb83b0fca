"""Suites: named lists of job templates, each in its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.suites import versioned
from gonogo_service.suites.model import SuiteRow
from gonogo_service.suites.versioned import Versioned


@dataclass(frozen=True)
class Suite(Versioned):
    """A suite in its newest version."""


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
    return versioned.put(session, SuiteRow, Suite, name, content, owner=owner, now=now)


def get(session: Session, name: str) -> Suite | None:
    """Return a suite, archived or not; None when there is none of that name."""
    row = session.get(SuiteRow, name)
    return None if row is None else from_object(Suite, row)


def list_(
    session: Session, *, archived: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[Suite]:
    """Return suites by name; archived ones only when `archived`."""
    return versioned.listed(session, SuiteRow, Suite, archived=archived, limit=limit, cursor=cursor)


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
