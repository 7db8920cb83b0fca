"""Registered builds.

The emulator's builds are code (`gonogo.spec.builds`); callers look there as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, literal, or_, select
from sqlalchemy.orm import Session

from gonogo.spec.builds import Build
from gonogo_service.builds.model import BuildRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object

MIN_COMMIT_DIGITS = 7
"""Minimum number of digits that identify a commit."""


@dataclass(frozen=True)
class ListedBuild(Build):
    """A build; `created_at` is null for built-in builds."""

    created_at: datetime | None = None


class BuildExists(ValueError):
    """Another build has this name; the meaning of a name never changes."""


class BuildInUse(ValueError):
    """A job has this build: its results would be of something unknown."""


def add(
    session: Session,
    *,
    name: str,
    executor: str,
    branch: str,
    sequence: int | None,
    commit: str | None = None,
    arithmetic: str | None = None,
    outputs: Sequence[str] | None = None,
    now: datetime | None = None,
) -> ListedBuild:
    """Register a build, or do nothing if it is registered already.

    A sequence of None is the branch's next one, or the one that the build has already. Raises
    BuildExists if another build has the name.
    """
    fields: dict[str, object] = {
        "executor": executor,
        "branch": branch,
        "sequence": sequence,
        "commit": commit,
        "arithmetic": arithmetic,
        "outputs": None if outputs is None else list(outputs),
    }
    row = session.get(BuildRow, name)
    if sequence is None:
        fields["sequence"] = next_sequence(session, branch) if row is None else row.sequence
    if row is None:
        row = BuildRow(name=name, created_at=now or utcnow(), **fields)
        session.add(row)
        session.flush()
    elif {field: getattr(row, field) for field in fields} != fields:
        raise BuildExists(name)
    return _build(row)


def get(session: Session, name: str) -> ListedBuild | None:
    """Return a build, or None."""
    row = session.get(BuildRow, name)
    return None if row is None else _build(row)


def remove(session: Session, name: str) -> ListedBuild | None:
    """Remove a registered build that no job has, and return it; None if there is none.

    Raises BuildInUse.
    """
    row = session.get(BuildRow, name)
    if row is None:
        return None
    for column in (JobRow.build, JobRow.reference):
        if session.scalar(select(JobRow.id).where(column == name).limit(1)) is not None:
            raise BuildInUse(name)
    session.delete(row)
    return _build(row)


def list_(
    session: Session,
    *,
    executor: str | None = None,
    branch: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[ListedBuild]:
    """Return builds in the order of their names."""
    query = select(BuildRow).order_by(BuildRow.name).limit(limit + 1)
    if executor is not None:
        query = query.where(BuildRow.executor == executor)
    if branch is not None:
        query = query.where(BuildRow.branch == branch)
    if cursor is not None:
        query = query.where(BuildRow.name > cursor)
    return Page.cut(
        [_build(row) for row in session.scalars(query)], limit, lambda build: build.name
    )


def of_commit(session: Session, sha: str) -> str | None:
    """Return the name of the newest build that is registered for a commit, or None.

    A build may name the commit in full or by its first digits.
    """
    same_commit = or_(
        BuildRow.commit == sha,
        and_(
            func.length(BuildRow.commit) >= MIN_COMMIT_DIGITS,
            func.substr(literal(sha), 1, func.length(BuildRow.commit)) == BuildRow.commit,
        ),
    )
    return session.scalar(
        select(BuildRow.name)
        .where(same_commit)
        .order_by(BuildRow.created_at.desc(), BuildRow.name)
        .limit(1)
    )


def next_sequence(session: Session, branch: str) -> int:
    """Return the next sequence number of a branch, after all its registered builds."""
    return 1 + (
        session.scalar(select(func.max(BuildRow.sequence)).where(BuildRow.branch == branch)) or 0
    )


def _build(row: BuildRow) -> ListedBuild:
    outputs = None if row.outputs is None else tuple(row.outputs)
    return from_object(ListedBuild, row, outputs=outputs)
