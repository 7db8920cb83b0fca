"""Engines and sessions that make SQLite and PostgreSQL behave alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session

from gonogo.errors import JobError
from gonogo_service.kit.database.encoding import decode, encode

BUSY_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 5
_READ = "gonogo_read"
_STEPS = 10_000
"""Steps of SQLite's machine between looks at the clock: less than a millisecond."""


def normalize(url: str) -> URL:
    """Return the URL with the driver that this project uses: psycopg 3 for PostgreSQL.

    Raises JobError for another database, or text that is no URL, which it doesn't show.
    """
    try:
        parsed = make_url(url)
    except (ValueError, ArgumentError):  # whose message may quote a part, such as a password
        limit = "postgresql+psycopg://user:password@host:port/name or sqlite:///path"
        raise JobError(f"GONOGO_DATABASE_URL: can't be read (allowed: {limit})") from None
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in {"sqlite", "sqlite+pysqlite"}:
        return parsed.set(drivername="sqlite")
    raise JobError(
        f"GONOGO_DATABASE_URL: {parsed.drivername!r} is no database of ours (allowed: postgresql, "
        "sqlite)"
    )


def make_engine(url: str, *, pool_size: int = 10, patience_s: float | None = None) -> Engine:
    """Return an engine for `sqlite:///path` or `postgresql://...`; it connects on first use.

    patience_s: the longest time of a statement; on SQLite, of the wait for a lock.

    SQLite gets WAL, foreign keys, and a busy timeout of 30 s. Every write transaction begins with
    BEGIN IMMEDIATE. Otherwise a transaction that reads first and writes later would fail at once
    with "database is locked", whatever the timeout.
    """
    parsed = normalize(url)
    options: dict[str, Any] = {"json_serializer": encode, "json_deserializer": decode}
    options |= {"pool_size": pool_size, "max_overflow": 2 * pool_size}
    # the connection of the last request has its statements prepared, and its pages at hand
    options["pool_use_lifo"] = True
    if parsed.drivername == "sqlite":
        busy_s = BUSY_TIMEOUT_S if patience_s is None else patience_s
        engine = create_engine(
            parsed, connect_args={"timeout": busy_s, "check_same_thread": False}, **options
        )
        event.listen(engine, "connect", partial(_prepare_sqlite, busy_s))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    limits: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
    if patience_s is not None:
        milliseconds = max(1, round(1000 * patience_s))
        limits["options"] = f"-c statement_timeout={milliseconds}"
        # a server's machine that is gone ends no connection by itself, and keeps to no timeout
        limits["tcp_user_timeout"] = milliseconds
    engine = create_engine(parsed, connect_args=limits, pool_pre_ping=True, **options)
    event.listen(engine, "connect", _prepare_postgres)
    event.listen(engine, "handle_error", _as_outage, retval=True)
    return engine


def _prepare_sqlite(busy_s: float, connection: Any, _record: Any) -> None:
    # The driver must not begin transactions by itself: _begin_sqlite does.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {round(busy_s * 1000)}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _prepare_postgres(connection: Any, _record: Any) -> None:
    # Compiling a statement that is run for milliseconds takes longer than running it, and the
    # estimates of a page's statements are above the cost at which PostgreSQL compiles. It is no
    # option of the connection, because a pooler between may refuse those.
    connection.execute("SET jit = off")
    connection.commit()


def _as_outage(context: ExceptionContext) -> OperationalError | None:
    # PostgreSQL has a code for a full disk, and none for a file that may not grow (a quota, a
    # limit of its process): that is an internal error of its, and no bug of ours.
    problem = context.original_exception
    if getattr(problem, "sqlstate", None) != "XX000":
        return None
    return OperationalError(context.statement, context.parameters, problem)


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(
        "BEGIN" if connection.get_execution_options().get(_READ) else "BEGIN IMMEDIATE"
    )


@contextmanager
def session(engine: Engine) -> Iterator[Session]:
    """Open a write transaction: it commits at the end of the block and rolls back on an exception.

    On SQLite it holds the write lock from its start. Keep it short, and use `reading` to read only.
    """
    with Session(engine, expire_on_commit=False) as current, current.begin():
        yield current


class ReadTimeout(Exception):
    """A read took longer than it may."""


@contextmanager
def reading(engine: Engine, *, timeout_s: float | None = None) -> Iterator[Session]:
    """Open a read transaction: all its statements see one snapshot of the database.

    It never waits for writers. PostgreSQL refuses writes in it; on SQLite it is rolled back.

    timeout_s: the longest time of a statement; on SQLite of all statements together. Raises
    ReadTimeout.
    """
    bound = engine.execution_options(**{_READ: True}, postgresql_readonly=True)
    # PostgreSQL's default takes a snapshot per statement; SQLite always takes one per transaction.
    if is_postgres(engine):
        bound = bound.execution_options(isolation_level="REPEATABLE READ")
    with Session(bound, expire_on_commit=False) as current:
        if timeout_s is None:
            yield current
        else:
            with _limited(current, timeout_s):
                yield current
        if is_postgres(engine):
            # psycopg forgets its prepared statements at a rollback: each would be planned anew
            current.commit()


@contextmanager
def _limited(session: Session, timeout_s: float) -> Iterator[None]:
    if is_postgres(session):
        milliseconds = max(1, round(1000 * timeout_s))
        session.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        driver = None
    else:
        ends = time.monotonic() + timeout_s
        driver = session.connection().connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
    try:
        yield
    except OperationalError as problem:
        if _timed_out(problem):
            raise ReadTimeout(f"took longer than {timeout_s:g} s") from problem
        raise
    finally:
        if driver is not None:
            driver.set_progress_handler(None, 0)


def _timed_out(problem: OperationalError) -> bool:
    return getattr(problem.orig, "sqlstate", None) == "57014" or str(problem.orig) == "interrupted"


def is_postgres(connection: Session | Connection | Engine) -> bool:
    """Return whether the database is PostgreSQL (otherwise it is SQLite)."""
    engine = connection.get_bind() if isinstance(connection, Session) else connection
    return engine.dialect.name == "postgresql"
