"""Statements about many values at once, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, Select, Text, event, func, select, text

import nightly_history
import stored_jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Given, among, of_each
from gonogo_service.tests import entry_names, recent_builds, variants
from gonogo_service.tests.variants import Variant

LINES = ("main", "release", "topic")
MOST_BYTES, MOST_PARAMETERS = 4096, 50
"""The limits of a statement that psycopg's cache keeps (MAX_CACHED_STATEMENT_... of its source)."""


@pytest.fixture
def stored(engine: Engine) -> dict[str, list[JobRow]]:
    """The jobs of each branch: one on `main`, two on `release`, three on `topic`."""
    jobs: dict[str, list[JobRow]] = {}
    with engines.session(engine) as session:
        for number, line in enumerate(LINES, 1):
            for sequence in range(1, number + 1):
                job = nightly_history.submit(
                    session, [0], build=f"{line}{sequence}", sequence=sequence, branch=line
                )
                stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=False)])
                stored_jobs.finish(session, job.id)
                jobs.setdefault(line, []).append(job)
    return jobs


def _newest(given: Given) -> Select[Any]:
    return select(JobRow.id).where(JobRow.branch == given("branch")).order_by(JobRow.id.desc())


def _number(given: Given) -> Select[Any]:
    jobs = select(JobRow.id).where(JobRow.branch == given("branch")).subquery()
    return select(func.count().label("number")).select_from(jobs)


def _build(given: Given) -> Select[Any]:
    return select(JobRow.build, JobRow.counts, JobRow.created_at).where(JobRow.id == given("job"))


def test_each_row_gets_its_own_results_also_by_a_nested_query(
    engine: Engine, stored: dict[str, list[JobRow]]
) -> None:
    columns = (("branch", Text()),)
    rows = [("topic",), ("none",), ("main",)]
    with engines.reading(engine) as session:
        newest = of_each(session, _newest, columns, rows)
        numbers = of_each(session, _number, columns, rows)
    of_row = [
        (place, job.id) for place, line in ((0, "topic"), (2, "main")) for job in stored[line]
    ]
    assert sorted(map(tuple, newest)) == sorted(of_row)
    assert sorted(map(tuple, numbers)) == [(0, 3), (1, 0), (2, 1)]


def test_ids_and_the_types_of_results_are_those_of_the_columns(
    engine: Engine, stored: dict[str, list[JobRow]]
) -> None:
    jobs = [job for line in LINES for job in stored[line]]
    with engines.reading(engine) as session:
        rows = of_each(session, _build, (("job", IdType),), [(job.id,) for job in jobs])
        some = session.scalars(
            select(JobRow.id).where(among(session, JobRow.id, {jobs[0].id, jobs[4].id}))
        ).all()
        none = session.scalars(select(JobRow.id).where(among(session, JobRow.id, []))).all()
    assert sorted(map(tuple, rows)) == [
        (place, job.build, {"pass": 1}, job.created_at) for place, job in enumerate(jobs)
    ]
    assert sorted(some) == sorted([jobs[0].id, jobs[4].id])
    assert none == []


@pytest.fixture
def on_postgres(migrated_postgres_url: str) -> Iterator[Engine]:
    """An engine of a PostgreSQL database."""
    engine = engines.make_engine(migrated_postgres_url)
    yield engine
    engine.dispose()


def test_postgres_gets_statements_that_its_driver_keeps(on_postgres: Engine) -> None:
    """A page of fifty tests asked for 48 kB of SQL, which was split anew each time."""
    many = [Variant("v1-0", line, "wormhole_b0", f"board{n}") for n in range(30) for line in LINES]
    sizes: list[tuple[int, int]] = []

    def note(*arguments: Any) -> None:
        _connection, _cursor, statement, parameters, *_ = arguments
        sizes.append((len(statement), len(parameters)))

    event.listen(on_postgres, "before_cursor_execute", note)
    with engines.reading(on_postgres) as session:
        recent_builds.results(session, many, 20)
        variants.newest_builds(session, many)
        entry_names.latest(session, [f"v1-{n}" for n in range(60)])
    event.remove(on_postgres, "before_cursor_execute", note)
    assert all(length <= MOST_BYTES and number <= MOST_PARAMETERS for length, number in sizes)


def test_postgres_compiles_no_statement(on_postgres: Engine) -> None:
    with engines.session(on_postgres) as session:
        assert session.scalar(text("SHOW jit")) == "off"
        session.rollback()
    with engines.reading(on_postgres) as session:
        assert session.scalar(text("SHOW jit")) == "off"
