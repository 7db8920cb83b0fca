"""Suites: named lists of job templates, each in its newest version."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.suites.model import SuiteRow


def names(session: Session) -> list[str]:
    """Return the names of the suites that can run."""
    return list(session.scalars(select(SuiteRow.name).where(SuiteRow.archived_at.is_(None))))


def get(session: Session, name: str) -> SuiteRow | None:
    """Return a suite, archived or not; None when there is none of that name."""
    return session.get(SuiteRow, name)
