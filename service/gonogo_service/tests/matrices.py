"""The data of the build matrix: the last builds of a branch, their tests and the results.

Reads roll-ups and indexes only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, exists, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results.model import WHOLE, DailyRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import test_list
from gonogo_service.tests.model import AssessmentRow, TestSpecRow

HOLLOW = "hollow"
GRADES = (*(grade.value for grade in (*Stability, *Sharpness)), HOLLOW)
"""The grades to filter tests by: a value of either axis, or HOLLOW.

HOLLOW: the newest assessed build is green and unexplained.
"""


@dataclass(frozen=True)
class BuildRecord:
    """A build that jobs were submitted for, with the place that its newest job gives it."""

    name: str
    branch: str
    sequence: int
    newest_job: str


@dataclass(frozen=True)
class RowRecord:
    """A test that ran on some of the builds."""

    key: str
    kernel: str
    canonical: Mapping[str, Any]


class CellPlace(NamedTuple):
    """A test on one kind of board, on one build."""

    test_key: str
    arch: str
    board: str
    build: str


def builds(session: Session) -> list[BuildRecord]:
    """Return every build that jobs were submitted for, by branch, sequence and name.

    It takes one index lookup per build.
    """
    records = [BuildRecord(*row) for row in session.execute(_builds())]
    return sorted(records, key=lambda build: (build.branch, build.sequence, build.name))


@cache  # building the statement takes longer than running it
def _builds() -> Select[str, str, int, str]:
    jobs, after = aliased(JobRow), aliased(JobRow)
    ran = select(func.min(JobRow.build).label("name")).cte("ran", recursive=True)
    step = select(func.min(jobs.build)).where(jobs.build > ran.c.name).scalar_subquery()
    ran = ran.union_all(select(step).where(ran.c.name.is_not(None)))
    newest = (
        select(after.id)
        .where(after.build == ran.c.name, after.kind == JobKind.seeds)
        .order_by(after.id.desc())
        .limit(1)
    )
    return select(JobRow.build, JobRow.branch, JobRow.build_sequence, JobRow.id).join(
        ran, JobRow.id == newest.scalar_subquery()
    )


def rows(
    session: Session,
    build_names: Sequence[str],
    *,
    branch: str,
    arch: str | None = None,
    board: str | None = None,
    kernel: str | None = None,
    verdict: str | None = None,
    label: str | None = None,
    suite: str | None = None,
    grade: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[RowRecord]:
    """Return the tests that have a seed on any of the builds: first those that need attention.

    Tests of the same grade come by the time of their first submission, the last first.
    verdict: only tests with such a seed. cursor: a test's key. label: "name" or "name=value", of a
    job of the test on one of the builds. suite: such a job was submitted with it. grade: one of
    GRADES. Raises BadCursor.
    """
    table = TestSpecRow
    seeds = [DailyRow.test_key == table.key, *_cells(build_names, branch, arch, board)]
    if verdict is not None:
        seeds.append(DailyRow.verdict == verdict)
    query = select(table.key, table.kernel, table.canonical).where(exists().where(*seeds))
    if kernel is not None:
        query = query.where(table.kernel == kernel)
    query = query.where(*_filters(build_names, branch, arch, board, label, suite, grade))
    order = test_list.attention(AssessmentRow.branch == branch), table.created_at, table.key
    if cursor is not None:
        after = session.execute(select(*order).where(table.key == cursor)).one_or_none()
        if after is None:
            raise BadCursor(cursor)
        query = query.where(tuple_(*order) < tuple_(*after))
    page_rows = session.execute(
        query.order_by(*(column.desc() for column in order)).limit(limit + 1)
    )
    return Page.cut([RowRecord(*row) for row in page_rows], limit, lambda item: item.key)


def _filters(
    build_names: Sequence[str],
    branch: str,
    arch: str | None,
    board: str | None,
    label: str | None,
    suite: str | None,
    grade: str | None,
) -> list[ColumnElement[bool]]:
    """Return the conditions on a test's jobs and its assessment."""
    conditions: list[ColumnElement[bool]] = []
    kinds = (("arch", arch), ("board", board))
    of_test = [
        JobRow.test_key == TestSpecRow.key,
        JobRow.build.in_(list(build_names)),
        JobRow.branch == branch,
    ]
    of_test += [getattr(JobRow, name) == value for name, value in kinds if value is not None]
    if label is not None:
        name, equals, value = label.partition("=")
        labeled = [JobLabelRow.job_id == JobRow.id, JobLabelRow.name == name]
        conditions.append(
            exists().where(*of_test, *labeled, *([JobLabelRow.value == value] if equals else []))
        )
    if suite is not None:
        conditions.append(
            exists().where(
                *of_test,
                RunJobRow.job_id == JobRow.id,
                RunRow.id == RunJobRow.run_id,
                RunRow.name == suite,
            )
        )
    if grade is not None:
        table = AssessmentRow
        has_grade = (
            table.hollow
            if grade == HOLLOW
            else or_(table.stability == grade, table.sharpness == grade)
        )
        of_variant = [getattr(table, name) == value for name, value in kinds if value is not None]
        conditions.append(
            exists().where(
                table.test_key == TestSpecRow.key, table.branch == branch, *of_variant, has_grade
            )
        )
    return conditions


def suites(session: Session, limit: int = 100) -> list[str]:
    """Return the names of suites that runs were submitted for, in order.

    It takes one index lookup per name.
    """
    return list(session.scalars(_suites(limit)))


@cache
def _suites(limit: int) -> Select[str]:
    runs = aliased(RunRow)
    ran = select(func.min(RunRow.name).label("name")).cte("suite_names", recursive=True)
    ran = ran.union_all(
        select(select(func.min(runs.name)).where(runs.name > ran.c.name).scalar_subquery()).where(
            ran.c.name.is_not(None)
        )
    )
    return select(ran.c.name).where(ran.c.name.is_not(None)).limit(limit)


def cells(
    session: Session,
    test_keys: Collection[str],
    build_names: Sequence[str],
    *,
    branch: str,
    arch: str | None = None,
    board: str | None = None,
) -> dict[CellPlace, dict[str, int]]:
    """Count seeds by verdict for each test on each kind of board and build.

    The counts are over all devices, contexts and days.
    """
    table = DailyRow
    by = table.test_key, table.arch, table.board, table.build, table.verdict
    where = _cells(build_names, branch, arch, board)
    query = select(*by, func.sum(table.n)).where(table.test_key.in_(list(test_keys)), *where)
    counts_by_cell: dict[CellPlace, dict[str, int]] = {}
    for *place, verdict, number in session.execute(query.group_by(*by)):
        counts_by_cell.setdefault(CellPlace(*place), {})[verdict] = int(number)
    return counts_by_cell


def _cells(
    build_names: Sequence[str], branch: str, arch: str | None, board: str | None
) -> list[ColumnElement[bool]]:
    table = DailyRow
    where: list[ColumnElement[bool]] = [
        table.build.in_(list(build_names)),
        table.output == WHOLE,
    ]
    where.append(table.branch == branch)
    where += [
        column == value
        for column, value in ((table.arch, arch), (table.board, board))
        if value is not None
    ]
    return where
