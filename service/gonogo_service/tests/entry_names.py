"""The names that suites give to tests, to tell tests apart whose kernel and shape are the same.

This module only reads.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Select, Text, select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.suites.model import RunJobRow, RunRow

_NEWEST_JOBS = 32
"""The newest jobs of a test among which one of a suite is looked for."""
_MAX_TESTS = 50
_KEY = (("key", Text()),)


def latest(session: Session, test_keys: Collection[str]) -> dict[str, str]:
    """Return "suite: entry" of each test that a suite ran lately; others are left out."""
    return {key: f"{suite}: {entry}" for key, (suite, entry) in newest(session, test_keys).items()}


def newest(session: Session, test_keys: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the suite that ran each test last, and its entry; other tests are left out."""
    names = {}
    for batch in batched(sorted(set(test_keys)), _MAX_TESTS):
        rows = of_each(session, _newest_name, _KEY, [(key,) for key in batch])
        for number, suite, entry in rows:
            names[batch[number]] = suite, entry
    return names


def _newest_name(given: Given) -> Select[str, str]:
    jobs = select(JobRow.id).where(JobRow.test_key == given("key"))
    newest = jobs.order_by(JobRow.id.desc()).limit(_NEWEST_JOBS).subquery()
    return (
        select(RunRow.name.label("suite"), RunJobRow.name)
        .select_from(RunJobRow)
        .join(newest, newest.c.id == RunJobRow.job_id)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        .order_by(newest.c.id.desc())
        .limit(1)
    )
