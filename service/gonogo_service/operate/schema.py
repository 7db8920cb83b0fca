"""The database's schema compared with the code's (for /readyz), and `gonogo db upgrade`."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from gonogo_service.kit.database.engine import is_postgres

# "gonogo": the key of the advisory lock that only one migration at a time may hold
LOCK = 0x676F6E6F676F


class SchemaState(StrEnum):
    """The state of the database's schema, compared with the code's."""

    empty = "empty"  # no tables of GoNoGo
    behind = "behind"  # `gonogo db upgrade` is needed
    head = "head"  # as the code expects
    # A revision that this code doesn't know: a newer release has migrated it. Changes expand first,
    # so this code still works.
    ahead = "ahead"


READY = (SchemaState.head, SchemaState.ahead)


def state(engine: Engine) -> SchemaState:
    """Compare the schemas.

    Raises sqlalchemy.exc.OperationalError when the database is unreachable.
    """
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
    """Migrate to the code's schema.

    Returns the state before. Several processes may call it at once. An advisory lock on PostgreSQL,
    or the write transaction on SQLite, makes the others wait; they then find nothing to do. A
    schema that is ahead stays as it is.
    """
    before = state(engine)
    with engine.begin() as connection:
        if is_postgres(connection):
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        if before not in READY:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return before


@cache
def _script() -> ScriptDirectory:
    """Return the migrations of this code: they don't change while it runs."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    # Found by name, not imported: nothing may depend on the migrations but Alembic, which runs
    # their files
    package = find_spec("gonogo_migrations")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError(
            "the package `gonogo_migrations` is missing from this installation; reinstall GoNoGo"
        )
    config = Config()
    config.set_main_option(
        "script_location",
        str(Path(next(iter(package.submodule_search_locations)))).replace("%", "%%"),
    )
    return config
