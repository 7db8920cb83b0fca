"""Backups of the whole database: by SQLite's backup API, or by pg_dump and pg_restore."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Engine, delete, inspect, update

from gonogo.errors import InfrastructureError, JobError
from gonogo_service.ci.model import AnswerRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import BUSY_TIMEOUT_S, is_postgres, session
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.kit.outbox.model import LeaseRow, OutboxRow
from gonogo_service.operate import schema
from gonogo_service.tests.assessments import ASSESS
from gonogo_service.webhooks.model import DeliveryRow

_DUMP: Final = ("pg_dump", "--format=custom", "--no-owner", "--no-privileges")
_RESTORE: Final = ("pg_restore", "--single-transaction", "--no-owner", "--no-privileges")


def backup(engine: Engine, path: Path) -> None:
    """Write the database, as of one moment, to a new file that only its owner can read.

    Readers and writers of the database go on meanwhile. Nothing is left of a backup that fails.
    Raises FileExistsError, OSError, JobError where there is no database, and InfrastructureError
    where pg_dump is missing or fails.
    """
    with _new_file(path) as part:
        if is_postgres(engine):
            _run(engine, *_DUMP, f"--file={part}", f"--dbname={_address(engine)}")
        else:
            copy_sqlite(_file_of(engine), part)


def restore(path: Path, engine: Engine) -> None:
    """Fill an empty database from a backup of its kind, and migrate it to this code's schema.

    Waiting messages to webhooks and answers to GitHub may have been sent since the backup: they are
    canceled, and can be replayed one by one.
    Raises JobError for a database that has tables, which stays as it is, and for a file that is no
    backup of this kind; InfrastructureError where pg_restore is missing or fails, and then nothing
    was restored.
    """
    _check_empty(engine)
    if is_postgres(engine):
        _check_dump(path, engine)
        _run(engine, *_RESTORE, f"--dbname={_address(engine)}", str(path.absolute()))
    else:
        _check_sqlite(path)
        engine.dispose()
        copy_sqlite(path, _file_of(engine))
    schema.upgrade(engine)
    _cancel_waiting_messages(engine)


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy an SQLite database, as of one moment, into a file of its own; readers and writers go on.

    `target` has all that was in it replaced, or stays as it was.
    """
    address = f"{source.absolute().as_uri()}?mode=rw"  # it creates nothing
    with (
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as given,
        closing(sqlite3.connect(target, timeout=BUSY_TIMEOUT_S)) as copy,
    ):
        given.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # else two more files lie beside it in use


def _cancel_waiting_messages(engine: Engine) -> None:
    """Cancel what may have been sent since the backup, and end the duties of the old processes."""
    now = utcnow()
    with session(engine) as current:
        current.execute(delete(LeaseRow))
        current.execute(
            update(DeliveryRow)
            .where(DeliveryRow.due_at.is_not(None))
            .values(state=DeliveryState.cancelled.value, due_at=None, ended_at=now)
        )
        current.execute(
            update(OutboxRow)
            .where(OutboxRow.due_at.is_not(None), OutboxRow.topic != ASSESS)  # else an event
            .values(due_at=None, ended_at=now, reason="canceled: it may have been sent since")
        )
        current.execute(update(AnswerRow).where(AnswerRow.due_at.is_not(None)).values(due_at=None))


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Yield a private file that gets the name `path` when the block ends without an error."""
    try:
        path.touch(mode=0o600, exist_ok=False)  # nobody else can take the name meanwhile
    except FileExistsError:
        raise FileExistsError(f"{path} exists already") from None
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        os.close(handle)
        part = Path(name).absolute()
        yield part
        part.replace(path)
    except BaseException:
        for left_over in (part, path):
            if left_over is not None:
                left_over.unlink(missing_ok=True)
        raise


def _check_empty(engine: Engine) -> None:
    if tables := inspect(engine).get_table_names():
        raise JobError(
            f"the database has tables, such as {sorted(tables)[0]}: a backup is restored into a "
            "new, empty one (GONOGO_DATABASE_URL)"
        )


def _file_of(engine: Engine) -> Path:
    name = engine.url.database
    if not name or name == ":memory:":
        raise JobError("GONOGO_DATABASE_URL: a database in memory has no backup")
    return Path(name)


def _check_sqlite(path: Path) -> None:
    refusal = f"{path} is no backup of an SQLite database: `gonogo db backup FILE` makes one"
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise JobError(refusal)
    version_table = "SELECT name FROM sqlite_master WHERE name = 'alembic_version'"
    try:
        with closing(sqlite3.connect(path)) as given:
            (trouble,) = given.execute("PRAGMA quick_check(1)").fetchone()
            is_ours = given.execute(version_table).fetchone() is not None
    except sqlite3.DatabaseError as problem:
        trouble, is_ours = str(problem), True
    if trouble != "ok":
        raise JobError(f"{path} is damaged: {trouble}")
    if not is_ours:
        raise JobError(refusal)


def _check_dump(path: Path, engine: Engine) -> None:
    with path.open("rb") as file:
        is_dump = file.read(5) == b"PGDMP"
    if not is_dump or " alembic_version " not in _run(engine, "pg_restore", "--list", str(path)):
        raise JobError(
            f"{path} is no backup of a PostgreSQL database: `gonogo db backup FILE` makes one"
        )


def _address(engine: Engine) -> str:
    """Return the database's address for PostgreSQL's tools, without the password."""
    url = engine.url
    return URL.create(
        "postgresql", url.username, None, url.host, url.port, url.database, url.query
    ).render_as_string(hide_password=False)


def _run(engine: Engine, program: str, *arguments: str) -> str:
    """Run one of PostgreSQL's tools and return its output. Raises InfrastructureError."""
    if shutil.which(program) is None:
        raise InfrastructureError(
            f"{program} is not installed here; needs: apt install postgresql-client "
            "(of the server's version or a newer one)"
        )
    # other users of the machine see a command's arguments, and not its environment
    password = {} if engine.url.password is None else {"PGPASSWORD": str(engine.url.password)}
    done = subprocess.run(
        [program, *arguments],
        env=os.environ | password,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()[:4]
        raise InfrastructureError(f"{program} failed: {'; '.join(lines) or done.returncode}")
    return done.stdout
