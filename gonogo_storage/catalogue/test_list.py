"""The list of submitted tests, newest first, with their variants, grades and last results.

This module only reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import LISTED_KINDS, JobState
from gonogo_storage.flags.triage import STATES
from gonogo_storage.rollups.variants import Variant, variants_of_all
from gonogo_storage.tables import AssessmentRow, FlagRow, JobRow, TestSpecRow


@dataclass(frozen=True)
class GradeRecord:
    """The grade of a variant's newest assessed build."""

    stability: str
    sharpness: str
    hollow: bool
    build: str


@dataclass(frozen=True)
class TestRecord:
    """A test in a list; `job` and the fields after it describe its last job in any state."""

    __test__ = False  # pytest: not a test case

    key: str
    kernel: str
    canonical: Mapping[str, Any]
    variants: tuple[Variant, ...]
    grades: Mapping[Variant, GradeRecord]
    """The grades of assessed variants."""
    open_flags: int
    job: str | None
    build: str | None
    state: str | None
    verdict: str | None
    at: datetime | None
    judged_job: str | None
    """The newest job that was judged, which may be older than `job`."""
    judged_build: str | None
    judged_verdict: str | None


def specs(session: Session, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return {key: canonical form} of these tests."""
    query = select(TestSpecRow.key, TestSpecRow.canonical).where(TestSpecRow.key.in_(keys))
    return dict(session.execute(query).all())


def list_(
    session: Session, *, kernel: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[TestRecord]:
    """Return tests, the newest first; the cursor is a key. Raises BadCursor."""
    table = TestSpecRow
    query = select(table).order_by(table.created_at.desc(), table.key.desc()).limit(limit + 1)
    if kernel is not None:
        query = query.where(table.kernel == kernel)
    if cursor is not None:
        after = session.get(table, cursor)
        if after is None:
            raise BadCursor(cursor)
        older = and_(table.created_at == after.created_at, table.key < after.key)
        query = query.where(or_(table.created_at < after.created_at, older))
    rows = list(session.scalars(query))
    keys = [row.key for row in rows]
    flagged, graded = _open_flags(session, keys), _grades(session, keys)
    last, judged = _last_jobs(session, keys), _last_judged(session, keys)
    ran = variants_of_all(session, keys)
    records = []
    for row in rows:
        variants = ran.get(row.key, ())
        grades = {variant: graded[variant] for variant in variants if variant in graded}
        job = last.get(row.key, (None,) * 5)
        records.append(
            TestRecord(
                row.key,
                row.kernel,
                row.canonical,
                variants,
                grades,
                flagged.get(row.key, 0),
                *job,
                *judged.get(row.key, (None,) * 3),
            )
        )
    return Page.cut(records, limit, lambda item: item.key)


def _open_flags(session: Session, keys: Collection[str]) -> dict[str, int]:
    query = select(FlagRow.test_key, func.count()).where(
        FlagRow.test_key.in_(keys), FlagRow.state.in_(STATES["unresolved"])
    )
    return dict(session.execute(query.group_by(FlagRow.test_key)).all())


def _grades(session: Session, keys: Collection[str]) -> dict[Variant, GradeRecord]:
    table = AssessmentRow
    columns = (
        table.test_key,
        table.branch,
        table.arch,
        table.board,
        table.stability,
        table.sharpness,
        table.hollow,
        table.build,
    )
    query = select(*columns).where(table.test_key.in_(keys))
    return {Variant(*row[:4]): GradeRecord(*row[4:]) for row in session.execute(query)}


def _last_jobs(session: Session, keys: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Return each test's newest job: (id, build, state, verdict, created_at)."""
    table = JobRow
    columns = table.id, table.build, table.state, table.verdict, table.created_at
    return _newest(session, keys, columns)


def _last_judged(session: Session, keys: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Return each test's newest job that was judged: (id, build, verdict).

    Jobs that wait or run, were canceled before a result, or could not run have no verdict about
    the test.
    """
    table = JobRow
    columns = table.id, table.build, table.verdict
    return _newest(session, keys, columns, judged=True)


def _newest(
    session: Session, keys: Collection[str], columns: Sequence[Any], *, judged: bool = False
) -> dict[str, tuple[Any, ...]]:
    table, newest = JobRow, aliased(JobRow)
    ended = newest.state.in_((JobState.finished, JobState.cancelled))
    last = (
        select(newest.id)
        .where(newest.test_key == TestSpecRow.key, newest.kind.in_(LISTED_KINDS))
        .where(*([ended, newest.verdict.is_not(None)] if judged else []))
        .order_by(newest.id.desc())
        .limit(1)
    )
    query = select(table.test_key, *columns).select_from(TestSpecRow)
    query = query.join(table, table.id == last.correlate(TestSpecRow).scalar_subquery())
    return {
        row[0]: tuple(row[1:]) for row in session.execute(query.where(TestSpecRow.key.in_(keys)))
    }
