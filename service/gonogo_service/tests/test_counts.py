"""The number of tests in each state, for the filters of the list of tests. Reads only.

A number is the length of the list that its filter gives. The states of all tests are read at once,
from their newest assessments and from open flags; how they stand comes with the filter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import case, distinct, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo_service.flags.model import STATES, FlagRow
from gonogo_service.tests import test_list
from gonogo_service.tests.model import AssessmentRow, TestSpecRow
from gonogo_service.tests.standings import KINDS
from gonogo_service.tests.test_list import FLAGGED, TestFilter


def read(session: Session, filters: TestFilter) -> dict[str, int]:
    """Return the number of tests in each of test_list.STANDINGS; `filters.standing` is ignored."""
    others = replace(filters, standing=None)
    counts = {**_graded(session, others), FLAGGED: _flagged(session, others)}
    for kind in KINDS:
        counts[kind] = test_list.count(session, replace(others, standing=kind))
    return {standing: counts[standing] for standing in test_list.STANDINGS}


def _keys(filters: TestFilter) -> Any | None:
    """Return the query of the keys of the tests that match; None where all do."""
    conditions = test_list.matching(filters)
    return select(TestSpecRow.key).where(*conditions) if conditions else None


def _graded(session: Session, filters: TestFilter) -> dict[str, int]:
    table = AssessmentRow
    of_grade = {
        **{grade: table.stability == grade for grade in map(str, Stability)},
        **{grade: table.sharpness == grade for grade in map(str, Sharpness)},
    }
    shown = [standing for standing in test_list.STANDINGS if standing in of_grade]
    query = select(*(_tests(of_grade[standing], table.test_key) for standing in shown))
    keys = _keys(filters)
    if keys is not None:
        query = query.where(table.test_key.in_(keys))
    return dict(zip(shown, session.execute(query).one(), strict=True))


def _tests(condition: Any, key: Any) -> Any:
    """Return the number of tests with a row that meets a condition."""
    return func.count(distinct(case((condition, key))))


def _flagged(session: Session, filters: TestFilter) -> int:
    table = FlagRow
    query = select(func.count(distinct(table.test_key))).where(table.state.in_(STATES["open"]))
    keys = _keys(filters)
    if keys is not None:
        query = query.where(table.test_key.in_(keys))
    return session.scalar(query) or 0
