"""Backups: every row of a database in one file of rows, taken while the service runs.

The file says how many rows each table had, and a digest of them; a restore checks both.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import reading
from gonogo_storage.db.states import DeliveryState
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.ops import row_files, schema
from gonogo_storage.ops.row_files import BACKUP, BadFile, Tables
from gonogo_storage.tables import AnswerRow, Base, DeliveryRow, LeaseRow, OutboxRow

_OWN_WORK: Final = ("job.created", "attempt.cancel", ASSESS)
"""Topics of the outbox that nobody outside hears of; the others are events for webhooks."""


def backup(engine: Engine, path: Path) -> Tables:
    """Write every row of the database, as of one moment, to a new file; return its contents.

    Readers and writers of the database go on meanwhile. Nothing is left of a backup that fails.
    Raises FileExistsError, OSError, and SQLAlchemy's errors.
    """
    with row_files.writing(path) as target:
        with reading(engine) as source, target.begin() as connection:
            contents = _insert_all(source.connection(), connection)
        row_files.describe(target, BACKUP, contents)
    return contents


def restore(path: Path, engine: Engine, *, send_due: bool = False) -> Tables:
    """Fill an empty database from a backup and return its contents, which have been compared.

    Waiting messages to webhooks and answers to GitHub may have been sent after the backup: they are
    kept as canceled, and can be replayed one by one, unless `send_due`. Events that had no messages
    yet get none. Leases of the old processes end. Raises BadFile for a file that is no backup, is
    damaged or of a newer version, and for a database that has rows; the database is then as before.
    """
    source = row_files.opened(path, BACKUP)
    try:
        recorded = row_files.recorded(source, path, BACKUP)
        _check_empty(engine)
        schema.upgrade(engine)
        with engine.begin() as target, source.connect() as given:
            copied = _insert_all(given, target)
            row_files.compare(recorded, copied, f"{path} is damaged")
            row_files.compare(recorded, contents_of(target), "the restored database differs")
            _settle(target, now=utcnow(), send_due=send_due)
    finally:
        source.dispose()
    return recorded


def contents_of(connection: Connection) -> Tables:
    """Return the contents of all tables."""
    return row_files.contents_of(connection, Base.metadata.sorted_tables)


def _insert_all(source: Connection, target: Connection) -> Tables:
    """Copy the rows of every table, those before that others refer to."""
    copied: Tables = {}
    for table in Base.metadata.sorted_tables:
        tally = row_files.Tally()
        target.execute(delete(table))  # rows that a migration has put there
        for rows in row_files.batches(source, select(table)):
            target.execute(insert(table), [dict(row) for row in rows])
            tally.add(rows)
        copied[table.name] = tally.contents()
    return copied


def _check_empty(engine: Engine) -> None:
    if schema.state(engine) is schema.SchemaState.empty:
        return
    with engine.connect() as connection:
        for table in Base.metadata.sorted_tables:
            if connection.scalar(select(func.count()).select_from(table)):
                raise BadFile(
                    f"the database has rows in {table.name}: a backup is restored into an empty one"
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
