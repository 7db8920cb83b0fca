"""The tests ever submitted as people look for them: newest first, each with where it has run and what came out last. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from storage.overview import OPEN_FLAGS
from storage.paging import BadCursor, Page
from storage.states import TOLD_KINDS
from storage.tables import AssessmentRow, FlagRow, JobRow, TestSpecRow
from storage.variants import Variant, variants_of


@dataclass(frozen=True)
class GradeRecord:
    """The grade of a variant as it was assessed, of its newest build."""

    stability: str
    sharpness: str
    hollow: bool
    build: str


@dataclass(frozen=True)
class TestRecord:
    """A test in a list; `verdict` and the rest are those of its last job, whatever its state."""

    __test__ = False  # pytest: not a test case

    key: str
    kernel: str
    canonical: Mapping[str, Any]
    variants: tuple[Variant, ...]
    grades: Mapping[Variant, GradeRecord]
    """Of the variants that were assessed."""
    open_flags: int
    job: str | None
    build: str | None
    state: str | None
    verdict: str | None
    at: datetime | None


def specs(session: Session, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The canonical form of each of these tests."""
    query = select(TestSpecRow.key, TestSpecRow.canonical).where(TestSpecRow.key.in_(keys))
    return {key: value for key, value in session.execute(query)}  # noqa: C416 - rows, which mypy takes for no pairs


def list_(session: Session, *, kernel: str | None = None, limit: int = 50, cursor: str | None = None) -> Page[TestRecord]:
    """Tests, those submitted first last; the cursor is a key. Raises BadCursor."""
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
    return Page.cut([_test(session, row, flagged.get(row.key, 0), graded) for row in rows], limit, lambda item: item.key)


def _open_flags(session: Session, keys: Collection[str]) -> dict[str, int]:
    query = select(FlagRow.test_key, func.count()).where(FlagRow.test_key.in_(keys), FlagRow.state.in_(OPEN_FLAGS))
    return {key: value for key, value in session.execute(query.group_by(FlagRow.test_key))}  # noqa: C416 - rows, which mypy takes for no pairs


def _grades(session: Session, keys: Collection[str]) -> dict[Variant, GradeRecord]:
    table = AssessmentRow
    columns = (table.test_key, table.build_line, table.arch, table.board, table.stability, table.sharpness, table.hollow, table.build)
    query = select(*columns).where(table.test_key.in_(keys))
    return {Variant(*row[:4]): GradeRecord(*row[4:]) for row in session.execute(query)}


def _test(session: Session, row: TestSpecRow, flagged: int, graded: Mapping[Variant, GradeRecord]) -> TestRecord:
    table = JobRow
    columns = (table.id, table.build, table.state, table.verdict, table.created_at)
    of_test = (table.test_key == row.key, table.kind.in_(TOLD_KINDS))
    last = session.execute(select(*columns).where(*of_test).order_by(table.id.desc()).limit(1)).one_or_none()
    job, build, state, verdict, at = last if last is not None else (None,) * 5
    variants = variants_of(session, row.key)
    grades = {each: graded[each] for each in variants if each in graded}
    return TestRecord(row.key, row.kernel, row.canonical, variants, grades, flagged, job, build, state, verdict, at)
