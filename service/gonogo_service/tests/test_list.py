"""The list of submitted tests with their variants, grades and last results; it can be searched.

This module only reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.triage import STATES
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.tests import standings
from gonogo_service.tests.model import AssessmentRow, TestSpecRow
from gonogo_service.tests.standings import FLAKY, HOLLOW, KINDS, RED, Standings
from gonogo_service.tests.variants import Variant, variants_of_all

FLAGGED = "flagged"
STANDINGS = (
    HOLLOW,
    RED,
    Stability.broken.value,
    FLAKY,
    Stability.marginal.value,
    Sharpness.blunt.value,
    FLAGGED,
)
"""Filters by the state of tests: one of standings.KINDS, a grade of their newest assessment, or
FLAGGED: there is an open flag.
"""
ATTENTION, NEWEST = "attention", "newest"
SORTS = (ATTENTION, NEWEST)
"""The orders of the list: hollow, broken, flaky and marginal tests first; by first submission."""
_WORST_FIRST = (Stability.broken, Stability.flaky, Stability.marginal)
MAX_TERMS = 8
"""The number of words of a search that are used."""


@dataclass(frozen=True)
class TestFilter:
    """The filter of the list; None allows everything.

    search: words that must all occur in a test's kernel, shape, tolerance, numerics or key.
    standing: one of STANDINGS. standings: those that count, where it is one of standings.KINDS.
    since: only tests that were submitted again since then.
    """

    __test__ = False  # pytest: not a test case

    kernel: str | None = None
    search: str | None = None
    standing: str | None = None
    since: datetime | None = None
    standings: Standings = field(default_factory=dict)


@dataclass(frozen=True)
class TestHead:
    """A test without its results."""

    __test__ = False  # pytest: not a test case

    key: str
    kernel: str
    canonical: Mapping[str, Any]


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


def specs(session: Session, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return {key: canonical form} of these tests."""
    query = select(TestSpecRow.key, TestSpecRow.canonical).where(TestSpecRow.key.in_(keys))
    return dict(session.execute(query).all())


def list_(
    session: Session,
    filters: TestFilter | None = None,
    *,
    sort: str = NEWEST,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[TestRecord]:
    """Return tests in one of the SORTS; the cursor is a key. Raises BadCursor."""
    table, order = TestSpecRow, _ORDERS[sort]
    query = select(table).order_by(*(column.desc() for column in order)).limit(limit + 1)
    query = query.where(*matching(filters or TestFilter()))
    if cursor is not None:
        after = session.execute(select(*order).where(table.key == cursor)).one_or_none()
        if after is None:
            raise BadCursor(cursor)
        query = query.where(tuple_(*order) < tuple_(*after))
    rows = list(session.scalars(query))
    keys = [row.key for row in rows]
    flagged, graded = _open_flags(session, keys), _grades(session, keys)
    last = _last_jobs(session, keys)
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
            )
        )
    return Page.cut(records, limit, lambda item: item.key)


def heads(session: Session, filters: TestFilter, limit: int) -> list[TestHead]:
    """Return the newest tests that match, without their results."""
    table = TestSpecRow
    query = select(table.key, table.kernel, table.canonical).where(*matching(filters))
    rows = session.execute(query.order_by(table.created_at.desc(), table.key.desc()).limit(limit))
    return [TestHead(*row) for row in rows]


def worst(session: Session, branch: str, limit: int) -> list[TestHead]:
    """Return the tests of a branch that need attention most, by their newest assessments there."""
    rows = session.execute(_worst(), {"branch": branch, "limit": limit})
    return [TestHead(*row) for row in rows]


@cache  # building the statement takes longer than running it
def _worst() -> Select[Any]:
    table, graded = TestSpecRow, AssessmentRow
    branch = bindparam("branch", type_=Text)
    ran = select(JobRow.id).where(JobRow.test_key == table.key, JobRow.branch == branch).exists()
    order = attention(graded.branch == branch), table.created_at, table.key
    query = select(table.key, table.kernel, table.canonical).where(ran)
    return query.order_by(*(column.desc() for column in order)).limit(
        bindparam("limit", type_=Integer)
    )


def count(session: Session, filters: TestFilter) -> int:
    """Return the number of tests that match."""
    query = select(func.count()).select_from(TestSpecRow).where(*matching(filters))
    return session.scalar(query) or 0


def matching(filters: TestFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on tests that a filter gives; none for all tests."""
    table, conditions = TestSpecRow, list[ColumnElement[bool]]()
    if filters.kernel is not None:
        conditions.append(table.kernel == filters.kernel)
    for term in (filters.search or "").lower().split()[:MAX_TERMS]:
        # a shape is written 3x273 or 3×273, and stored as [3,273]
        text = re.sub(r"(?<=\d)[x×](?=\d)", ",", term).replace("=", '":')
        conditions.append(
            or_(
                table.key.startswith(term, autoescape=True),
                func.lower(cast(table.canonical, Text)).contains(text, autoescape=True),
            )
        )
    if filters.standing == FLAGGED:
        conditions.append(
            select(FlagRow.id)
            .where(FlagRow.test_key == table.key, FlagRow.state.in_(STATES["open"]))
            .exists()
        )
    elif filters.standing in KINDS:
        # one that ran in these days fits whatever else was submitted since
        keys = standings.of_kind(filters.standings, filters.standing)
        return [*conditions, table.key.in_(keys)]
    elif filters.standing is not None:
        graded = AssessmentRow
        has = or_(graded.stability == filters.standing, graded.sharpness == filters.standing)
        conditions.append(select(graded.build).where(graded.test_key == table.key, has).exists())
    if filters.since is not None:
        conditions.append(
            select(JobRow.id)
            .where(JobRow.test_key == table.key, JobRow.id >= floor(filters.since))
            .exists()
        )
    return conditions


def rank(grade: GradeRecord) -> int:
    """Return how much a grade needs attention, as `attention` ranks it in SQL."""
    worst = [*reversed(_WORST_FIRST)]
    if grade.hollow:
        return len(worst) + 1
    return worst.index(Stability(grade.stability)) + 1 if grade.stability in worst else 0


def attention(*of: ColumnElement[bool]) -> Any:
    """Return the column that is largest for the tests that need attention first.

    of: conditions on the assessments that count.
    """
    table = AssessmentRow
    worst = [
        (table.stability == grade, len(_WORST_FIRST) - place)
        for place, grade in enumerate(_WORST_FIRST)
    ]
    rank = case((table.hollow, len(_WORST_FIRST) + 1), *worst, else_=0)
    newest = select(func.max(rank)).where(table.test_key == TestSpecRow.key, *of)
    return func.coalesce(newest.correlate(TestSpecRow).scalar_subquery(), 0)


_ORDERS: Mapping[str, Sequence[Any]] = {
    ATTENTION: (attention(), TestSpecRow.created_at, TestSpecRow.key),
    NEWEST: (TestSpecRow.created_at, TestSpecRow.key),
}


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
    rows = session.execute(_last_jobs_query(), {"test_keys": list(keys)})
    return {row[0]: tuple(row[1:]) for row in rows}


@cache
def _last_jobs_query() -> Select[str, str, str, str, str | None, datetime]:
    table, newest = JobRow, aliased(JobRow)
    last = (
        select(newest.id)
        .where(newest.test_key == TestSpecRow.key, newest.kind.in_(LISTED_KINDS))
        .order_by(newest.id.desc())
        .limit(1)
        .correlate(TestSpecRow)
        .scalar_subquery()
    )
    query = select(
        table.test_key, table.id, table.build, table.state, table.verdict, table.created_at
    )
    query = query.select_from(TestSpecRow).join(table, table.id == last)
    return query.where(TestSpecRow.key.in_(bindparam("test_keys", expanding=True)))
