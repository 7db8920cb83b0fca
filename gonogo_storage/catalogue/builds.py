"""Builds that an administrator registered. The emulator's own builds are code: `gonogo.spec.builds`;
callers look there as well.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, literal, or_, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.paging import Page
from gonogo_storage.tables import BuildRow

LEAST_DIGITS = 7
"""Of a commit, to tell it from others."""


class BuildExists(ValueError):
    """Another build has this name; what a name means never changes."""


def add(
    session: Session,
    *,
    name: str,
    executor: str,
    branch: str,
    sequence: int,
    commit: str | None = None,
    arithmetic: str | None = None,
    outputs: list[str] | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Register a build; the same one again is no error. Raises BuildExists when the name stands for
    another.
    """
    fields = {
        "executor": executor,
        "branch": branch,
        "sequence": sequence,
        "commit": commit,
        "arithmetic": arithmetic,
        "outputs": outputs,
    }
    row = session.get(BuildRow, name)
    if row is None:
        row = BuildRow(name=name, created_at=now or utcnow(), **fields)
        session.add(row)
        session.flush()
    elif {field: getattr(row, field) for field in fields} != fields:
        raise BuildExists(name)
    return _build(row)


def get(session: Session, name: str) -> dict[str, Any] | None:
    """{"name", "executor", "branch", "sequence", "commit", "arithmetic", "outputs", "created_at"}, or
    None.
    """
    row = session.get(BuildRow, name)
    return None if row is None else _build(row)


def list_(
    session: Session,
    *,
    executor: str | None = None,
    branch: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """Builds in the order of their names."""
    query = select(BuildRow).order_by(BuildRow.name).limit(limit + 1)
    if executor is not None:
        query = query.where(BuildRow.executor == executor)
    if branch is not None:
        query = query.where(BuildRow.branch == branch)
    if cursor is not None:
        query = query.where(BuildRow.name > cursor)
    return Page.cut(
        [_build(row) for row in session.scalars(query)], limit, lambda item: str(item["name"])
    )


def of_commit(session: Session, sha: str) -> str | None:
    """The name of the build that was registered for a commit (in full, or by its first digits); of
    several the newest.
    """
    named = or_(
        BuildRow.commit == sha,
        and_(
            func.length(BuildRow.commit) >= LEAST_DIGITS,
            func.substr(literal(sha), 1, func.length(BuildRow.commit)) == BuildRow.commit,
        ),
    )
    return session.scalar(
        select(BuildRow.name)
        .where(named)
        .order_by(BuildRow.created_at.desc(), BuildRow.name)
        .limit(1)
    )


def next_sequence(session: Session, branch: str) -> int:
    """A place after every registered build of a branch."""
    return 1 + (
        session.scalar(select(func.max(BuildRow.sequence)).where(BuildRow.branch == branch)) or 0
    )


def _build(row: BuildRow) -> dict[str, Any]:
    names = ("name", "executor", "branch", "sequence", "commit", "arithmetic", "outputs")
    return {**{name: getattr(row, name) for name in names}, "created_at": timestamp(row.created_at)}
