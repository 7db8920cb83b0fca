"""The databases that tests share one after the other: nothing of one test reaches the next."""

from __future__ import annotations

import psycopg
import pytest

from postgres_databases import Pool
from servers import administer


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://")) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return row and row[0]


def test_rows_and_connections_that_a_test_leaves_are_gone_for_the_next(postgres_pool: Pool) -> None:
    with postgres_pool.one() as url:
        before = ask(url, "SELECT oid FROM pg_database WHERE datname = current_database()")
        administer(url, "INSERT INTO leases (name, holder, until) VALUES ('a', 'b', 1)")
        left = psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"))
    with postgres_pool.one() as again:
        assert again != url
        assert (
            ask(again, "SELECT oid FROM pg_database WHERE datname = current_database()") == before
        )
        assert ask(again, "SELECT count(*) FROM leases") == 0
        with pytest.raises(psycopg.OperationalError):
            left.execute("SELECT 1")
    left.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE stray (x int)",
        "ALTER TABLE leases ADD stray int",
        "DELETE FROM alembic_version",
    ],
)
def test_a_database_whose_schema_a_test_changed_is_not_used_again(
    postgres_pool: Pool, change: str
) -> None:
    with postgres_pool.one() as url:
        before = ask(url, "SELECT oid FROM pg_database WHERE datname = current_database()")
        administer(url, change)
    with postgres_pool.one() as again:
        assert (
            ask(again, "SELECT oid FROM pg_database WHERE datname = current_database()") != before
        )
        assert ask(again, "SELECT count(*) FROM alembic_version") == 1
