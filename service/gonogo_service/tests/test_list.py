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

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.grades import Stability
from gonogo_service.flags.model import STATES, FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.tests import standings
from gonogo_service.tests.model import AssessmentRow, TestSpecRow
from gonogo_service.tests.standings import COUNTED, Kind, Standings
from gonogo_service.tests.variants import Variant, variants_of_all

SORTS = ATTENTION, NEWEST = "attention", "newest"
"""The orders of the list: the most urgent standings and marginal tests first; by submission."""
MAX_TERMS = 8
"""The number of words of a search that are used."""


@dataclass(frozen=True)
class TestFilter:
    """The filter of the list; None allows everything.

    search: words that must all occur in a test's kernel, shape, tolerance, numerics or key.
    standings: those that count for the order and for a kind that is COUNTED. since: only tests that
    were submitted again since then.
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
    """The grades of assessed variants: rows with `stability` and `sharpness`."""
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
    filters, newest = filters or TestFilter(), (TestSpecRow.created_at, TestSpecRow.key)
    order = newest if sort == NEWEST else (attention(session, filters.standings), *newest)
    page = ordered(session, order, matching(filters), limit, cursor)
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


def of_attention(session: Session, filters: TestFilter, limit: int) -> tuple[TestSpecRow, ...]:
    """Return the tests that match, those that need attention first, without their results."""
    order = attention(session, filters.standings), TestSpecRow.created_at, TestSpecRow.key
    return ordered(session, order, matching(filters), limit, None).items


def worst(
    session: Session, standings: Standings, branch: str, limit: int
) -> tuple[TestSpecRow, ...]:
    """Return the tests of a branch that need attention most, by their standings there."""
    table, graded = TestSpecRow, AssessmentRow.branch == branch
    ran = select(JobRow.id).where(JobRow.test_key == table.key, JobRow.branch == branch).exists()
    of_branch = {variant: one for variant, one in standings.items() if variant.branch == branch}
    order = attention(session, of_branch, graded), table.created_at, table.key
    return ordered(session, order, [ran], limit, None).items


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
        of_kind = [select(graded.build).where(graded.test_key == table.key, has).exists()]
        if kind is Kind.blunt:  # a gauge says so of a test that never ran, too
            of_test = FlagRow.test_key == table.key, FlagRow.state.in_(STATES["unresolved"])
            blunt = select(FlagRow.id).where(*of_test, FlagRow.kind == FlagKind.blunt_test)
            of_kind.append(blunt.exists())
        conditions.append(or_(*of_kind))
    if filters.since is not None:
        lately = JobRow.test_key == table.key, JobRow.id >= floor(filters.since)
        conditions.append(select(JobRow.id).where(*lately).exists())
    return conditions


def attention(session: Session, standings: Standings, *of: ColumnElement[bool]) -> Any:
    """Return the column that is largest for the tests that need attention first.

    It is the urgency of a test's worst variant; half for one that is marginal. of: conditions on
    the assessments that count.
    """
    table, graded, keys_of = TestSpecRow, AssessmentRow, dict[int, set[str]]()
    for variant, standing in standings.items():
        keys_of.setdefault(standing.urgency, set()).add(variant.test_key)
    keys_of.pop(0, None)
    marginal = graded.test_key == table.key, graded.stability == Stability.marginal, *of
    ranks = (
        (among(session, table.key, keys_of[urgency]), urgency)
        for urgency in sorted(keys_of, reverse=True)
    )
    return case(*ranks, (select(graded.build).where(*marginal).exists(), 0.5), else_=0)


def _grades(session: Session, keys: Collection[str]) -> dict[Variant, Any]:
    table = AssessmentRow
    variant = table.test_key, table.branch, table.arch, table.board
    query = select(*variant, table.stability, table.sharpness)
    rows = session.execute(query.where(table.test_key.in_(keys)))
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
