"""Transactions: what they leave of the connection for the next one; what counts as an outage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import make_engine, reading
from postgres_databases import Pool


@pytest.fixture
def postgres_engine(postgres_pool: Pool) -> Iterator[Engine]:
    with postgres_pool.one() as url:
        engine = make_engine(url)
        yield engine
        engine.dispose()


def test_postgresql_plans_a_statement_that_is_read_again_and_again_once(
    postgres_engine: Engine,
) -> None:
    """Every other one would be planned each time, which takes longer than a page's other work."""
    with reading(postgres_engine) as first, reading(postgres_engine) as second:
        for session in (first, second):  # so that the pool has two connections to choose from
            session.connection()
    for _ in range(8):
        with reading(postgres_engine) as session:
            session.scalars(select(JobRow.build)).all()
    with reading(postgres_engine) as session:
        prepared = session.scalars(text("SELECT statement FROM pg_prepared_statements")).all()
    assert [one for one in prepared if "jobs.build" in one]


def test_what_is_written_by_mistake_in_a_read_transaction_of_sqlite_is_not_stored(
    migrated_sqlite_url: str,
) -> None:
    engine = make_engine(migrated_sqlite_url)
    with reading(engine) as session:
        session.execute(text("INSERT INTO leases (name, holder, until) VALUES ('a', 'b', 1)"))
    with reading(engine) as session:
        assert session.scalar(text("SELECT count(*) FROM leases")) == 0
    engine.dispose()


@pytest.mark.parametrize(
    ("code", "is_outage"), [("XX000", True), ("53100", True), ("42P01", False)]
)
def test_an_internal_error_of_postgresql_counts_as_an_outage(
    code: str, is_outage: bool, postgres_engine: Engine
) -> None:
    """Such as "could not extend file: File too large", where a quota or a limit is reached."""
    failing = text(f"DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{code}'; END $$")
    with pytest.raises(DBAPIError) as caught, postgres_engine.connect() as connection:
        connection.execute(failing)
    assert isinstance(caught.value, OperationalError) == is_outage
    assert "no room" in str(caught.value)
