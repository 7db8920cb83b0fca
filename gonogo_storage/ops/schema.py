"""The schema of a database against the code's: how far it is (for /readyz), and `gonogo db
upgrade`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from gonogo_storage.db import partitions
from gonogo_storage.db.engine import is_postgres
from gonogo_storage.rollups import rebuild

# "gonogo": the key of the advisory lock that only one migration at a time may hold
LOCK = 0x676F6E6F676F


class SchemaState(StrEnum):
    """How the database's schema compares to the code's."""

    empty = "empty"  # no table of ours
    behind = "behind"  # `gonogo db upgrade` is needed
    head = "head"  # as the code expects
    # a revision that this code doesn't know: a newer release has migrated it; changes expand first,
    # so this still works
    ahead = "ahead"


READY = (SchemaState.head, SchemaState.ahead)


def state(engine: Engine) -> SchemaState:
    """Compare. Raises sqlalchemy.exc.OperationalError when the database is away."""
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current is None:
        return SchemaState.empty
    script = _script()
    if current == script.get_current_head():
        return SchemaState.head
    known = {revision.revision for revision in script.walk_revisions()}
    return SchemaState.behind if current in known else SchemaState.ahead


def upgrade(engine: Engine) -> SchemaState:
    """Migrate to the code's schema, make the partitions ahead, and count what the roll-ups lack;
    the state before.

    Several processes may call it at once: on PostgreSQL an advisory lock, on SQLite the write
    transaction, makes the others wait, and then find nothing to do. A schema that is ahead is left
    alone.
    """
    before = state(engine)
    with engine.begin() as connection:
        if is_postgres(connection):
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        if before not in READY:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if before is not SchemaState.ahead:
            partitions.ensure(connection)
    if before is not SchemaState.ahead:
        rebuild.catch_up(engine)  # what an older version stored; in small transactions of its own
    return before


def revision(connection: Connection) -> str | None:
    """The revision that the database is at."""
    return MigrationContext.configure(connection).get_current_revision()


@cache
def _script() -> ScriptDirectory:
    """The migrations of this code: they don't change while it runs."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    # Found by name, not imported: nothing may depend on the migrations but Alembic, which runs
    # their files
    found = find_spec("gonogo_migrations")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("the package `migrations` is missing from this installation")
    config = Config()
    config.set_main_option(
        "script_location",
        str(Path(next(iter(found.submodule_search_locations)))).replace("%", "%%"),
    )
    return config
