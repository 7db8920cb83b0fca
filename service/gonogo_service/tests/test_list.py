"""The list of submitted tests with their variants, grades and last results; it can be searched."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.grades import Stability
from gonogo_service.flags.model import STATES, FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.tests import standings
from gonogo_service.tests.model import AssessmentRow, TestSpecRow
from gonogo_service.tests.standings import COUNTED, Kind, Standings
from gonogo_service.tests.variants import Variant, variants_of_all

SORTS = ATTENTION, NEWEST = "attention", "newest"
"""The orders of the list: hollow, broken, flaky and marginal tests first; by first submission."""
_RANKS = {Stability.marginal: 1, Stability.flaky: 2, Stability.broken: 3}
"""How much a grade needs attention; HOLLOW_RANK is above them."""
HOLLOW_RANK = 4
MAX_TERMS = 8
"""The number of words of a search that are used."""


@dataclass(frozen=True)
class TestFilter:
    """The filter of the list; None allows everything.

    search: words that must all occur in a test's kernel, shape, tolerance, numerics or key.
    standings: those that count for a kind that is COUNTED. since: only tests that were submitted
    again since then.
    """

    __test__ = False  # pytest: not a test case

    kernel: str | None = None
    search: str | None = None
    kind: Kind | None = None
    since: datetime | None = None
    standings: Standings = field(default_factory=dict)


class ListedTest(NamedTuple):
    """A test in a list."""

    spec: TestSpecRow
    variants: tuple[Variant, ...]
    grades: Mapping[Variant, Any]
    """The grades of assessed variants: rows with `stability`, `sharpness`, `hollow` and `rank`."""
    open_flags: int
    job: Any
    """The last job in any state, with `id`, `build`, `state` and `created_at`; None for none."""


def specs(session: Session, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the tests of these keys, in their canonical form, by key."""
    query = select(TestSpecRow.key, TestSpecRow.test).where(TestSpecRow.key.in_(keys))
    return dict(session.execute(query).all()) if keys else {}


def list_(
    session: Session,
    filters: TestFilter | None = None,
    *,
    sort: str = NEWEST,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[ListedTest]:
    """Return tests in one of the SORTS; the cursor is a key. Raises BadCursor."""
    newest = TestSpecRow.created_at, TestSpecRow.key
    order = newest if sort == NEWEST else (attention(), *newest)
    page = ordered(session, order, matching(filters or TestFilter()), limit, cursor)
    keys = [test.key for test in page.items]
    flags = select(FlagRow.test_key, func.count()).group_by(FlagRow.test_key)
    unresolved = FlagRow.test_key.in_(keys), FlagRow.state.in_(STATES["unresolved"])
    flagged = dict(session.execute(flags.where(*unresolved)).all())
    graded, ran = _grades(session, keys), variants_of_all(session, keys)
    jobs = {job.test_key: job for job in session.execute(_last_jobs(), {"test_keys": keys})}

    def record(test: TestSpecRow) -> ListedTest:
        variants = ran.get(test.key, ())
        grades = {variant: graded[variant] for variant in variants if variant in graded}
        return ListedTest(test, variants, grades, flagged.get(test.key, 0), jobs.get(test.key))

    return Page(tuple(map(record, page.items)), page.next)


def ordered(
    session: Session,
    order: tuple[Any, ...],
    conditions: Collection[ColumnElement[bool]],
    limit: int,
    cursor: str | None,
) -> Page[TestSpecRow]:
    """Return a page of the tests that meet the conditions; the cursor is a key. Raises BadCursor.

    order: columns, the largest first; the key is the last one.
    """
    table = TestSpecRow
    query = select(table).where(*conditions)
    if cursor is not None:
        after = session.execute(select(*order).where(table.key == cursor)).one_or_none()
        if after is None:
            raise BadCursor(cursor)
        query = query.where(tuple_(*order) < tuple_(*after))
    query = query.order_by(*(column.desc() for column in order)).limit(limit + 1)
    return Page.cut(session.scalars(query).all(), limit, lambda one: one.key)


def heads(session: Session, filters: TestFilter, limit: int) -> tuple[TestSpecRow, ...]:
    """Return the newest tests that match, without their results."""
    newest = TestSpecRow.created_at, TestSpecRow.key
    return ordered(session, newest, matching(filters), limit, None).items


def worst(session: Session, branch: str, limit: int) -> list[TestSpecRow]:
    """Return the tests of a branch that need attention most, by their newest assessments there."""
    return list(session.scalars(_worst(), {"branch": branch, "limit": limit}))


@cache  # building the statement takes longer than running it
def _worst() -> Select[Any]:
    table, branch = TestSpecRow, bindparam("branch", type_=Text)
    ran = select(JobRow.id).where(JobRow.test_key == table.key, JobRow.branch == branch).exists()
    order = attention(AssessmentRow.branch == branch), table.created_at, table.key
    query = select(table).where(ran)
    worst_first = query.order_by(*(column.desc() for column in order))
    return worst_first.limit(bindparam("limit", type_=Integer))


def counts(session: Session, filters: TestFilter) -> dict[Kind, int]:
    """Return the number of tests that each kind would leave of a filtered list."""
    numbers = (func.count(case((and_(*_of_kind(replace(filters, kind=kind))), 1))) for kind in Kind)
    row = session.execute(select(*numbers).where(*_matching(filters))).one()
    return dict(zip(Kind, row, strict=True))


def matching(filters: TestFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on tests that a filter gives; none for all tests."""
    return [*_matching(filters), *_of_kind(filters)]


def _matching(filters: TestFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter's words."""
    table, conditions = TestSpecRow, list[ColumnElement[bool]]()
    if filters.kernel is not None:
        conditions.append(table.kernel == filters.kernel)
    for term in (filters.search or "").lower().split()[:MAX_TERMS]:
        # a shape is written 3x273 or 3×273, and stored as [3,273]
        text = re.sub(r"(?<=\d)[x×](?=\d)", ",", term).replace("=", '":')
        stored = func.lower(cast(table.test, Text))
        of_key = table.key.startswith(term, autoescape=True)
        conditions.append(or_(of_key, stored.contains(text, autoescape=True)))
    return conditions


def _of_kind(filters: TestFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter's kind and time."""
    table, kind, conditions = TestSpecRow, filters.kind, list[ColumnElement[bool]]()
    if kind in COUNTED:
        # one that ran in these days fits whatever else was submitted since
        return [table.key.in_(standings.of_kind(filters.standings, kind))]
    if kind is Kind.flagged:
        of_test = FlagRow.test_key == table.key, FlagRow.state.in_(STATES["open"])
        conditions.append(select(FlagRow.id).where(*of_test).exists())
    elif kind is not None:
        graded = AssessmentRow
        has = or_(graded.stability == kind, graded.sharpness == kind)
        conditions.append(select(graded.build).where(graded.test_key == table.key, has).exists())
    if filters.since is not None:
        lately = JobRow.test_key == table.key, JobRow.id >= floor(filters.since)
        conditions.append(select(JobRow.id).where(*lately).exists())
    return conditions


def attention(*of: ColumnElement[bool]) -> Any:
    """Return the column that is largest for the tests that need attention first.

    of: conditions on the assessments that count.
    """
    worst = select(func.max(_rank())).where(AssessmentRow.test_key == TestSpecRow.key, *of)
    return func.coalesce(worst.correlate(TestSpecRow).scalar_subquery(), 0)


def _rank() -> Any:
    """Return the column of how much an assessment needs attention."""
    table = AssessmentRow
    ranks = ((table.stability == grade, rank) for grade, rank in _RANKS.items())
    return case((table.hollow, HOLLOW_RANK), *ranks, else_=0)


def _grades(session: Session, keys: Collection[str]) -> dict[Variant, Any]:
    table = AssessmentRow
    variant = table.test_key, table.branch, table.arch, table.board
    grade = table.stability, table.sharpness, table.hollow, _rank().label("rank")
    rows = session.execute(select(*variant, *grade).where(table.test_key.in_(keys)))
    return {Variant.of(row): row for row in rows}


@cache  # building the statement takes longer than running it
def _last_jobs() -> Select[*tuple[Any, ...]]:
    table, newest = JobRow, aliased(JobRow)
    of_test = newest.test_key == TestSpecRow.key, newest.kind.in_(LISTED_KINDS)
    last = select(newest.id).where(*of_test).order_by(newest.id.desc()).limit(1)
    columns = table.id, table.build, table.state, table.created_at
    query = select(table.test_key, *columns).select_from(TestSpecRow)
    query = query.join(table, table.id == last.correlate(TestSpecRow).scalar_subquery())
    return query.where(TestSpecRow.key.in_(bindparam("test_keys", expanding=True)))
