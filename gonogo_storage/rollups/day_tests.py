"""Tests by day that had hollow, red or flaky seeds, from the roll-ups.

Past days are counted once and cached, as the day totals are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from functools import cache, partial
from typing import Any

from sqlalchemy import ColumnElement, Date, Select, bindparam, case, distinct, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.outcomes import Outcome
from gonogo.spec.verdicts import Verdict
from gonogo_storage.rollups import recent_days
from gonogo_storage.rollups.tallies import WHOLE
from gonogo_storage.tables import DayRollupRow


@dataclass(frozen=True)
class DayTests:
    """The number of tests (on a branch and a kind of board) that ran on a UTC day, and of which.

    `flaky`: some build had passing and failing seeds.
    """

    ran: int = 0
    hollow: int = 0
    red: int = 0
    flaky: int = 0


def had(test_key: Any, kind: str, since: date) -> ColumnElement[bool]:
    """Return the condition that a test was `kind` (hollow, red or flaky) on a day from `since` on.

    It was so on one build of a branch and a kind of board, over all these days.
    """
    table = DayRollupRow
    of_build = (
        select(table.build)
        .where(table.test_key == test_key, *_since(since))
        .group_by(table.branch, table.arch, table.board, table.build)
        .having(_kinds()[kind])
    )
    return of_build.exists()


def kinds_since(session: Session, since: date, keys: Select[Any] | None) -> dict[str, int]:
    """Return the number of tests that were of each kind on a day from `since` on, as `had` says.

    keys: a query of the tests that count; None for all.
    """
    table, kinds = DayRollupRow, _kinds()
    of_build = (
        select(table.test_key, *(holds.label(kind) for kind, holds in kinds.items()))
        .where(*_since(since))
        .group_by(table.test_key, table.branch, table.arch, table.board, table.build)
    )
    if keys is not None:
        of_build = of_build.where(table.test_key.in_(keys))
    columns = of_build.subquery().c
    tests = (func.count(distinct(case((columns[kind], columns.test_key)))) for kind in kinds)
    return dict(zip(kinds, session.execute(select(*tests)).one(), strict=True))


def _kinds() -> dict[str, ColumnElement[bool]]:
    """Return the condition of each kind on the summed seeds of a build."""
    table = DayRollupRow
    red = _seeds(table.outcomes, Outcome.failed) > 0
    return {
        "hollow": _seeds(table.counts, Verdict.pass_by_tolerance) > 0,
        "red": red,
        "flaky": red & (_seeds(table.outcomes, Outcome.passed) > 0),
    }


def _since(since: date) -> tuple[ColumnElement[bool], ...]:
    table = DayRollupRow
    return table.output == WHOLE, table.day >= since, table.shadow.is_(False)


def _seeds(column: Any, name: str) -> Any:
    return func.coalesce(func.sum(column[name].as_integer()), 0)


class Memory(recent_days.Memory[DayTests]):
    """The cached past days of one process; a new one reads all days once."""


def read(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, DayTests]]:
    """Return the last `days` UTC days in order, today last. It updates `memory`."""
    return recent_days.read(memory, partial(_counted, session), DayTests, days=days, now=now)


def _counted(session: Session, since: date) -> dict[date, DayTests]:
    rows = session.execute(_query(), {"since": since})
    return {day: DayTests(*map(int, numbers)) for day, *numbers in rows}


@cache  # building the statement takes longer than running it
def _query() -> Select[Any]:
    table = DayRollupRow
    variant = table.day, table.test_key, table.branch, table.arch, table.board

    of_build = (
        select(
            *variant,
            _seeds(table.counts, Verdict.pass_by_tolerance).label("hollow"),
            _seeds(table.outcomes, Outcome.failed).label("failed"),
            _seeds(table.outcomes, Outcome.passed).label("passed"),
        )
        .where(
            table.day >= bindparam("since", type_=Date),
            table.output == WHOLE,
            table.shadow.is_(False),
        )
        .group_by(*variant, table.build)
        .subquery()
        .c
    )

    def any_build(condition: ColumnElement[bool]) -> Any:
        return func.max(case((condition, 1), else_=0))

    red = of_build.failed > 0
    of_test = (
        select(
            of_build.day,
            any_build(of_build.hollow > 0).label("hollow"),
            any_build(red).label("red"),
            any_build(red & (of_build.passed > 0)).label("flaky"),
        )
        .group_by(of_build.day, of_build.test_key, of_build.branch, of_build.arch, of_build.board)
        .subquery()
        .c
    )
    return select(
        of_test.day,
        func.count(),
        func.sum(of_test.hollow),
        func.sum(of_test.red),
        func.sum(of_test.flaky),
    ).group_by(of_test.day)
