"""The statements that SQLite and PostgreSQL spell differently."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from sqlalchemy import Column, Connection, Insert, Table, Uuid, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import Code
from gonogo_service.kit.database.engine import is_postgres


def insert_once(session: Session, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows in bulk, and leave existing rows with the same key unchanged."""
    if not rows:
        return
    # The Core table, because an ORM insert leaves NULLs out and so needs one statement for each
    # pattern of NULLs.
    target = cast(Table, table.__table__)
    if is_postgres(session):
        session.execute(postgresql.insert(target).on_conflict_do_nothing(), rows)
    else:
        session.execute(sqlite.insert(target).on_conflict_do_nothing(), rows)


def load_once(session: Session, table: type[Base], columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert many rows, given as {column: values}, and leave existing rows unchanged.

    SQLite gets them by the driver itself. PostgreSQL gets them by COPY, which takes a third of the
    time of an INSERT for each. COPY knows no conflicts: where a row exists, all go into a temporary
    table, and from there in one statement.
    """
    target = cast(Table, table.__table__)
    session.flush()
    connection = session.connection()
    bound = [_bound(target.c[name], values, connection) for name, values in columns.items()]
    names = ", ".join(columns)
    if not is_postgres(session):
        marks = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {target.name} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        cast(Any, connection.connection.cursor()).executemany(insert, zip(*bound, strict=True))
        return
    # Imported here because an installation on SQLite has no driver of PostgreSQL.
    from psycopg.errors import UniqueViolation

    try:
        with connection.begin_nested():
            _copy(connection, target.name, names, zip(*bound, strict=True))
    except UniqueViolation:
        staging = f"new_{target.name}"
        connection.exec_driver_sql(
            f"CREATE TEMP TABLE {staging} ON COMMIT DROP"
            f" AS SELECT {names} FROM {target.name} WITH NO DATA"
        )
        _copy(connection, staging, names, zip(*bound, strict=True))
        merge = f"INSERT INTO {target.name} ({names}) SELECT {names} FROM {staging}"
        connection.exec_driver_sql(f"{merge} ON CONFLICT DO NOTHING")
        connection.exec_driver_sql(f"DROP TABLE {staging}")


def _copy(connection: Connection, table: str, names: str, rows: Iterable[Any]) -> None:
    with (
        cast(Any, connection.connection.cursor()) as cursor,
        cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(row)


def _bound(column: Column[Any], values: Sequence[Any], connection: Connection) -> Sequence[Any]:
    """Return the values as the driver takes them."""
    dialect = connection.dialect
    bind = column.type.dialect_impl(dialect).bind_processor(dialect)
    if bind is None:
        return values
    if isinstance(column.type, Code | Uuid):  # few of them are different
        bound = {value: bind(value) for value in set(values)}
        return [bound[value] for value in values]
    return [bind(value) for value in values]


Change = Callable[[Any, Any], Mapping[str, Any]]
"""From the columns of a row whose key exists, and those of the one that comes, to what changes."""


def merge(
    session: Session, table: type[Base], rows: Sequence[dict[str, Any]], change: Change
) -> None:
    """Insert rows in bulk, and change those whose key exists; it needs no lock.

    change: always the same function, because its statement is kept.
    """
    if rows:
        session.execute(_merge(is_postgres(session), table, change), rows)


@cache  # building the statement takes longer than running it
def _merge(postgres: bool, table: type[Base], change: Change) -> Insert:
    target = cast(Table, table.__table__)
    keys = [column.name for column in target.primary_key.columns]
    insert = postgresql.insert(target) if postgres else sqlite.insert(target)
    changes = change(target.c, insert.excluded)
    return insert.on_conflict_do_update(index_elements=keys, set_=changes)


def lock(session: Session, room: int, name: str) -> None:
    """Lock a name within a room until the transaction ends; other transactions wait for it.

    SQLite needs nothing here: a write transaction locks the whole database. Two names may share a
    lock (32 bits of a hash). That only costs a wait if each transaction locks one name per room.
    """
    if is_postgres(session):
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big", signed=True)
        query = text("SELECT pg_advisory_xact_lock(CAST(:room AS integer), CAST(:name AS integer))")
        session.execute(query, {"room": room, "name": number})


def database_time(session: Session) -> float:
    """Return the seconds since the epoch by the database's clock, which all processes share.

    SQLite has no server, so this host's clock serves there.
    """
    if is_postgres(session):
        return float(session.scalar(select(text("extract(epoch from clock_timestamp())"))) or 0.0)
    return time.time()
