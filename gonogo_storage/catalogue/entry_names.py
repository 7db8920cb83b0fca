"""The names that suites give to tests, to tell tests apart whose kernel and shape are the same.

This module only reads.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, bindparam, literal_column, select, union_all
from sqlalchemy.orm import Session

from gonogo_storage.db.paging import batched
from gonogo_storage.tables import JobRow, RunJobRow, RunRow

_NEWEST_JOBS = 32
"""The newest jobs of a test among which one of a suite is looked for."""
_MAX_TESTS = 50


def latest(session: Session, test_keys: Collection[str]) -> dict[str, str]:
    """Return "suite: entry" of each test that a suite ran lately; others are left out."""
    names = {}
    for batch in batched(sorted(set(test_keys)), _MAX_TESTS):
        keys = {f"key{number}": key for number, key in enumerate(batch)}
        for number, suite, entry in session.execute(_query(len(batch)), keys):
            names[batch[number]] = f"{suite}: {entry}"
    return names


@cache  # building the statement takes longer than running it
def _query(tests: int) -> CompoundSelect[Any]:
    parts = []
    for number in range(tests):
        jobs = select(JobRow.id).where(JobRow.test_key == bindparam(f"key{number}"))
        newest = jobs.order_by(JobRow.id.desc()).limit(_NEWEST_JOBS).subquery()
        place: Any = literal_column(str(number)).label("number")
        named = (
            select(
                place,
                RunRow.name.label("suite"),
                RunJobRow.name,
            )
            .select_from(RunJobRow)
            .join(newest, newest.c.id == RunJobRow.job_id)
            .join(RunRow, RunRow.id == RunJobRow.run_id)
            .order_by(newest.c.id.desc())
            .limit(1)
        )
        parts.append(select(named.subquery()))
    return union_all(*parts)
