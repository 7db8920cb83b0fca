"""PostgreSQL databases for tests, made once and used again: a new one is hundreds of files, more
work than what most tests do with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from servers import administer

# Every relation and column, so that a database whose schema a test has changed isn't used again
SCHEMA = """
SELECT class.relname, class.relkind, class.reloptions, attribute.attname, attribute.atttypid,
    attribute.attnotnull
FROM pg_class class
LEFT JOIN pg_attribute attribute ON attribute.attrelid = class.oid AND attribute.attnum > 0
WHERE class.relnamespace = 'public'::regnamespace ORDER BY class.relname, attribute.attnum
"""
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
)
OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid()"
)


def of(admin: str, name: str) -> str:
    """SQLAlchemy URL of a database of the server that `admin` names."""
    return (
        make_url(admin)
        .set(drivername="postgresql+psycopg", database=name)
        .render_as_string(hide_password=False)
    )


@contextmanager
def fresh(admin: str, template: str = "template1") -> Iterator[tuple[str, str]]:
    """URL and name of a new database that is dropped afterwards."""
    name = f"gonogo_test_{uuid.uuid4().hex}"
    administer(admin, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield of(admin, name), name
    administer(admin, f"DROP DATABASE {name} WITH (FORCE)")


class Pool:
    """Copies of a template. One that a test gives back is emptied and renamed for the next; one
    whose schema it changed is dropped."""

    def __init__(self, admin: str, template: str) -> None:
        self.admin, self.template = admin, template
        self.free: list[str] = []
        with _connected(of(admin, template)) as connection:
            self.schema = connection.execute(SCHEMA).fetchall()
            self.first_rows = {name: _rows(connection, name) for name in _filled(connection)}

    @contextmanager
    def one(self) -> Iterator[str]:
        """URL of a database as the template is, under a name that no earlier test knew: what one
        has left running can't reach it."""
        name = f"gonogo_test_{uuid.uuid4().hex}"
        if self.free:
            administer(self.admin, f"ALTER DATABASE {self.free.pop()} RENAME TO {name}")
        else:
            administer(self.admin, f"CREATE DATABASE {name} TEMPLATE {self.template}")
        yield of(self.admin, name)
        try:
            clean = self._emptied(of(self.admin, name))
        except psycopg.Error:  # a test may have renamed or dropped it, or forbidden to connect
            clean = False
        if clean:
            self.free.append(name)
        else:
            administer(self.admin, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        for name in self.free:
            administer(self.admin, f"DROP DATABASE {name} WITH (FORCE)")
        self.free.clear()

    def _emptied(self, url: str) -> bool:
        """Take away every row that the template hasn't, and every other connection; whether it is
        now as the template is."""
        with _connected(url) as connection:
            connection.execute(OTHERS)
            if connection.execute(SCHEMA).fetchall() != self.schema:
                return False
            connection.execute(
                "SET session_replication_role = replica"
            )  # no foreign keys: all tables are emptied
            for name in _filled(connection):
                if name not in self.first_rows:
                    connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
            return all(_rows(connection, name) == rows for name, rows in self.first_rows.items())


def _connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"), autocommit=True)


def _filled(connection: psycopg.Connection[Any]) -> list[str]:
    names = [name for (name,) in connection.execute(TABLES).fetchall()]
    queries = [
        sql.SQL("(SELECT {} WHERE EXISTS (SELECT FROM {}))").format(
            sql.Literal(name), sql.Identifier(name)
        )
        for name in names
    ]
    return (
        [name for (name,) in connection.execute(sql.SQL(" UNION ALL ").join(queries)).fetchall()]
        if queries
        else []
    )


def _rows(connection: psycopg.Connection[Any], name: str) -> list[Any]:
    query = sql.SQL("SELECT * FROM {} AS each ORDER BY each::text").format(sql.Identifier(name))
    return connection.execute(query).fetchall()
