"""Backups: every row of a database in one SQLite file, taken while the service runs.

The file is an SQLite database with our tables, whatever the database that it was taken from. So a
backup can be looked at with any SQLite program, and can be restored into either database. It says
how many rows each table had, and a digest of them; a restore checks both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DatabaseError

from gonogo_storage.db.encoding import encode, utcnow
from gonogo_storage.db.engine import make_engine, reading
from gonogo_storage.db.states import DeliveryState
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.ops import schema
from gonogo_storage.tables import AnswerRow, Base, DeliveryRow, LeaseRow, OutboxRow

BATCH: Final = 2_000
"""Rows that are read and written at once."""
_OWN_WORK: Final = ("job.created", "attempt.cancel", ASSESS)
"""Topics of the outbox that nobody outside hears of; the others are events for webhooks."""
_MODULUS: Final = 2**128

_description = MetaData()
_contents = Table(
    "backup_contents",
    _description,
    Column("name", Text, primary_key=True),
    Column("rows", Integer, nullable=False),
    Column("digest", Text, nullable=False),
)


class BadBackup(ValueError):
    """A file that can't be restored; the text says why, and what to do."""


@dataclass(frozen=True)
class Contents:
    """The rows of one table: their number, and a digest that does not depend on their order."""

    rows: int
    digest: str


Tables = dict[str, Contents]


def backup(engine: Engine, path: Path) -> Tables:
    """Write every row of the database, as of one moment, to a new file; return its contents.

    Readers and writers of the database go on meanwhile. Nothing is left of a backup that fails.
    Raises FileExistsError, OSError, and SQLAlchemy's errors.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    target = _plain(part)
    try:
        schema.upgrade(target)
        with reading(engine) as source:
            contents = _copy(source.connection(), target)
        _description.create_all(target)
        with target.begin() as connection:
            connection.execute(
                insert(_contents),
                [
                    {"name": name, "rows": table.rows, "digest": table.digest}
                    for name, table in contents.items()
                ],
            )
        target.dispose()
        part.replace(path)
    finally:
        target.dispose()
        for left_over in path.parent.glob(part.name + "*"):
            left_over.unlink()
    return contents


def restore(
    path: Path, engine: Engine, *, send_due: bool = False, now: datetime | None = None
) -> Tables:
    """Fill an empty database from a backup and return its contents, which have been compared.

    Waiting messages to webhooks and answers to GitHub may have been sent after the backup: they are
    kept as canceled, and can be replayed one by one, unless `send_due`. Events that had no messages
    yet get none. Leases of the old processes end. Raises BadBackup for a file that is no backup, is
    damaged or of a newer version, and for a database that has rows; the database is then as before.
    """
    source = _opened(path)
    try:
        recorded = _recorded(source, path)
        _check_empty(engine)
        schema.upgrade(engine)
        with engine.begin() as target, source.connect() as given:
            copied = _insert_all(given, target)
            _compare(recorded, copied, f"{path} is damaged")
            _compare(recorded, contents_of(target), "the restored database differs")
            _settle(target, now=now or utcnow(), send_due=send_due)
    finally:
        source.dispose()
    return recorded


def contents_of(connection: Connection) -> Tables:
    """Return the contents of all tables."""
    contents: Tables = {}
    for table in Base.metadata.sorted_tables:
        count = total = 0
        for rows in _batches(connection, table):
            count += len(rows)
            total += sum(map(_digest, rows))
        contents[table.name] = _contents_of(count, total)
    return contents


def _copy(source: Connection, target: Engine) -> Tables:
    with target.begin() as connection:
        return _insert_all(source, connection)


def _insert_all(source: Connection, target: Connection) -> Tables:
    """Copy the rows of every table, those before that others refer to."""
    copied: Tables = {}
    for table in Base.metadata.sorted_tables:
        count = total = 0
        target.execute(delete(table))  # rows that a migration has put there
        for rows in _batches(source, table):
            target.execute(insert(table), [dict(row) for row in rows])
            count += len(rows)
            total += sum(map(_digest, rows))
        copied[table.name] = _contents_of(count, total)
    return copied


def _batches(connection: Connection, table: Table) -> Iterator[list[dict[str, Any]]]:
    statement = select(table).execution_options(yield_per=BATCH)
    for rows in connection.execute(statement).mappings().partitions(BATCH):
        yield [dict(row) for row in rows]


def _digest(row: dict[str, Any]) -> int:
    """Return a number that stands for a row, the same on both databases."""
    values = [value.hex() if isinstance(value, bytes) else value for value in row.values()]
    digest = hashlib.blake2b(encode(values).encode(), digest_size=16).digest()
    return int.from_bytes(digest)


def _contents_of(count: int, total: int) -> Contents:
    return Contents(count, f"{total % _MODULUS:032x}")


def _plain(path: Path) -> Engine:
    """Return an engine of a file of its own.

    It keeps no journal beside the file, and lets rows come before those that they refer to.
    """
    engine = make_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA foreign_keys = OFF")

    return engine


def _opened(path: Path) -> Engine:
    """Return an engine of a backup that can only be read."""
    if not path.is_file():
        raise BadBackup(f"{path} is no file")
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise BadBackup(f"{path} is no backup: `gonogo db backup FILE` makes one")
    return make_engine(f"sqlite:///file:{path.absolute()}?mode=ro&immutable=1&uri=true")


def _recorded(source: Engine, path: Path) -> Tables:
    """Return what the backup says about itself. Raises BadBackup."""
    try:
        with source.connect() as connection:
            trouble = connection.scalar(text("PRAGMA quick_check(1)"))
        state = schema.state(source)
    except DatabaseError as problem:
        raise BadBackup(f"{path} is damaged: {problem.orig}") from problem
    if trouble != "ok":
        raise BadBackup(f"{path} is damaged: {trouble}")
    if state is not schema.SchemaState.head:
        raise BadBackup(
            f"{path} has a schema that is {state.value}: restore it with the version of GoNoGo "
            "that made it, then run `gonogo db upgrade` of this one"
        )
    with source.connect() as connection:
        if not connection.dialect.has_table(connection, _contents.name):
            raise BadBackup(f"{path} is a database but no backup: copy it to use it")
        return {
            row.name: Contents(row.rows, row.digest)
            for row in connection.execute(select(_contents))
        }


def _check_empty(engine: Engine) -> None:
    if schema.state(engine) is schema.SchemaState.empty:
        return
    with engine.connect() as connection:
        for table in Base.metadata.sorted_tables:
            if connection.scalar(select(func.count()).select_from(table)):
                raise BadBackup(
                    f"the database has rows in {table.name}: a backup is restored into an empty one"
                )


def _compare(expected: Tables, contents: Tables, trouble: str) -> None:
    for name in expected.keys() | contents.keys():
        if expected.get(name) != contents.get(name):
            raise BadBackup(
                f"{trouble}: {name} should have {expected.get(name)}, and has {contents.get(name)}"
            )


def _settle(target: Connection, *, now: datetime, send_due: bool) -> None:
    """End what belongs to the old processes."""
    target.execute(delete(LeaseRow))
    if send_due:
        return
    target.execute(
        update(DeliveryRow)
        .where(DeliveryRow.due_at.is_not(None))
        .values(state=DeliveryState.cancelled.value, due_at=None, ended_at=now)
    )
    events = (OutboxRow.due_at.is_not(None), OutboxRow.topic.not_in(_OWN_WORK))
    target.execute(
        update(OutboxRow)
        .where(*events)
        .values(due_at=None, done_at=now, error="canceled: it may have been sent after the backup")
    )
    target.execute(update(AnswerRow).where(AnswerRow.due_at.is_not(None)).values(due_at=None))
