"""Transactions: what they may do, when they end, what they leave of the connection for the next
one, what counts as an outage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from at_once import at_once
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.closing import lock
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import (
    ReadTimeout,
    is_postgres,
    make_engine,
    reading,
    session,
)
from job_flow import new_job

WRITE = text("INSERT INTO leases (name, holder, until) VALUES ('a', 'b', 1)")


@pytest.fixture
def on_postgres(migrated_postgres_url: str) -> Iterator[Engine]:
    engine = make_engine(migrated_postgres_url)
    yield engine
    engine.dispose()


def test_concurrent_read_then_write_transactions_neither_fail_nor_lose_an_update(
    engine: Engine,
) -> None:
    with session(engine) as current:
        job = jobs.create(current, new_job(1))

    def count() -> None:
        for _ in range(10):
            with session(engine) as current:
                locked = lock(current, job.id)
                assert locked is not None
                locked.version += 1

    at_once(*[count] * 4)
    with reading(engine) as current:
        assert current.get_one(JobRow, job.id).version == 41


def test_what_is_written_by_mistake_in_a_read_transaction_is_not_stored(engine: Engine) -> None:
    if is_postgres(engine):
        with pytest.raises(SQLAlchemyError, match="read-only"), reading(engine) as current:
            current.execute(WRITE)
    else:
        with reading(engine) as current:
            current.execute(WRITE)
    with reading(engine) as current:
        assert current.scalar(text("SELECT count(*) FROM leases")) == 0


def test_a_read_ends_at_its_time_limit_and_the_connection_stays_usable(engine: Engine) -> None:
    endless = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT max(k) FROM n"
    forever = text("SELECT pg_sleep(60)" if is_postgres(engine) else endless)
    for _ in range(2):
        with pytest.raises(ReadTimeout), reading(engine, timeout_s=0.02) as current:
            current.execute(forever)
        with reading(engine, timeout_s=30) as current:
            assert current.scalar(text("SELECT 1")) == 1


def test_postgresql_plans_a_statement_that_is_read_again_and_again_once(
    on_postgres: Engine,
) -> None:
    """Every other one would be planned each time, which takes longer than a page's other work."""
    with reading(on_postgres) as first, reading(on_postgres) as second:
        for current in (first, second):  # so that the pool has two connections to choose from
            current.connection()
    for _ in range(8):
        with reading(on_postgres) as current:
            current.scalars(select(JobRow.build)).all()
    with reading(on_postgres) as current:
        prepared = current.scalars(text("SELECT statement FROM pg_prepared_statements")).all()
    assert [one for one in prepared if "jobs.build" in one]


def test_postgresql_compiles_no_statement(on_postgres: Engine) -> None:
    with session(on_postgres) as current:
        assert current.scalar(text("SHOW jit")) == "off"
        current.rollback()
    with reading(on_postgres) as current:
        assert current.scalar(text("SHOW jit")) == "off"


@pytest.mark.parametrize(
    ("code", "is_outage"), [("XX000", True), ("53100", True), ("42P01", False)]
)
def test_an_internal_error_of_postgresql_counts_as_an_outage(
    code: str, is_outage: bool, on_postgres: Engine
) -> None:
    """Such as "could not extend file: File too large", where a quota or a limit is reached."""
    failing = text(f"DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{code}'; END $$")
    with pytest.raises(DBAPIError, match="no room") as caught, on_postgres.connect() as connection:
        connection.execute(failing)
    assert isinstance(caught.value, OperationalError) == is_outage
