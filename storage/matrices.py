"""What the build matrix reads: which builds of a line ran last, which tests ran on them, and what came out. Roll-ups and indexes only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from storage.paging import BadCursor, Page
from storage.states import JobKind
from storage.tables import DayRollupRow, JobRow, TestSpecRow
from storage.tallies import WHOLE


@dataclass(frozen=True)
class BuildRecord:
    """A build that jobs were submitted for, as its newest job names its place."""

    name: str
    line: str
    sequence: int
    newest_job: str


@dataclass(frozen=True)
class RowRecord:
    """A test that ran on some of the builds."""

    key: str
    kernel: str
    canonical: Mapping[str, Any]


@dataclass(frozen=True, order=True)
class CellPlace:
    """A test on one kind of board, on one build."""

    test_key: str
    arch: str
    board: str
    build: str


def builds(session: Session) -> list[BuildRecord]:
    """Every build that jobs were submitted for, in the order of line, sequence and name; one step into the index of jobs each."""
    jobs, after = aliased(JobRow), aliased(JobRow)
    ran = select(func.min(JobRow.build).label("name")).cte("ran", recursive=True)
    step = select(func.min(jobs.build)).where(jobs.build > ran.c.name).scalar_subquery()
    ran = ran.union_all(select(step).where(ran.c.name.is_not(None)))
    newest = select(after.id).where(after.build == ran.c.name, after.kind == JobKind.seeds).order_by(after.id.desc()).limit(1)
    query = select(JobRow.build, JobRow.build_line, JobRow.build_sequence, JobRow.id).join(ran, JobRow.id == newest.scalar_subquery())
    found = [BuildRecord(*row) for row in session.execute(query)]
    return sorted(found, key=lambda each: (each.line, each.sequence, each.name))


def rows(
    session: Session,
    build_names: Sequence[str],
    *,
    line: str,
    arch: str | None = None,
    board: str | None = None,
    kernel: str | None = None,
    verdict: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[RowRecord]:
    """The tests that have a seed on any of the builds (with that verdict, if one is named), those submitted first last; the cursor is a
    key. Raises BadCursor."""
    table = TestSpecRow
    seeds = [DayRollupRow.test_key == table.key, *_cells(build_names, line, arch, board)]
    if verdict is not None:
        seeds.append(DayRollupRow.counts[verdict].as_integer() > 0)
    query = select(table.key, table.kernel, table.canonical).where(exists().where(*seeds))
    if kernel is not None:
        query = query.where(table.kernel == kernel)
    if cursor is not None:
        after = session.get(table, cursor)
        if after is None:
            raise BadCursor(cursor)
        older = and_(table.created_at == after.created_at, table.key < after.key)
        query = query.where(or_(table.created_at < after.created_at, older))
    found = session.execute(query.order_by(table.created_at.desc(), table.key.desc()).limit(limit + 1))
    return Page.cut([RowRecord(*row) for row in found], limit, lambda item: item.key)


def cells(
    session: Session,
    test_keys: Collection[str],
    build_names: Sequence[str],
    *,
    line: str,
    arch: str | None = None,
    board: str | None = None,
) -> dict[CellPlace, dict[str, int]]:
    """Seeds by verdict of each test on each kind of board and build, over all devices, contexts and days."""
    table = DayRollupRow
    query = select(table.test_key, table.arch, table.board, table.build, table.counts)
    found: dict[CellPlace, dict[str, int]] = {}
    where = _cells(build_names, line, arch, board)
    for *place, counts in session.execute(query.where(table.test_key.in_(list(test_keys)), *where)):
        told = found.setdefault(CellPlace(*place), {})
        for verdict, number in counts.items():
            told[verdict] = told.get(verdict, 0) + number
    return found


def _cells(build_names: Sequence[str], line: str, arch: str | None, board: str | None) -> list[ColumnElement[bool]]:
    table = DayRollupRow
    where: list[ColumnElement[bool]] = [table.build.in_(list(build_names)), table.output == WHOLE, table.shadow.is_(False)]
    where.append(table.build_line == line)
    where += [column == value for column, value in ((table.arch, arch), (table.board, board)) if value is not None]
    return where
