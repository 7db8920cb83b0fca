"""Files of rows: SQLite databases with our tables, that say how many rows each has, with a digest.

Backups and exports of jobs are such files, whatever database they were taken from. So any SQLite
program can look at them, and either database can take them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DatabaseError

from gonogo_storage.db.encoding import encode
from gonogo_storage.db.engine import make_engine
from gonogo_storage.ops import schema

BATCH: Final = 2_000
"""Rows that are read and written at once."""
_MODULUS: Final = 2**128


def _described(name: str) -> Table:
    return Table(
        name,
        MetaData(),
        Column("name", Text, primary_key=True),
        Column("rows", Integer, nullable=False),
        Column("digest", Text, nullable=False),
    )


BACKUP: Final = _described("backup_contents")
EXPORT: Final = _described("export_contents")
"""The table by which a file says what it holds; its name says what the file is."""
_MADE_BY: Final = {BACKUP.name: "gonogo db backup", EXPORT.name: "gonogo db export"}
_READ_BY: Final = {BACKUP.name: "gonogo db restore", EXPORT.name: "gonogo db import"}


class BadFile(ValueError):
    """A file that can't be read; the text says why, and what to do."""


@dataclass(frozen=True)
class Contents:
    """The rows of one table: their number, and a digest that does not depend on their order."""

    rows: int
    digest: str


Tables = dict[str, Contents]


@dataclass
class Tally:
    """The contents of a table whose rows are being copied."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Count rows."""
        for row in rows:
            self.rows += 1
            self.total += _digest(row)

    def contents(self) -> Contents:
        """Return the contents."""
        return Contents(self.rows, f"{self.total % _MODULUS:032x}")


def contents_of(connection: Connection, tables: Iterable[Table]) -> Tables:
    """Return the contents of tables."""
    contents: Tables = {}
    for table in tables:
        tally = Tally()
        for rows in batches(connection, select(table)):
            tally.add(rows)
        contents[table.name] = tally.contents()
    return contents


def batches(connection: Connection, query: Select[Any]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a query, many at a time."""
    statement = query.execution_options(yield_per=BATCH)
    for rows in connection.execute(statement).mappings().partitions(BATCH):
        yield [dict(row) for row in rows]


def _digest(row: dict[str, Any]) -> int:
    """Return a number that stands for a row, the same on both databases."""
    values = [value.hex() if isinstance(value, bytes) else value for value in row.values()]
    digest = hashlib.blake2b(encode(values).encode(), digest_size=16).digest()
    return int.from_bytes(digest)


@contextmanager
def writing(path: Path) -> Iterator[Engine]:
    """Make a file with our tables; it appears at `path` when the block ends without an error.

    Raises FileExistsError, OSError, and SQLAlchemy's errors.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    target = _plain(part)
    try:
        schema.upgrade(target)
        yield target
        target.dispose()
        part.replace(path)
    finally:
        target.dispose()
        for left_over in path.parent.glob(part.name + "*"):
            left_over.unlink()


def describe(target: Engine, kind: Table, contents: Tables) -> None:
    """Write into a file what it holds."""
    kind.create(target)
    with target.begin() as connection:
        connection.execute(
            insert(kind),
            [
                {"name": name, "rows": table.rows, "digest": table.digest}
                for name, table in contents.items()
            ],
        )


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


def opened(path: Path, kind: Table) -> Engine:
    """Return an engine of a file that can only be read. Raises BadFile."""
    if not path.is_file():
        raise BadFile(f"{path} is no file")
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            noun, command = kind.name.removesuffix("_contents"), _MADE_BY[kind.name]
            raise BadFile(f"{path} is no {noun}: `{command} FILE` makes one")
    return make_engine(f"sqlite:///file:{path.absolute()}?mode=ro&immutable=1&uri=true")


def recorded(source: Engine, path: Path, kind: Table) -> Tables:
    """Return what a file says about itself. Raises BadFile."""
    try:
        with source.connect() as connection:
            trouble = connection.scalar(text("PRAGMA quick_check(1)"))
        state = schema.state(source)
    except DatabaseError as problem:
        raise BadFile(f"{path} is damaged: {problem.orig}") from problem
    if trouble != "ok":
        raise BadFile(f"{path} is damaged: {trouble}")
    noun = kind.name.removesuffix("_contents")
    if state is not schema.SchemaState.head:
        use = "use" if kind is EXPORT else "restore"
        raise BadFile(
            f"{path} has a schema that is {state.value}: {use} it with the version of GoNoGo "
            "that made it, then run `gonogo db upgrade` of this one"
        )
    with source.connect() as connection:
        for other in (BACKUP, EXPORT):
            if other is not kind and connection.dialect.has_table(connection, other.name):
                raise BadFile(f"{path} is no {noun}: `{_READ_BY[other.name]}` reads it")
        if not connection.dialect.has_table(connection, kind.name):
            raise BadFile(f"{path} is a database but no {noun}: copy it to use it")
        return {
            row.name: Contents(row.rows, row.digest) for row in connection.execute(select(kind))
        }


def compare(expected: Tables, contents: Tables, trouble: str) -> None:
    """Raise BadFile unless both are equal."""
    for name in expected.keys() | contents.keys():
        if expected.get(name) != contents.get(name):
            raise BadFile(
                f"{trouble}: {name} should have {expected.get(name)}, and has {contents.get(name)}"
            )
