"""Statements about many values at once, on SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Select, Text, event, func, select
from sqlalchemy.orm import Session

import nightly_history
import stored_jobs
from database_params import BOTH_ENGINES
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.dialect import load_once
from gonogo_service.kit.database.each import Given, among, of_each
from gonogo_service.kit.outbox.model import LeaseRow
from gonogo_service.tests import entry_names, recent_builds, variants
from gonogo_service.tests.variants import Variant

LINES = ("main", "release", "topic")
MOST_BYTES, MOST_PARAMETERS = 4096, 50
"""The limits of a statement that psycopg's cache keeps (MAX_CACHED_STATEMENT_... of its source)."""


@pytest.fixture
def stored(current: Session) -> dict[str, list[JobRow]]:
    """The jobs of each branch: one on `main`, two on `release`, three on `topic`."""
    jobs: dict[str, list[JobRow]] = {}
    for number, line in enumerate(LINES, 1):
        for sequence in range(1, number + 1):
            about: Any = {"build": f"{line}{sequence}", "sequence": sequence, "branch": line}
            job = nightly_history.submit(current, [0], **about)
            stored_jobs.report(current, job.id, [stored_jobs.row(0, wrong=False)])
            stored_jobs.finish(current, job.id)
            jobs.setdefault(line, []).append(job)
    return jobs


def _newest(given: Given) -> Select[Any]:
    return select(JobRow.id).where(JobRow.branch == given("branch")).order_by(JobRow.id.desc())


def _number(given: Given) -> Select[Any]:
    jobs = select(JobRow.id).where(JobRow.branch == given("branch")).subquery()
    return select(func.count().label("number")).select_from(jobs)


def _build(given: Given) -> Select[Any]:
    return select(JobRow.build, JobRow.counts, JobRow.created_at).where(JobRow.id == given("job"))


@BOTH_ENGINES
def test_each_row_gets_its_own_results_also_by_a_nested_query(
    current: Session, stored: dict[str, list[JobRow]]
) -> None:
    columns, rows = (("branch", Text()),), [("topic",), ("none",), ("main",)]
    newest = of_each(current, _newest, columns, rows)
    numbers = of_each(current, _number, columns, rows)
    expected = [
        (place, job.id) for place, line in ((0, "topic"), (2, "main")) for job in stored[line]
    ]
    assert sorted(map(tuple, newest)) == sorted(expected)
    assert sorted(map(tuple, numbers)) == [(0, 3), (1, 0), (2, 1)]


@BOTH_ENGINES
def test_ids_and_the_types_of_results_are_those_of_the_columns(
    current: Session, stored: dict[str, list[JobRow]]
) -> None:
    jobs = [job for line in LINES for job in stored[line]]
    rows = of_each(current, _build, (("job", IdType),), [(job.id,) for job in jobs])
    expected = [(place, job.build, {"pass": 1}, job.created_at) for place, job in enumerate(jobs)]
    assert sorted(map(tuple, rows)) == expected
    for ids in ({jobs[0].id, jobs[4].id}, set[str]()):
        job_ids = current.scalars(
            select(JobRow.id).where(among(current, JobRow.id, list(ids)))
        ).all()
        assert (len(job_ids), set(job_ids)) == (len(ids), ids)


def test_postgres_gets_statements_that_its_driver_keeps(migrated_postgres_url: str) -> None:
    """A page of fifty tests asked for 48 kB of SQL, which was split anew each time."""
    engine = engines.make_engine(migrated_postgres_url)
    many = [Variant("v1-0", line, "wormhole_b0", f"board{n}") for n in range(30) for line in LINES]
    sizes: list[tuple[int, int]] = []

    def note(*arguments: Any) -> None:
        _connection, _cursor, statement, parameters, *_ = arguments
        sizes.append((len(statement), len(parameters)))

    event.listen(engine, "before_cursor_execute", note)
    with engines.reading(engine) as session:
        recent_builds.results(session, many, 20)
        variants.newest_builds(session, many)
        entry_names.latest(session, [f"v1-{n}" for n in range(60)])
    engine.dispose()
    assert all(length <= MOST_BYTES and number <= MOST_PARAMETERS for length, number in sizes)


@BOTH_ENGINES
def test_of_rows_loaded_in_bulk_those_that_exist_stay(current: Session) -> None:
    def load(holder: str, *names: str) -> None:
        count = len(names)
        columns = {"name": list(names), "holder": [holder] * count, "until": [1.0] * count}
        load_once(current, LeaseRow, columns)

    load("first", "a", "b")
    current.add(LeaseRow(name="c", holder="added", until=1.0))  # the loading leaves it alone, too
    load("second", "b", "c", "d")
    load("third", "a")
    current.add(LeaseRow(name="e", holder="added", until=1.0))
    current.flush()
    stored = {
        row.name: row.holder for row in current.execute(select(LeaseRow.name, LeaseRow.holder))
    }
    assert stored == {"a": "first", "b": "first", "c": "added", "d": "second", "e": "added"}
