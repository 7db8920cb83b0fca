"""Registered builds.

The emulator's builds are code (`gonogo.spec.builds`); callers look there as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import and_, func, literal, or_, select
from sqlalchemy.orm import Session

from gonogo.spec.builds import Build
from gonogo_service.builds.model import BuildRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.encoding import utcnow

_ROOM = 3
MIN_COMMIT_DIGITS = 7
"""Minimum number of digits that identify a commit."""


class BuildExists(ValueError):
    """Another build has this name; the meaning of a name never changes."""


def lock(session: Session) -> None:
    """Let no other transaction register a build until this one ends."""
    dialect.lock(session, _ROOM, "builds")


def add(session: Session, *, sequence: int | None = None, **fields: Any) -> BuildRow:
    """Register a build of these fields of gonogo.spec.builds.Build, unless it is registered.

    A sequence of None is the branch's next one, or the one that the build has already. Raises
    BuildExists if another build has the name.
    """
    lock(session)
    build = Build(**fields)
    row = session.get(BuildRow, build.name)
    if sequence is None:
        largest = select(func.max(BuildRow.sequence)).where(BuildRow.branch == build.branch)
        sequence = 1 + (session.scalar(largest) or 0) if row is None else row.sequence
    new = BuildRow.of(replace(build, sequence=sequence), utcnow())
    if row is None:
        session.add(new)
        session.flush()
        return new
    if row.build != new.build:
        raise BuildExists(build.name)
    return row


def get(session: Session, name: str) -> BuildRow | None:
    """Return a registered build, or None."""
    return session.get(BuildRow, name)


def has_jobs(session: Session, name: str) -> bool:
    """Return whether a job runs a build, or compares another build with it."""
    has_it = or_(JobRow.build == name, JobRow.reference == name)
    return session.scalar(select(JobRow.id).where(has_it).limit(1)) is not None


def of_branch(session: Session, branch: str, executor: str) -> list[Build]:
    """Return the registered builds of a branch that an executor runs."""
    query = select(BuildRow).where(BuildRow.branch == branch, BuildRow.executor == executor)
    return [row.build for row in session.scalars(query)]


def has_branch(session: Session, branch: str) -> bool:
    """Return whether a registered build is of the branch."""
    query = select(BuildRow.name).where(BuildRow.branch == branch).limit(1)
    return session.scalar(query) is not None


def first(session: Session, limit: int) -> list[BuildRow]:
    """Return registered builds, the first ones by name."""
    return list(session.scalars(select(BuildRow).order_by(BuildRow.name).limit(limit)))


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
