"""Flags: open findings about a test, one per kind, test, build line and board, with their evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.dialect import insert_once
from storage.encoding import timestamp
from storage.ids import is_id, new_id
from storage.paging import BadCursor, Page
from storage.states import FlagKind, FlagState
from storage.tables import FlagRow


@dataclass(frozen=True)
class Finding:
    """What a closed job found; the first five fields are the flag's identity."""

    kind: FlagKind
    test_key: str
    build_line: str
    arch: str
    board: str
    subject_key: str
    kernel: str
    build: str
    job: str
    evidence: dict[str, Any]


def upsert(session: Session, finding: Finding, *, now: datetime) -> tuple[dict[str, Any], bool]:
    """Open the flag or renew its evidence; a resolved one is reopened. The flag, and whether it was opened or reopened just now."""
    fresh = {
        "id": new_id(),
        "kind": finding.kind.value,
        "state": FlagState.open.value,
        "test_key": finding.test_key,
        "subject_key": finding.subject_key,
        "kernel": finding.kernel,
        "build": finding.build,
        "build_line": finding.build_line,
        "arch": finding.arch,
        "board": finding.board,
        "evidence": finding.evidence,
        "first_job": finding.job,
        "last_job": finding.job,
        "jobs": 0,
        "version": 0,
        "opened_at": now,
        "updated_at": now,
    }
    insert_once(session, FlagRow, [fresh])
    identity = (FlagRow.kind, FlagRow.test_key, FlagRow.build_line, FlagRow.arch, FlagRow.board)
    values = (finding.kind.value, finding.test_key, finding.build_line, finding.arch, finding.board)
    query = select(FlagRow).where(*(column == value for column, value in zip(identity, values, strict=True)))
    row = session.execute(query.with_for_update()).scalar_one()
    opened = row.version == 0 or row.state == FlagState.resolved
    if row.state == FlagState.resolved:
        row.state, row.opened_at = FlagState.reopened, now
    row.evidence, row.build, row.last_job, row.updated_at = finding.evidence, finding.build, finding.job, now
    row.jobs += 1
    row.version += 1
    session.flush()
    return _flag(row), opened


def list_(
    session: Session,
    *,
    kind: str | None = None,
    state: str | None = None,
    test: str | None = None,
    job: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """Flags, newest first; `state="open"` includes reopened ones; `job` = flags whose evidence is of that job. Raises BadCursor."""
    query = select(FlagRow).order_by(FlagRow.id.desc()).limit(limit + 1)
    if kind is not None:
        query = query.where(FlagRow.kind == kind)
    if state is not None:
        states = (FlagState.open, FlagState.reopened) if state == FlagState.open else (state,)
        query = query.where(FlagRow.state.in_(states))
    if test is not None:
        query = query.where(FlagRow.test_key == test)
    if job is not None:
        if not is_id(job):
            return Page((), None)
        query = query.where(FlagRow.last_job == job)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(FlagRow.id < cursor)
    return Page.cut([_flag(row) for row in session.scalars(query)], limit, lambda item: str(item["id"]))


def get(session: Session, flag_id: str) -> dict[str, Any] | None:
    """One flag, or None."""
    row = session.get(FlagRow, flag_id) if is_id(flag_id) else None
    return None if row is None else _flag(row)


def count_open(session: Session) -> int:
    """How many findings wait for someone."""
    return session.scalar(select(func.count()).select_from(FlagRow).where(FlagRow.state.in_((FlagState.open, FlagState.reopened)))) or 0


def _flag(row: FlagRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "test_key": row.test_key,
        "subject_key": row.subject_key,
        "kernel": row.kernel,
        "build": row.build,
        "build_line": row.build_line,
        "arch": row.arch,
        "board": row.board,
        "owner": row.owner,
        "reason": row.reason,
        "evidence": row.evidence,
        "first_job": row.first_job,
        "last_job": row.last_job,
        "jobs": row.jobs,
        "version": row.version,
        "opened_at": timestamp(row.opened_at),
        "updated_at": timestamp(row.updated_at),
        "expires_at": timestamp(row.expires_at),
    }
