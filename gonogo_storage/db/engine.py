"""Engines and sessions: one place that makes SQLite and PostgreSQL behave alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import decode, encode

BUSY_TIMEOUT_S = 30
_READ = "gonogo_read"


def normalise(url: str) -> URL:
    """The URL with the driver that this project uses: psycopg 3 for PostgreSQL. Raises ValueError
    for another database.
    """
    parsed = make_url(url)
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in {"sqlite", "sqlite+pysqlite"}:
        return parsed.set(drivername="sqlite")
    raise ValueError(f"database URL: {parsed.drivername!r} is neither sqlite nor postgresql")


def make_engine(url: str, *, pool_size: int = 10) -> Engine:
    """An engine for `sqlite:///path` or `postgresql://...`; connects on first use.

    SQLite: WAL, foreign keys, busy timeout 30 s, and every write transaction begins with BEGIN
    IMMEDIATE, because a transaction that reads first and writes later fails at once with "database
    is locked" whatever the timeout.
    """
    parsed = normalise(url)
    options: dict[str, Any] = {"json_serializer": encode, "json_deserializer": decode}
    options |= {"pool_size": pool_size, "max_overflow": 2 * pool_size}
    if parsed.drivername == "sqlite":
        engine = create_engine(
            parsed, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, **options
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(parsed, connect_args={"connect_timeout": 5}, pool_pre_ping=True, **options)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = (
        None  # the driver must not begin transactions of its own: _begin_sqlite does
    )
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_S * 1000}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(
        "BEGIN" if connection.get_execution_options().get(_READ) else "BEGIN IMMEDIATE"
    )


@contextmanager
def session(engine: Engine) -> Iterator[Session]:
    """A write transaction: commits at the end of the block, rolls back on an exception.

    On SQLite it holds the write lock from its start; keep it short, and use `reading` for
    everything that only reads.
    """
    with Session(engine, expire_on_commit=False) as current, current.begin():
        yield current


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A read transaction: one snapshot of the database, however many statements; never waits for
    writers, and is rolled back at the end (PostgreSQL refuses writes in it).
    """
    bound = engine.execution_options(**{_READ: True}, postgresql_readonly=True)
    if is_postgres(
        engine
        # its default gives each statement a snapshot of its own; SQLite has no other way than one for
        # all
    ):
        bound = bound.execution_options(isolation_level="REPEATABLE READ")
    with Session(bound, expire_on_commit=False) as current:
        yield current


def is_postgres(connection: Session | Connection | Engine) -> bool:
    """Whether this talks to PostgreSQL (else it is SQLite)."""
    engine = connection.get_bind() if isinstance(connection, Session) else connection
    return engine.dialect.name == "postgresql"
